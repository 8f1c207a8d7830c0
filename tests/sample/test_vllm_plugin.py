"""Top-n-sigma, and min-p before the temperature, as vLLM logits processors, through a stand-in of the documented interface.

The real thing: test_vllm_real.py (slow).
"""

import sys
import types
from enum import Enum, auto

import pytest
import torch

from widen.models.likelihood import decoded_log_probabilities
from widen.sample import Decoding, Prompt, Settings, vllm_plugin
from widen.sample.engines.completions import body, needs, unsupported
from widen.sample.processors import top_n_sigma


class Direction(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


def params(n=None, **other):
    extra = other | ({} if n is None else {"top_n_sigma": n})
    return types.SimpleNamespace(extra_args=extra or None)


def added(row, n=None):
    return (row, params(n), [1, 2], [])


def update(removed=(), added=(), moved=(), size=4):
    return types.SimpleNamespace(batch_size=size, removed=removed, added=added, moved=moved)


@pytest.fixture
def plugin(monkeypatch):
    """The module as vLLM gets it: the parent of its classes comes from vLLM's own module."""
    interface = types.ModuleType("vllm.v1.sample.logits_processor")
    interface.LogitsProcessor = type("LogitsProcessor", (), {})
    for name in ("vllm", "vllm.v1", "vllm.v1.sample"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", interface)
    for name in ("TopNSigma", "MinPFirst"):
        monkeypatch.delitem(vars(vllm_plugin), name, raising=False)
        found = getattr(vllm_plugin, name)
        assert issubclass(found, interface.LogitsProcessor)
        assert (found.__module__, found.__qualname__) == (vllm_plugin.__name__, name)
    yield vllm_plugin
    for name in ("TopNSigma", "MinPFirst"):
        vars(vllm_plugin).pop(name, None)


@pytest.fixture
def processor(plugin):
    return plugin.TopNSigma


def test_only_the_rows_that_asked_are_filtered(processor):
    made = processor(None, torch.device("cpu"), False)
    assert made.is_argmax_invariant()
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(made.apply(logits.clone()), logits)
    made.update_state(update(added=[added(0, 1.0), added(1), added(2, 0.5), added(3)]))
    made.update_state(None)
    out = made.apply(logits.clone())
    assert torch.equal(out[[1, 3]], logits[[1, 3]])
    assert torch.equal(out[0:1], top_n_sigma(logits[0:1], 1.0))
    assert torch.equal(out[2:3], top_n_sigma(logits[2:3], 0.5))


def test_rows_follow_the_batch_as_vllm_moves_them(processor):
    made = processor(None, torch.device("cpu"), False)
    made.update_state(update(added=[added(0, 1.0), added(1), added(2, 3.0)]))
    made.update_state(update(moved=[(0, 1, Direction.SWAP)]))
    assert made.values == {1: 1.0, 2: 3.0}
    made.update_state(update(moved=[(2, 1, Direction.UNIDIRECTIONAL)]))  # over the other, which is gone with that
    assert made.values == {1: 3.0}
    made.update_state(update(removed=[1], moved=[(1, 0, Direction.UNIDIRECTIONAL)]))
    assert made.values == {}
    made.update_state(update(added=[added(1, 2.0)]))
    made.update_state(update(added=[added(1)]))  # a new request takes the place of the old one
    assert made.values == {}


@pytest.mark.parametrize("n", [0, -1, "1", True, float("inf"), float("nan")])
def test_a_bad_value_is_refused_when_the_request_comes(processor, n):
    with pytest.raises(ValueError, match="must be a number above 0"):
        processor.validate_params(params(n))


def test_good_and_absent_values_pass(processor):
    for good in (params(), params(1), params(0.5), params(other=3)):
        processor.validate_params(good)


def test_min_p_first_acts_before_the_temperature_and_keeps_what_min_p_of_the_models_own_law_keeps(plugin):
    """vLLM applies a processor before the temperature exactly if it is not argmax invariant; heat after it then gives our law."""
    made = plugin.MinPFirst(None, torch.device("cpu"), False)
    assert not made.is_argmax_invariant()
    rows = [(0, params(min_p_first=0.1), [], []), (1, params(), [], []), (2, params(min_p_first=0.5), [], [])]
    made.update_state(update(added=rows))
    logits = 3 * torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    out = made.apply(logits.clone())
    assert torch.equal(out[1], logits[1])
    for row, m in ((0, 0.1), (2, 0.5)):
        wanted = decoded_log_probabilities(logits[row : row + 1], Decoding.truncate_then_heat(min_p=m).exact_steps)
        assert torch.allclose((out[row : row + 1] / 2).double().log_softmax(-1).exp(), wanted.exp(), atol=1e-6)


@pytest.mark.parametrize("value", [0, 1.5, "0.1", True, float("nan")])
def test_a_bad_min_p_first_is_refused(plugin, value):
    with pytest.raises(ValueError, match=r"min_p_first=.*above 0 and at most 1"):
        plugin.MinPFirst.validate_params(params(min_p_first=value))


def test_truncate_then_heat_is_asked_of_the_plugin_and_other_orders_of_vllm_itself():
    def sent(spec):
        decoding = Decoding.parse(spec)
        assert unsupported("vllm", decoding) == ""
        settings = Settings(decoding=decoding, max_tokens=1)
        found = body("vllm", Prompt(text="a"), settings, n=1, seed=0, model="", logprobs=False)
        assert (found["top_k"], found["repetition_penalty"]) == (
            -1,
            1.0,
        )  # vLLM would take them from generation_config.json
        neutral = {"min_p": 0.0, "top_p": 1.0}
        keys = ("temperature", "min_p", "top_p", "vllm_xargs")
        return {key: found[key] for key in keys if key in found and found[key] != neutral.get(key)}

    assert sent("t=2,min_p=0.1,order=temperature_last") == {"temperature": 2.0, "vllm_xargs": {"min_p_first": 0.1}}
    plain = Settings(decoding=Decoding(), max_tokens=1)
    asked = body("vllm", Prompt(text="a"), plain, n=1, seed=0, model="", logprobs=False)
    assert (asked["min_p"], asked["top_p"]) == (0.0, 1.0)
    assert sent("t=2,min_p=0.1") == {"temperature": 2.0, "min_p": 0.1}
    assert sent("min_p=0.1,order=temperature_last") == {
        "temperature": 1.0,
        "min_p": 0.1,
    }  # at t = 1 both orders are one
    both = "t=2,min_p=0.1,top_p=0.9,order=min_p>temperature>top_p"
    assert sent(both) == {"temperature": 2.0, "top_p": 0.9, "vllm_xargs": {"min_p_first": 0.1}}
    assert needs(Decoding.parse(both)) == {"min_p_first", "top_p"}


@pytest.mark.parametrize("dialect", ["openai", "transformers"])
def test_a_server_that_cannot_truncate_before_heat_is_refused(dialect):
    why = unsupported(dialect, Decoding.truncate_then_heat())
    assert "its order is temperature > min_p, not min_p > temperature" in why
    assert "its order is temperature > top_p" in unsupported(
        "vllm", Decoding.parse("t=2,top_p=0.9,order=temperature_last")
    )
