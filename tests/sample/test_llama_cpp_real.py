"""Against a real `llama-server` on 127.0.0.1. Where it is: the environment variable WIDEN_LLAMA_SERVER.

    pip install gguf
    WIDEN_LLAMA_SERVER=build/bin/llama-server pytest -m slow tests/sample/test_llama_cpp_real.py

docs/how_to/servers.md says how to build it from sources on PyPI.
"""

import os
import shlex
import subprocess
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from small_models import END, chi_square, exact_law, softmax
from test_transformers_serve import free_port, wait_for

from widen.run.advise.engines import how_to_decode
from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.http import Client
from widen.sample.engines.server import ServerEngine
from widen.sample.fill import collect, difference
from widen.sample.prompts import Prompt
from widen.sample.samples_file import read_samples

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PROMPTS = [Prompt(text="ab"), Prompt(text="cde")]
NUM = 2000
OWN = shlex.split(
    "--temp 0.3 --top-k 2 --top-p 0.5 --min-p 0.3 --repeat-penalty 1.5 --xtc-probability 0.5 --dry-multiplier 1"
)
OWN += shlex.split("--dynatemp-range 2 --mirostat 2")
"""Settings of the server itself, which must not reach a sample."""
EXACT = shlex.split("--cache-type-k f32 --cache-type-v f32 --flash-attn off --threads 1")  # in single precision


@contextmanager
def llama_server(folder, *options):
    program = os.environ.get("WIDEN_LLAMA_SERVER", "")
    if not program:
        pytest.skip(f"needs llama.cpp:\n{__doc__}")
    port, log = free_port(), folder / "log.txt"
    with log.open("w") as out:
        command = [program, "-m", str(folder / "tiny.gguf"), "--port", str(port), *EXACT, *options]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ, HF_HUB_OFFLINE="1"))
    try:
        wait_for(f"http://127.0.0.1:{port}", process, log, 120)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    pytest.importorskip("gguf", reason="needs gguf: pip install gguf")
    from tiny_gguf import save_gguf

    folder = tmp_path_factory.mktemp("model")
    return folder, save_gguf(folder / "tiny.gguf")


@pytest.fixture(scope="module")
def served(tiny):
    folder, model = tiny
    with llama_server(folder, *OWN) as url:
        yield url, model


def settings(*specs, max_tokens=4, **more):
    return [Settings(decoding=Decoding.parse(spec), max_tokens=max_tokens, **more) for spec in specs]


def draw(url, folder, asked, *, num=NUM, prompts=PROMPTS[:1]):
    return list(read_samples(*collect(ServerEngine([url], in_flight=8), prompts, asked, num=num, folder=folder)))


def law_of_texts(model, prompt, next_law, length=2):
    """Probability of each (text, finish)."""
    from tiny_gguf import ids, text

    law = Counter()
    for tokens, p in exact_law(model, ids(prompt), length, next_law).items():
        law[text(tokens), "stop" if tokens[-1] == END else "length"] += p
    return law


def min_p(z, p):
    return np.where(z >= z.max() + np.log(p), z, -np.inf)


def top_k(z, k):
    return np.where(z >= np.sort(z)[-k], z, -np.inf)


def top_p(z, p):
    """The fewest tokens that have the probability p together."""
    order = np.argsort(-z)
    kept = order[: np.searchsorted(np.cumsum(softmax(z)[order]), p) + 1]
    return np.where(np.isin(np.arange(len(z)), kept), z, -np.inf)


LAWS = {
    "t=1": softmax,
    "t=2": lambda z: softmax(z / 2),
    "t=0.7,top_k=5": lambda z: softmax(top_k(z, 5) / 0.7),
    "min_p=0.1 then t=2": lambda z: softmax(min_p(z, 0.1) / 2),
    "t=2 then min_p=0.1": lambda z: softmax(min_p(z / 2, 0.1)),
    "top_p=0.8 then t=2": lambda z: softmax(top_p(z, 0.8) / 2),
    "t=2 then top_p=0.8": lambda z: softmax(top_p(z / 2, 0.8)),
    "top_k=8 then t=2 then top_p=0.8": lambda z: softmax(top_p(top_k(z, 8) / 2, 0.8)),
    "min_p=0.05 then t=2 then top_k=4": lambda z: softmax(top_k(min_p(z, 0.05) / 2, 4)),
}


def fits(law, found):
    counts = Counter((one.text, one.finish) for one in found)
    return chi_square(law, counts) if counts.keys() <= law.keys() else 0.0


@pytest.mark.parametrize("spec", LAWS)
def test_its_samples_follow_the_exact_law_whatever_the_server_was_started_with(served, tmp_path, spec):
    url, model = served
    found = draw(url, tmp_path, settings(spec, max_tokens=2))
    assert fits(law_of_texts(model, "ab", LAWS[spec]), found) > 1e-3
    for other in LAWS.keys() - {spec}:
        assert fits(law_of_texts(model, "ab", LAWS[other]), found) < 1e-6, other


def test_it_honours_seeds_and_filters_and_gives_the_models_own_log_probabilities(served, tmp_path):
    url, _ = served
    engine, some = ServerEngine([url]), settings(*LAWS, "t=0")
    first = collect(engine, PROMPTS, some, num=24, folder=tmp_path / "one")
    seen = engine.capabilities[url]
    assert (seen.dialect, seen.seed, seen.logprobs, seen.raw, seen.notes) == ("llama.cpp", True, True, True, ())
    again = collect(ServerEngine([url]), PROMPTS, some, num=24, folder=tmp_path / "two")
    assert [difference(a, b).differ for a, b in zip(first, again, strict=True)] == [0] * len(some)


def test_a_log_probability_is_that_of_the_whole_sample_or_unknown(served, tmp_path):
    """llama.cpp leaves out the tokens of an unfinished letter, and some of those at a stop string."""
    from tiny_gguf import BYTES, TOKENS, ids, text

    url, model = served
    stop = ("k", "3l")
    tokens_of = {}
    for tokens, p in exact_law(model, ids("ab"), 3, softmax).items():
        tokens_of.setdefault((text(tokens), "stop" if tokens[-1] == END else "length"), []).append((tokens, np.log(p)))
    plain = draw(url, tmp_path / "plain", settings("t=1", max_tokens=3), num=400)
    half = {TOKENS.index(one) for one in BYTES}
    for one in plain:
        possible = tokens_of[one.text, one.finish]
        if one.logq is None:
            assert any(half & set(tokens) for tokens, _ in possible)
        else:
            assert min(abs(one.logq - logp) for _, logp in possible) < 1e-3
            assert one.num_tokens in {len(tokens) for tokens, _ in possible}
    assert 0 < sum(one.logq is None for one in plain) < 100
    cut = draw(url, tmp_path / "cut", settings("t=1", max_tokens=16, stop=stop), num=100)
    whole = {one.index: one for one in draw(url, tmp_path / "whole", settings("t=1", max_tokens=16), num=100)}
    hit = [one for one in cut if one.num_tokens < whole[one.index].num_tokens]
    assert hit
    assert all(one.finish == "stop" and one.logq is None for one in hit)
    for one in cut:
        assert not any(string in one.text for string in stop)
        assert whole[one.index].text.startswith(one.text.rstrip("\ufffd"))


def test_its_greedy_text_is_the_models(served, tmp_path):
    from tiny_gguf import ids, text

    url, model = served
    (one,) = draw(url, tmp_path, settings("t=0", max_tokens=8), num=1)
    law = exact_law(model, ids("ab"), 8, lambda z: (z == z.max()).astype(float))
    assert one.text == text(*law)


def test_a_conversation_follows_the_law_of_the_templated_prompt(served, tmp_path):
    url, model = served
    found = draw(url, tmp_path, settings("t=1", max_tokens=2, chat=True, system="c"))
    assert fits(law_of_texts(model, "c3ab3", softmax), found) > 1e-3


def test_the_thoughts_of_a_model_are_part_of_its_texts(tiny, tmp_path):
    """By itself llama.cpp takes them out of an answer that its template begins with <think>: these texts would be empty."""
    folder, _ = tiny
    thought = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    template = f"{{% for m in messages %}}{thought}{{{{ m['content'] }}}}3{{% endfor %}}"
    template += "{% if add_generation_prompt %}<think>{% endif %}"
    with llama_server(folder, "--chat-template", template) as url:
        found = draw(url, tmp_path, settings("t=1", chat=True), num=100)
    assert all(one.text.startswith("<think>") for one in found)
    assert len({one.text for one in found}) > 50


@pytest.mark.parametrize("chat", [True, False])
def test_a_stop_string_that_is_a_special_token_is_refused_unless_it_ends_samples_by_itself(served, tmp_path, chat):
    from tiny_gguf import CONTROL, SPECIAL

    with pytest.raises(ValueError, match=f"does not end a sample at '{SPECIAL}'"):
        draw(served[0], tmp_path, settings("t=1", chat=chat, stop=("k", SPECIAL)), num=4)
    assert draw(served[0], tmp_path, settings("t=1", chat=chat, stop=("k", "cd", CONTROL[END])), num=4)


@pytest.mark.parametrize(
    "spec", ["t=2", "min_p=0.1 then t=2", "t=2 then min_p=0.1", "t=2 then top_p=0.8", "t=0.7,top_k=5"]
)
def test_the_command_of_widen_advise_starts_a_server_that_decodes_so_by_itself(tiny, spec):
    folder, model = tiny
    *_, command, _ = how_to_decode(Decoding.parse(spec), "tiny", max_tokens=2)["llama.cpp"].splitlines()
    program, _, file, *flags = shlex.split(command)
    assert (program, file) == ("llama-server", "tiny.gguf")
    found = Counter()
    law = law_of_texts(model, "ab", LAWS[spec])
    with llama_server(folder, *flags) as url:
        for seed in range(NUM):
            asked = {"prompt": "ab", "max_tokens": 2, "seed": seed}
            (one,) = Client(timeout=30).request(url, "/v1/completions", asked)["choices"]
            found[one["text"], one["finish_reason"]] += 1
    assert chi_square(law, found) > 1e-3
