"""Top-n-sigma as a vLLM logits processor, through a stand-in of the documented interface. The real thing: test_vllm_real.py (slow)."""

import sys
import types
from enum import Enum, auto

import pytest
import torch

from widen.sample import vllm_plugin
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
def processor(monkeypatch):
    """The class as vLLM gets it: its parent comes from vLLM's own module."""
    interface = types.ModuleType("vllm.v1.sample.logits_processor")
    interface.LogitsProcessor = type("LogitsProcessor", (), {})
    for name in ("vllm", "vllm.v1", "vllm.v1.sample"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.logits_processor", interface)
    monkeypatch.delitem(vars(vllm_plugin), "TopNSigma", raising=False)
    found = vllm_plugin.TopNSigma
    assert issubclass(found, interface.LogitsProcessor)
    yield found
    vars(vllm_plugin).pop("TopNSigma", None)


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
    assert made.rows.n == {1: 1.0, 2: 3.0}
    made.update_state(update(moved=[(2, 1, Direction.UNIDIRECTIONAL)]))  # over the other, which is gone with that
    assert made.rows.n == {1: 3.0}
    made.update_state(update(removed=[1], moved=[(1, 0, Direction.UNIDIRECTIONAL)]))
    assert made.rows.n == {}
    made.update_state(update(added=[added(1, 2.0)]))
    made.update_state(update(added=[added(1)]))  # a new request takes the place of the old one
    assert made.rows.n == {}


@pytest.mark.parametrize("n", [0, -1, "1", True, float("inf"), float("nan")])
def test_a_bad_value_is_refused_when_the_request_comes(processor, n):
    with pytest.raises(ValueError, match="must be a number above 0"):
        processor.validate_params(params(n))


def test_good_and_absent_values_pass(processor):
    for good in (params(), params(1), params(0.5), params(other=3)):
        processor.validate_params(good)
