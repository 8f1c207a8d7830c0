"""The server engine against a real process that misbehaves: nothing is lost, nothing doubled, and every end has its sentence."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.completions import body, choices
from widen.sample.engines.http import Client, Refusal, ServerFault
from widen.sample.engines.pool import AllServersDown, Pool
from widen.sample.engines.server import ServerEngine
from widen.sample.fill import collect, difference
from widen.sample.prompts import Prompt
from widen.sample.samples_file import read_samples

SCRIPT = Path(__file__).parent / "bad_server.py"
PROMPTS = [Prompt(text=f"prompt {i}") for i in range(4)]
SETTINGS = [Settings(decoding=Decoding.parse(spec), max_tokens=12) for spec in ("t=1", "t=0.7,top_p=0.9")]
NUM = 12
ASKED_AT_START = 14  # requests of the questions at the start, with one filter: misbehaviour begins after them


def request(url, path, body=None, *, timeout):
    return Client(timeout=timeout).request(url, path, body)


@contextmanager
def server(**options):
    process = subprocess.Popen([sys.executable, "-S", SCRIPT, json.dumps(options)], stdout=subprocess.PIPE, text=True)
    try:
        process.url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def sample(urls, folder, *, settings=SETTINGS, notices=None, num=NUM, **options):
    quick = {"timeout": 2.0, "back_off": 0.02, "in_flight": 6, "per_request": 4}
    engine = ServerEngine(urls, **(quick | options), notice=(notices if notices is not None else []).append)
    return collect(engine, PROMPTS, settings, num=num, folder=folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with server() as good:
        return sample([good.url], tmp_path_factory.mktemp("good"))


def check_whole(files, undisturbed, *, same=True):
    for path, reference in zip(files, undisturbed, strict=True):
        found = read_samples(path)
        assert len(found) == len({(s.prompt, s.index) for s in found}) == NUM * len(PROMPTS)
        if same:
            assert difference(path, reference).differ == 0


@pytest.mark.parametrize("mode", ["cut", "500", "busy", "aborted", "slow"])
def test_a_server_that_fails_now_and_then_costs_retries_and_nothing_else(mode, tmp_path, undisturbed):
    with server(mode=mode, every=5 if mode != "slow" else 17, after=ASKED_AT_START) as bad:
        check_whole(sample([bad.url], tmp_path, timeout=1.0 if mode == "slow" else 2.0), undisturbed)
        count = request(bad.url, "/count", timeout=5)
    assert count["asked"] > count["served"]  # it did misbehave


def test_fewer_choices_than_asked_for_are_asked_for_again(tmp_path, undisturbed):
    with server(mode="few", every=2, after=ASKED_AT_START) as bad:
        check_whole(sample([bad.url], tmp_path), undisturbed, same=False)  # the second half has seeds of its own


def test_a_server_that_ignores_n_gets_one_request_a_sample(tmp_path):
    with server(ignores=["n", "logprobs", "seed"]) as plain:
        files = sample([plain.url], tmp_path)
        assert request(plain.url, "/count", timeout=5)["served"] > 2 * NUM * len(PROMPTS)
    found = read_samples(files[0])
    assert len({(s.prompt, s.text) for s in found}) == len(found) == NUM * len(PROMPTS)
    assert found.samples[0].logq is None
    notes = " ".join(found.header["notes"])
    assert "ignores n" in notes
    assert "no log-probabilities" in notes
    assert "cannot be drawn again" in notes


@pytest.mark.parametrize(
    ("ignored", "spec", "words"),
    [
        ("temperature", "t=1", None),
        ("top_p", "t=1,top_p=0.9", "ignores top_p: its samples would not be"),
        ("top_k", "t=1,top_k=5", "ignores top_k"),
    ],
)
def test_a_setting_that_the_server_ignores_is_refused_before_the_first_sample(ignored, spec, words, tmp_path):
    with server(ignores=[ignored]) as bad:
        settings = [Settings(decoding=Decoding.parse(spec), max_tokens=12)]
        if words is None:
            sample([bad.url], tmp_path, settings=settings)  # a fixed text at t = 0 is all that this one lacks
        else:
            with pytest.raises(ValueError, match=words):
                sample([bad.url], tmp_path, settings=settings)
            assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("kl_sigma=3", "KL guidance needs two streams"),
        ("typical=0.5", "it has no typical"),
        ("t=0.5,top_k=3,order=temperature_last", "its order is temperature > top_k, not top_k > temperature"),
    ],
)
def test_what_no_such_server_can_do_is_refused_without_asking(spec, words, tmp_path):
    with server() as good, pytest.raises(ValueError, match=words):
        sample([good.url], tmp_path, settings=[Settings(decoding=Decoding.parse(spec))])


def test_a_server_of_an_unknown_kind_is_not_left_to_its_own_top_p_and_the_file_says_what_is_not_known(undisturbed):
    plain = body("openai", PROMPTS[0], SETTINGS[0], n=1, seed=0, model="", logprobs=False)
    assert plain["top_p"] == 1.0
    assert any("cut-offs of its own" in note for note in read_samples(undisturbed[0]).header["notes"])


def test_a_refusal_ends_with_the_servers_words_and_the_prompt(tmp_path):
    with (
        server(mode="400", every=7, after=ASKED_AT_START) as bad,
        pytest.raises(Refusal, match="prompt too long") as error,
    ):
        sample([bad.url], tmp_path)
    assert any(p.id in str(error.value) for p in PROMPTS)
    for path in tmp_path.glob("*.jsonl"):
        assert read_samples(path).torn == 0


def test_a_server_that_dies_in_mid_answer_loses_nothing_and_a_new_one_goes_on(tmp_path, undisturbed):
    with (
        server(mode="die", every=1, after=ASKED_AT_START + 9) as bad,
        pytest.raises(AllServersDown, match="was dropped"),
    ):
        sample([bad.url], tmp_path, max_failures=3, in_flight=2)
    kept = sum(len(read_samples(p)) for p in tmp_path.glob("*.jsonl"))
    assert kept >= 7 * 4  # all that came before the death is on disk
    with server() as good:
        files = sample([good.url], tmp_path)
        asked = request(good.url, "/count", timeout=5)["asked"]
    check_whole(files, undisturbed)
    assert asked <= ASKED_AT_START + (2 * NUM * len(PROMPTS) - kept) / 4 + 2  # and was not drawn again


def test_a_dead_server_is_dropped_with_a_sentence_and_the_others_do_its_work(tmp_path, undisturbed):
    notices, killed = [], []
    with server() as one, server() as other, server() as third:

        class Watched(ServerEngine):
            """Kills one server the moment it is sent its first request."""

            def _send(self, client, url, task, indices):
                if url == other.url and not killed:
                    killed.append(url)
                    os.kill(other.pid, signal.SIGKILL)
                    other.wait()
                return super()._send(client, url, task, indices)

        urls = [one.url, other.url, third.url]
        engine = Watched(urls, back_off=1e-3, in_flight=6, per_request=1, max_failures=3, notice=notices.append)
        files = collect(engine, PROMPTS, SETTINGS, num=NUM, folder=tmp_path)
        served = [request(s.url, "/count", timeout=5)["served"] for s in (one, third)]
    check_whole(files, undisturbed, same=False)
    assert len(notices) == 1
    assert f"{other.url} is dropped (3 failures in a row" in notices[0]
    assert "its work goes to the other 2" in notices[0]
    assert min(served) > ASKED_AT_START  # both of the others worked


def test_work_is_spread_over_the_servers(tmp_path):
    with server() as one, server() as other:
        sample([one.url, other.url + "/v1"], tmp_path)
        served = [request(s.url, "/count", timeout=5)["served"] - ASKED_AT_START for s in (one, other)]
    assert min(served) >= 0.3 * sum(served)


def test_servers_of_different_models_are_refused(tmp_path):
    with (
        server() as one,
        server(name="another") as other,
        pytest.raises(ValueError, match="different models: another, made-up"),
    ):
        sample([one.url, other.url], tmp_path)


def test_no_server_at_all_is_one_sentence(tmp_path):
    with pytest.raises(AllServersDown, match=r"did not answer at the start: .*refused"):
        sample(["http://127.0.0.1:9"], tmp_path)
    with pytest.raises(ValueError, match="not the address of a server"):
        sample(["127.0.0.1:8000"], tmp_path)
    with pytest.raises(ValueError, match="named twice"):
        Pool(["http://a", "http://a"])


def test_failures_that_were_under_way_together_count_once():
    pool = Pool(["http://a"], max_failures=3, back_off=0.01)
    leases = [pool.lease() for _ in range(10)]
    servers = [lease.__enter__() for lease in leases]
    for lease in leases:
        fault = ServerFault("reset")
        with pytest.raises(ServerFault):
            lease.__exit__(ServerFault, fault, None) or (_ for _ in ()).throw(fault)
    assert (servers[0].failures, servers[0].in_flight, servers[0].dropped) == (1, 0, "")
    time.sleep(0.02)
    with pool.lease():
        pass
    assert servers[0].failures == 0  # it is well again


GOOD = {"index": 0, "text": "a", "finish_reason": "stop"}
MALFORMED = {
    "not JSON": ("{", "not a JSON object"),
    "a list": ("[]", "not a JSON object"),
    "nested too deeply": ("[" * 100_000, "not a JSON object"),
    "not UTF-8": ("\udcff", "not a JSON object"),
    "no choices": ({}, "choices"),
    "choices that are an object": ({"choices": {"0": GOOD}}, "choices"),
    "a choice that is a text": ({"choices": ["a"]}, "choices[0] is 'a'"),
    "a choice that is null": ({"choices": [None]}, "choices[0] is None"),
    "an index that is a text": ({"choices": [GOOD, GOOD | {"index": "1"}]}, "index is '1'"),
    "an index twice": ({"choices": [GOOD, GOOD]}, "index 0 occurs twice"),
    "a text that is a number": ({"choices": [GOOD | {"text": 1}]}, "text is 1"),
    "no finish": ({"choices": [{"text": "a"}]}, "finish_reason is None"),
    "a finish that is a list": ({"choices": [GOOD | {"finish_reason": ["stop"]}]}, "finish_reason is ['stop']"),
    "token ids that are a number": ({"choices": [GOOD | {"token_ids": 5}]}, "token_ids is 5"),
    "token ids that are texts": ({"choices": [GOOD | {"token_ids": ["a"]}]}, "token_ids[0] is 'a'"),
    "negative token ids": ({"choices": [GOOD | {"token_ids": [3, -1]}]}, "token_ids[1] is -1"),
    "logprobs that are a list": ({"choices": [GOOD | {"logprobs": [-1.0]}]}, "logprobs is [-1.0]"),
    "log-probabilities that are a text": (
        {"choices": [GOOD | {"logprobs": {"token_logprobs": "no"}}]},
        "token_logprobs is 'no'",
    ),
    "a NaN log-probability": (
        {"choices": [GOOD | {"logprobs": {"token_logprobs": [-1.0, float("nan")]}}]},
        "token_logprobs[1] is nan",
    ),
    "an infinite log-probability": (
        {"choices": [GOOD | {"logprobs": {"token_logprobs": [float("-inf")]}}]},
        "token_logprobs[0] is -inf",
    ),
    "a log-probability above 0": (
        {"choices": [GOOD | {"logprobs": {"token_logprobs": [0.5]}}]},
        "token_logprobs[0] is 0.5",
    ),
    "usage that is a list": ({"choices": [GOOD], "usage": [1]}, "usage is [1]"),
    "a count that is a text": ({"choices": [GOOD], "usage": {"prompt_tokens": "3"}}, "prompt_tokens is '3'"),
    "a negative count": ({"choices": [GOOD], "usage": {"completion_tokens": -2}}, "completion_tokens is -2"),
    "a model that is a number": ({"choices": [GOOD], "model": 5}, "model is 5"),
}


@pytest.fixture(scope="module")
def whatever():
    """A server that answers with the text of the request's prompt."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = asked["prompt"].encode("utf-8", "surrogateescape")
            self.send_response(asked.get("status", 200))
            for name, value in asked.get("headers", {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_answer_is_a_fault_that_names_the_server_and_what_was_wrong(case, whatever):
    answer, words = MALFORMED[case]
    text = answer if isinstance(answer, str) else json.dumps(answer)
    with pytest.raises(ServerFault, match=re.escape(words)) as error:
        choices(request(whatever, "/v1/completions", {"prompt": text}, timeout=5), whatever)
    assert str(error.value).startswith(whatever)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("data", [{"a": 1}, [None], [{"id": 5}]])
def test_a_malformed_list_of_models_is_a_fault_that_names_the_server(data, tmp_path):
    with server(models={"data": data}) as bad, pytest.raises(AllServersDown, match="data") as error:
        sample([bad.url], tmp_path)
    assert bad.url in str(error.value)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "index", "text", "finish_reason", "logprobs", "token_logprobs", "token_ids", "usage"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_answer_whatever_raises_anything_but_a_fault(answer):
    given_answer = answer if isinstance(answer, dict) else {"choices": answer}
    with suppress(ServerFault):
        found, _ = choices(given_answer, "http://a")
        assert all(isinstance(choice.text, str) for choice in found)


@pytest.mark.parametrize(
    ("status", "after", "wait"),
    [(429, "86400", 60), (503, "9" * 400, 60), (429, "7", 7), (429, "²", 0), (429, "Wed, 21 Oct 2026 07:28:00 GMT", 0)],
)
def test_a_pause_that_a_server_asks_for_is_at_most_a_minute(status, after, wait, whatever):
    sent = {"prompt": "{}", "status": status, "headers": {"Retry-After": after}}
    with pytest.raises(ServerFault) as error:
        request(whatever, "/v1/completions", sent, timeout=5)
    assert error.value.wait == wait


def test_a_redirect_is_a_fault_and_is_not_followed(whatever):
    sent = {"prompt": json.dumps({"choices": [GOOD]}), "status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}
    with pytest.raises(ServerFault, match="status 302"):
        request(whatever, "/v1/completions", sent, timeout=5)


@pytest.mark.parametrize("mode", ["drip", "headers"])
def test_an_answer_that_never_ends_is_given_up_at_the_deadline(mode):
    with server(mode=mode, every=1) as bad, pytest.raises(ServerFault, match=r"no complete answer within 0\.5 s"):
        request(bad.url, "/v1/completions", {"prompt": "a"}, timeout=0.5)


def test_an_endless_answer_is_given_up_at_the_limit():
    with server(mode="endless", every=1) as bad, pytest.raises(ServerFault, match="more than 4 MiB"):
        Client(timeout=30).request(bad.url, "/v1/completions", {"prompt": "a"}, limit=4 << 20)


@pytest.mark.parametrize("after", [0, ASKED_AT_START])
def test_the_first_interrupt_is_heard_while_every_server_is_silent(after, tmp_path):
    """At the start and while samples are drawn; the servers would have an hour to answer."""
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit an ignored SIGINT
sys.path.insert(0, {str(SCRIPT.parent)!r})
from test_server_faults import sample
print("ready", flush=True)
sample([sys.argv[1]], sys.argv[2], timeout=3600)
"""
    with server(mode="drip", every=1, after=after) as bad:
        client = subprocess.Popen(
            [sys.executable, "-c", code, bad.url, str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        client.stdout.readline()
        while request(bad.url, "/count", timeout=5)["asked"] <= after:
            time.sleep(0.02)
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=10)
    assert said.strip().endswith("KeyboardInterrupt")
