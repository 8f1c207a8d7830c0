"""What llama.cpp's server is sent, and what is made of its answers; test_llama_cpp_real.py asks a real one."""

import pytest
from test_server_faults import NUM, PROMPTS, sample, server

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.completions import body
from widen.sample.engines.http import Client
from widen.sample.engines.probe import refuse_hidden_stops
from widen.sample.samples_file import read_samples

LISTED = {"data": [{"id": "made-up", "owned_by": "llamacpp"}]}


def sent(spec):
    settings = Settings(decoding=Decoding.parse(spec))
    return body("llama.cpp", PROMPTS[0], settings, n=1, seed=0, model="", logprobs=False)


@pytest.mark.parametrize(
    ("spec", "steps"),
    [
        ("t=1", {"samplers": ["temperature"], "temperature": 1.0}),
        ("t=0", {"samplers": ["temperature"], "temperature": 0.0}),
        ("min_p=0.1 then t=3", {"samplers": ["min_p", "temperature"], "temperature": 3.0, "min_p": 0.1}),
        ("top_k=5", {"samplers": ["top_k", "temperature"], "temperature": 1.0, "top_k": 5}),
    ],
)
def test_llama_cpp_is_told_every_step_because_its_defaults_would_cut_off_tokens(spec, steps):
    """A request without `samplers` is cut off at top_k=40, top_p=0.95 and min_p=0.05."""
    names = ("samplers", "temperature", "top_k", "top_p", "min_p")
    assert {name: value for name, value in sent(spec).items() if name in names} == steps


def test_mirostat_and_a_dynamic_temperature_of_the_server_are_off_and_thoughts_stay_in_the_text():
    """`samplers` does not switch the first two off: Mirostat comes instead of all samplers."""
    found = sent("min_p=0.1 then t=3")
    assert (found["mirostat"], found["dynatemp_range"], found["reasoning_format"]) == (0, 0.0, "none")


def test_llama_cpp_gets_one_request_a_sample_because_it_refuses_more_than_it_has_slots(tmp_path):
    settings = [Settings(decoding=Decoding.parse("min_p=0.1 then t=3"), max_tokens=12)]
    with server(models=LISTED, slots=1) as one:
        found = read_samples(*sample([one.url], tmp_path, settings=settings, per_request=8))
    assert len({(s.prompt, s.text) for s in found}) == len(found) == NUM * len(PROMPTS)
    assert found.header["details"]["dialect"] == "llama.cpp"
    assert not any("ignores n" in note for note in found.header["notes"])


def test_a_log_probability_that_leaves_tokens_out_is_unknown(tmp_path):
    """llama.cpp lists no part of a character, and not all tokens at a stop string."""
    with server(models=LISTED, listed=11) as short, server(models=LISTED) as whole:
        found = [
            read_samples(*sample([one.url], tmp_path / name, settings=[Settings(decoding=Decoding(), max_tokens=12)]))
            for name, one in (("short", short), ("whole", whole))
        ]
    assert {(s.num_tokens, s.logq, s.sampler) for s in found[0]} == {(12, None, None)}
    assert {(s.num_tokens, s.logq, s.sampler) for s in found[1]} == {(12, -6.0, -6.0)}
    assert not any("no log-probabilities" in note for one in found for note in one.header["notes"])


class Forced(Client):
    """Stop strings in pointed brackets are one token, and only </s> ends a sample."""

    def request(self, base, path, body=None, *, limit=0):
        if path == "/tokenize":
            return {"tokens": [len(body["content"])] if body["content"].startswith("<") else [1, 2]}
        ended = body["logit_bias"][0][0] == len("</s>")
        return {"choices": [{"text": "", "finish_reason": "stop" if ended else "length"}]}


def test_a_special_token_that_does_not_end_a_sample_is_refused_as_a_stop_string():
    asked = {"model": "m", "settings": Settings(decoding=Decoding(), stop=("</s>", "ab"))}
    refuse_hidden_stops(Forced(timeout=1), "http://a", PROMPTS[0], **asked)
    asked["settings"] = Settings(decoding=Decoding(), stop=("</s>", "ab", "<|tool|>"))
    with pytest.raises(ValueError, match=r"does not end a sample at '<\|tool\|>', a special token"):
        refuse_hidden_stops(Forced(timeout=1), "http://a", PROMPTS[0], **asked)
