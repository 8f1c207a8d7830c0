"""The decoding attention under Triton's interpreter on the CPU; test_attention.py runs this file with TRITON_INTERPRET=1 set."""

import pytest
import torch
from torch.nn import functional as F

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
