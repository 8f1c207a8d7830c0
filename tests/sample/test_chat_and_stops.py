"""Chat templates, system messages and stop strings: the same meaning for every engine."""

import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from small_models import Words, llama
from test_server_faults import server

from widen.sample import Decoding, LocalEngine, Prompt, ServerEngine, Settings, collect, read_prompts, read_samples
from widen.sample.chat import StopStrings, check_chat, turns
from widen.sample.engines.completions import body
from widen.sample.engines.http import Client, Refusal
from widen.sample.engines.probe import stop_tokens
from widen.sample.engines.vllm import VllmEngine

PLAIN = Settings(decoding=Decoding(), max_tokens=12)
CHAT = replace(PLAIN, chat=True, system="w5")
TALK = ({"role": "user", "content": "w3"}, {"role": "assistant", "content": "w4"}, {"role": "user", "content": "w6"})


class Chatty(Words):
    """Words with a template: each message and then w7; w2 is a special token."""

    chat_template = "by hand"
    all_special_tokens = ("w2",)

    def apply_chat_template(self, messages, *, tokenize, return_dict, add_generation_prompt):
        assert tokenize
        assert return_dict
        ids = [i for one in messages for i in (*self(one["content"]).input_ids, 7)]
        return {"input_ids": [*ids, 8] if add_generation_prompt else ids}

    def convert_tokens_to_ids(self, token):
        return int(token[1:])


@pytest.fixture(scope="module")
def engine():
    return LocalEngine(llama(), Chatty(), batch=64)


def drawn(engine, prompt, settings, num=24):
    engine.check([settings], [prompt])
    return [one for _, samples in engine.draw([prompt], [settings], num=num) for one in samples]


def test_a_local_model_is_asked_with_the_tokens_of_its_chat_template(engine):
    by_template = drawn(engine, Prompt(text="w3 w4", id="a"), CHAT)
    by_hand = drawn(engine, Prompt(ids=(5, 7, 3, 4, 7, 8), id="a"), PLAIN)
    assert by_template == by_hand
    assert drawn(engine, Prompt(text="w3", id="a", messages=TALK), replace(CHAT, system="")) == drawn(
        engine, Prompt(ids=(3, 7, 4, 7, 6, 7, 8), id="a"), PLAIN
    )


def test_a_stop_string_ends_the_same_samples_earlier_and_is_not_part_of_them(engine):
    whole = drawn(engine, Prompt(text="w3"), PLAIN)
    ended = drawn(engine, Prompt(text="w3"), replace(PLAIN, stop=("w4 w9", "w6")))
    hits = 0
    for long, short in zip(whole, ended, strict=True):
        assert long.ids[: len(short.ids)] == short.ids
        at = min((long.text.find(one) for one in ("w4 w9", "w6") if one in long.text), default=None)
        assert short.text == (long.text if at is None else long.text[:at])
        assert short.finish == ("stop" if at is not None else long.finish)
        if at is not None:
            hits += 1
            assert short.ids[-1] in (6, 9)  # drawn, and counted in the log-probability
    assert 3 < hits < 24
    short = next(one for one in ended if len(one.ids) == 1 and one.ids[0] == 6)
    assert short.logq == pytest.approx(
        next(o for o in drawn(engine, Prompt(text="w3"), replace(PLAIN, max_tokens=1)) if o.ids == (6,)).logq
    )


def test_a_stop_string_that_is_a_special_token_ends_a_sample_by_its_number(engine):
    stops = StopStrings(("w2", "w4"), engine.tokenizer)
    assert (stops.tokens, stops.texts) == ((2,), ("w4",))
    found = drawn(engine, Prompt(text="w3"), replace(PLAIN, stop=("w2",)))
    assert any(one.ids[-1] == 2 for one in found)
    assert all(2 not in one.ids[:-1] and one.finish == "stop" for one in found if 2 in one.ids)


def test_a_special_token_without_a_name_in_the_tokenizer_is_a_stop_string_by_its_number():
    """Such as <|eot_id|> of a Llama 3 that ends texts with <|end_of_text|>: decoding leaves it out, so no text holds it."""
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"a": 0, "[unk]": 1}, unk_token="[unk]"))
    made.add_special_tokens([AddedToken("<end>", special=True), AddedToken("<turn>", special=True)])
    made.add_tokens([AddedToken("<shown>", special=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")
    stops = StopStrings(("<turn>", "<end>", "<shown>"), tokenizer)
    assert (stops.tokens, stops.texts) == ((3, 2), ("<shown>",))


def test_one_stop_string_need_not_be_a_tuple():
    assert replace(PLAIN, stop="ab") == replace(PLAIN, stop=("ab",))


def test_settings_with_a_chat_or_stop_strings_have_a_file_of_their_own_and_come_back_from_its_header():
    settings = [PLAIN, replace(PLAIN, stop=("\n",)), replace(PLAIN, chat=True), CHAT]
    assert len({one.name for one in settings}) == 4
    assert [Settings.from_json(json.loads(json.dumps(one.to_json()))) for one in settings] == settings
    assert PLAIN.name == "t1-" + PLAIN.hash
    assert set(PLAIN.to_json()) == {"decoding", "steps", "max_tokens", "seed", "hash"}


@pytest.mark.parametrize(
    ("settings", "prompt", "message"),
    [
        (CHAT, Prompt(ids=(3,)), "has token ids, which no chat template takes"),
        (PLAIN, Prompt(text="x", messages=TALK), "is a conversation, which needs the chat template"),
        (CHAT, Prompt(messages=({"role": "system", "content": "w1"}, *TALK)), "has a system message of its own"),
    ],
)
def test_prompts_that_do_not_fit_the_settings_are_refused(settings, prompt, message):
    with pytest.raises(ValueError, match=message):
        check_chat([settings], [prompt])


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="must agree on chat"):
        check_chat([PLAIN, CHAT], [])
    with pytest.raises(ValueError, match="set chat too"):
        replace(PLAIN, system="x")
    with pytest.raises(ValueError, match="must not be empty"):
        replace(PLAIN, stop=("",))
    with pytest.raises(ValueError, match="no chat template, which a conversation needs"):
        LocalEngine(llama(), Words()).check([CHAT], [Prompt(text="w3")])
    with pytest.raises(ValueError, match="without a tokenizer there is none"):
        LocalEngine(llama(), None).check([replace(PLAIN, stop=("w3",))], [Prompt(ids=(3,))])


def test_a_server_gets_messages_and_stop_strings_and_its_answers_are_samples(tmp_path):
    prompt = Prompt(text="2 + 2?")
    with server() as good:
        (path,) = collect(ServerEngine([good.url]), [prompt], [CHAT], num=3, folder=tmp_path)
        whole = read_samples(path)
        assert whole.settings == CHAT
        assert all(one.logq == -6.0 and one.finish == "length" for one in whole)
        first = whole.samples[0]
        (path,) = collect(
            ServerEngine([good.url]), [prompt], [replace(CHAT, stop=(first.text[20:23],))], num=3, folder=tmp_path
        )
        ended = read_samples(path).samples[0]
        assert ended.text == first.text[: first.text.index(first.text[20:23])]
        assert ended.finish == "stop"
        (path,) = collect(ServerEngine([good.url]), [prompt], [PLAIN], num=3, folder=tmp_path)
        assert read_samples(path).samples[0].text != first.text  # another question


@pytest.mark.parametrize(
    ("ignores", "settings", "message"),
    [
        ("stop", replace(PLAIN, stop=("\n",)), "ignores stop: its samples would not be what the settings say"),
        ("chat", CHAT, "does not take a conversation at /v1/chat/completions"),
    ],
)
def test_a_server_that_does_not_do_it_is_refused(tmp_path, ignores, settings, message):
    with server(ignores=[ignores]) as bad, pytest.raises(ValueError, match=message):
        collect(ServerEngine([bad.url]), [Prompt(text="x")], [settings], num=1, folder=tmp_path)


def test_vllm_gets_the_tokens_of_the_template_and_the_stop_strings(monkeypatch, tmp_path):
    given = []

    class LLM:
        def __init__(self, **_):
            pass

        def get_tokenizer(self):
            return Chatty()

        def generate(self, prompts, params, use_tqdm):
            given.extend(zip(prompts, params, strict=True))
            at = [{3: SimpleNamespace(logprob=-1.0)}]
            out = SimpleNamespace(text="w3", token_ids=[3], logprobs=at, finish_reason="stop")
            return [SimpleNamespace(outputs=[out], prompt_token_ids=[0]) for _ in prompts]

    vllm = ModuleType("vllm")
    vllm.LLM, vllm.SamplingParams, vllm.__version__ = LLM, SimpleNamespace, "0"
    platforms = ModuleType("vllm.platforms")
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: False)
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    settings = replace(CHAT, stop=("w2", "w4"))
    collect(VllmEngine("m"), [Prompt(text="w3")], [settings], num=1, folder=tmp_path)
    ((prompt, params),) = given
    assert prompt == {"prompt_token_ids": [5, 7, 3, 7, 8]}
    assert (params.stop, params.stop_token_ids) == (["w4"], [2])


class Tokens(Client):
    """A vLLM server's tokenizer, where an unknown string becomes the token <unk>."""

    def request(self, base, path, body=None, *, limit=0):
        if path == "/tokenize":
            return {"tokens": {"<|end|>": [2], "\n\n": [5, 5]}.get(body["prompt"], [0])}
        assert path == "/detokenize"
        return {"prompt": {2: "<|end|>", 0: "<unk>"}[body["tokens"][0]]}


class NoTokens(Client):
    def request(self, base, path, body=None, *, limit=0):
        raise Refusal("404: not found")


def test_a_vllm_server_gets_the_numbers_of_stop_strings_that_are_one_token():
    stop = ("<|end|>", "\n\n", "what")
    assert stop_tokens(Tokens(timeout=1), "http://a", "m", stop) == ({"<|end|>": 2}, ())
    settings = replace(CHAT, stop=stop)
    known = {"n": 1, "seed": 0, "model": "m", "logprobs": True, "stop_tokens": {"<|end|>": 2}}
    sent = body("vllm", Prompt(text="x"), settings, **known)
    assert (sent["stop"], sent["stop_token_ids"]) == (list(stop), [2])
    assert "stop_token_ids" not in body("vllm", Prompt(text="x"), CHAT, **known)
    none, (note,) = stop_tokens(NoTokens(timeout=1), "http://a", "m", stop)
    assert none == {}
    assert "special token does not end a sample" in note


def test_conversations_are_read_as_prompts_without_the_answer_at_their_end(tmp_path):
    (tmp_path / "p.jsonl").write_text(
        "".join(
            json.dumps(one) + "\n"
            for one in (
                {"messages": [*TALK, {"role": "assistant", "content": "w7"}], "id": "a"},
                {"conversations": [{"from": "human", "value": "w3"}]},
                {"prompt": list(TALK), "completion": [{"role": "assistant", "content": "w7"}]},
                {"prompt": "w3"},
            )
        )
    )
    found = read_prompts(tmp_path / "p.jsonl")
    assert [one.messages for one in found] == [TALK, TALK[:1], TALK, ()]
    assert [one.text for one in found] == [
        "user: w3\nassistant: w4\nuser: w6",
        "w3",
        "user: w3\nassistant: w4\nuser: w6",
        "w3",
    ]
    assert found[0].id == "a"
    assert len({one.id for one in found}) == 4
    assert turns(found[3], CHAT)[1] == {"role": "user", "content": "w3"}


def test_a_prompts_messages_come_back_from_the_samples_file(engine, tmp_path):
    prompt = Prompt(text="talk", messages=TALK)
    (path,) = collect(engine, [prompt], [replace(CHAT, max_tokens=2)], num=1, folder=tmp_path)
    assert read_samples(path).prompts[prompt.id] == prompt
