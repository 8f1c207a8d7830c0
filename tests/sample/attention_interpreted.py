"""The decoding attention under Triton's interpreter on the CPU; test_attention.py runs this file with TRITON_INTERPRET=1 set."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from small_models import llama
from torch.nn import functional as F

from widen.sample import step_graph, stream
from widen.sample.attention_triton import decode


def oracle(query, key, value, mask):
    H = query.shape[1]
    K = key.shape[1]
    q, k, v = query.double(), key.double().repeat_interleave(H // K, 1), value.double().repeat_interleave(H // K, 1)
    allowed = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=allowed)[:, :, 0]


def case(B, H, K, S, E, dtype, masked, room=0):
    make = torch.Generator().manual_seed(B * S + E)
    query = torch.randn((B, H, E), generator=make).to(dtype)
    key, value = (torch.randn((B, K, S + room, E), generator=make).to(dtype)[:, :, :S] for _ in range(2))
    mask = torch.rand((B, S), generator=make) < 0.6 if masked else None
    if mask is not None:
        mask[:, -1] = True
        mask[0, : S - 1] = False  # whole blocks that nothing of this row may see
    return query, key, value, mask


def halves_err_no_more_than_torchs(dtype, device):
    query, key, value, mask = (x.to(device) for x in case(4, 9, 3, 200, 64, dtype, True))
    exact = oracle(query, key, value, mask)
    ours = decode(query, key, value, mask, scale=64**-0.5)
    k, v = key.repeat_interleave(3, 1), value.repeat_interleave(3, 1)
    torchs = F.scaled_dot_product_attention(query[:, :, None], k, v, attn_mask=mask[:, None, None, :])[:, :, 0]
    slack = torch.finfo(dtype).eps / 16
    assert (ours.double() - exact).norm() <= 1.1 * (torchs.double() - exact).norm() + slack * exact.norm()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("room", [0, 7])
@pytest.mark.parametrize("shape", [(3, 9, 3, 130, 64), (2, 4, 4, 1, 16), (2, 2, 1, 65, 24), (1, 32, 1, 70, 80)])
def test_decoding_attention_is_attention(shape, room, masked):
    query, key, value, mask = case(*shape, torch.float32, masked, room)
    ours = decode(query, key, value, mask, scale=shape[-1] ** -0.5)
    torch.testing.assert_close(ours.double(), oracle(query, key, value, mask), atol=2e-6, rtol=2e-6)


def test_decoding_attention_in_half_precision_errs_no_more_than_torchs():
    """float16 alone: the interpreter multiplies the bit patterns of bfloat16, so that one is for a GPU."""
    halves_err_no_more_than_torchs(torch.float16, "cpu")


class Eager(step_graph.StepGraph):
    """A step graph without the graph: what would be captured is run anew at every step, on the same buffers."""

    def _capture(self):
        self.logits_BV = self._forward()
        self.graph = SimpleNamespace(replay=lambda: self.logits_BV.copy_(self._forward()))


@pytest.fixture
def captured(monkeypatch):
    """Steps on standing buffers, as on a GPU."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(stream, "pays", lambda model, cache, *, steps: True)
    monkeypatch.setattr(step_graph, "StepGraph", Eager)


def six_steps():
    """Logits over padded prompts; after the third step one row leaves."""
    model = llama()
    rows = stream.Stream(
        model, stream.prefill(model, [[3, 4, 5], [6], [7, 8, 9, 2, 3]]), torch.tensor([0, 1, 1, 2]), room=8
    )
    found = []
    for number in range(6):
        if number == 3:
            rows.select(torch.tensor([0, 2, 3]))
        rows.step(torch.arange(len(rows.logits_BV)) + 2 + number)
        found.append(rows.logits_BV.clone())
    return found, rows


PLAIN = six_steps()


def test_steps_on_standing_buffers_are_the_plain_steps(captured):
    found, rows = six_steps()
    assert rows.captured
    assert not PLAIN[1].captured
    for ours, theirs in zip(found, PLAIN[0], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_cache_of_a_captured_step_goes_with_its_rows(captured):
    _, rows = six_steps()
    keys = weakref.ref(rows.cache.layers[0]._keys)
    assert keys() is not None
    del rows
    gc.collect()
    assert keys() is None
