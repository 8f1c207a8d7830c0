"""The token-wise pieces of M small Llamas side by side, each with its own backward: RMS norm, rotary attention, SwiGLU, log Q.

Written out by hand for two reasons. With sequences innermost, attention over a handful of positions is plain vectorised arithmetic.
And pure functions of tensors compile, one by one, into a few GPU kernels that one CUDA graph holds. This file is the definition (and
what a GPU compiles); :mod:`widen.models.stacked_cpu` is the same arithmetic in kept buffers.

Shapes: M models, N = K R + J B rows (:mod:`widen.models.prefix`), D hidden, H heads, E = D/H, C = 3 D, F feed-forward, V vocabulary;
within one block of attention Y queries look at U >= Y keys, the last Y of which are their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Attended", "Block", "Ops", "compiled"]


def rms(x_MND: Float[Tensor, "M N D"], eps: float) -> tuple[Float[Tensor, "M N D"], Float[Tensor, "M N 1"]]:
    """``x / sqrt(mean(x^2) + eps)`` and the factor; the gain is folded into the matrix that follows."""
    scale_MN1 = (x_MND.square().mean(-1, keepdim=True) + eps).rsqrt()
    return x_MND * scale_MN1, scale_MN1


def rms_backward(
    dn_MND: Float[Tensor, "M N D"],
    n_MND: Float[Tensor, "M N D"],
    scale_MN1: Float[Tensor, "M N 1"],
    dx_MND: Float[Tensor, "M N D"],
) -> Float[Tensor, "M N D"]:
    """Gradient of the stream: what came along it, ``dx``, plus what comes back through the norm."""
    along_MN1 = (dn_MND * n_MND).mean(-1, keepdim=True)
    return dx_MND + scale_MN1 * (dn_MND - n_MND * along_MN1)


def swiglu(gate_up_MNG: Float[Tensor, "M N G"]) -> tuple[Float[Tensor, "M N F"], tuple[Tensor, ...]]:
    """``silu(gate) * up``, and what the backward wants."""
    gate, up = gate_up_MNG.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up, (gate_up_MNG,)


def swiglu_backward(dh_MNF: Float[Tensor, "M N F"], kept: tuple[Tensor, ...]) -> Float[Tensor, "M N G"]:
    """Gradient of gate and up, in one tensor."""
    gate, up = kept[0].chunk(2, dim=-1)
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    dgate = (sigmoid + silu * (1 - sigmoid)) * up * dh_MNF
    return torch.cat([dgate, silu * dh_MNF], dim=-1)


class Block(NamedTuple):
    """Attention of the roots among themselves, or of the sequences: what its backward wants."""

    q: Float[Tensor, "M H E Y B"]
    k: Float[Tensor, "M H E U B"]
    v: Float[Tensor, "M H E U B"]
    p: Float[Tensor, "M H Y U B"]  # how much query i of sequence b looks at key u


class Attended(NamedTuple):
    """What attention gives, and what its backward wants."""

    out: Float[Tensor, "M D N"]
    roots: Block
    own: Block


def attend(
    qkv_MCN: Float[Tensor, "M C N"],
    cos_eL1: Float[Tensor, "e L 1"],
    sin_eL1: Float[Tensor, "e L 1"],
    index_MB: Int[Tensor, "M B"],
    heads: int,
    shared: int,
) -> Attended:
    """Causal attention with rotary positions; the rows of q, k and v lie features first, sequences innermost."""
    roots_qkv, own_qkv = segments(qkv_MCN, index_MB.shape[1], cos_eL1.shape[1], heads, shared)
    q, k, v = roots_qkv.unbind(1)
    cos, sin = cos_eL1[:, :shared], sin_eL1[:, :shared]
    roots, roots_out = block(turn(q, cos, sin), turn(k, cos, sin), v)
    q, k, v = own_qkv.unbind(1)
    cos, sin = cos_eL1[:, shared:], sin_eL1[:, shared:]
    k = torch.cat([pick(roots.k, index_MB), turn(k, cos, sin)], dim=3)
    v = torch.cat([pick(roots.v, index_MB), v], dim=3)
    own, own_out = block(turn(q, cos, sin), k, v)
    return Attended(torch.cat([roots_out, own_out], dim=2), roots, own)


def segments(qkv_MCN: Tensor, batch: int, length: int, heads: int, shared: int) -> tuple[Tensor, Tensor]:
    """The rows of the roots [M, 3, H, E, K, R] and of the sequences [M, 3, H, E, J, B], without copying."""
    M, C, N = qkv_MCN.shape
    own = (length - shared) * batch
    roots, rest = qkv_MCN.split([N - own, own], dim=2)
    E = C // (3 * heads)
    return roots.view(M, 3, heads, E, shared, -1), rest.view(M, 3, heads, E, length - shared, batch)


def pick(x: Float[Tensor, "M H E K R"], index_MB: Int[Tensor, "M B"]) -> Float[Tensor, "M H E K B"]:
    """Each sequence's root."""
    M, H, E, K, _ = x.shape
    return x.gather(4, index_MB[:, None, None, None].expand(M, H, E, K, -1))


def block(
    q: Float[Tensor, "M H E Y B"], k: Float[Tensor, "M H E U B"], v: Float[Tensor, "M H E U B"]
) -> tuple[Block, Float[Tensor, "M D O"]]:
    """Attention of Y queries over U keys; query i sees the keys up to U - Y + i."""
    M, H, E, Y, B = q.shape
    U = k.shape[3]
    scores = (q[:, :, :, :, None] * k[:, :, :, None]).sum(2) * E**-0.5
    future = torch.ones(Y, U, dtype=torch.bool, device=q.device).triu(U - Y + 1)[:, :, None]
    p = scores.masked_fill(future, -torch.inf).softmax(dim=3)
    out = (p[:, :, None] * v[:, :, :, None]).sum(4)
    return Block(q, k, v, p), out.reshape(M, H * E, Y * B)


def attend_backward(
    dout_MDN: Float[Tensor, "M D N"],
    seen: Attended,
    cos_eL1: Float[Tensor, "e L 1"],
    sin_eL1: Float[Tensor, "e L 1"],
    hot_MBR: Float[Tensor, "M B R"],
) -> Float[Tensor, "M C N"]:
    """Gradient of the rows of q, k and v."""
    M, H, E, K, R = seen.roots.q.shape
    droots, down = dout_MDN.split([K * R, dout_MDN.shape[2] - K * R], dim=2)
    dq, dk, dv = block_backward(down.view(seen.own.q.shape), seen.own)
    # What the sequences ask of their roots' keys and values is summed over sequences: a product with 0 and 1, in a fixed order.
    of_roots = torch.stack([dk[:, :, :, :K], dv[:, :, :, :K]], dim=1).reshape(M, 2 * H * E * K, -1)
    dk_roots, dv_roots = torch.bmm(of_roots, hot_MBR).view(M, 2, H, E, K, R).unbind(1)
    cos, sin = cos_eL1[:, K:], -sin_eL1[:, K:]  # the inverse rotation
    own = torch.stack([turn(dq, cos, sin), turn(dk[:, :, :, K:], cos, sin), dv[:, :, :, K:]], dim=1)
    dq, dk, dv = block_backward(droots.view(seen.roots.q.shape), seen.roots)
    cos, sin = cos_eL1[:, :K], -sin_eL1[:, :K]
    roots = torch.stack([turn(dq, cos, sin), turn(dk + dk_roots, cos, sin), dv + dv_roots], dim=1)
    return torch.cat([roots.reshape(M, 3 * H * E, -1), own.reshape(M, 3 * H * E, -1)], dim=2)


def block_backward(dout: Float[Tensor, "M H E Y B"], seen: Block) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v of one block."""
    q, k, v, p = seen
    dp = (dout[:, :, :, :, None] * v[:, :, :, None]).sum(2)
    dv = (dout[:, :, :, :, None] * p[:, :, None]).sum(3)
    pdp = p * dp
    ds = (pdp - p * pdp.sum(3, keepdim=True)) * q.shape[2] ** -0.5
    dq = (ds[:, :, None] * k[:, :, :, None]).sum(4)
    dk = (ds[:, :, None] * q[:, :, :, :, None]).sum(3)
    return dq, dk, dv


def turn(
    x: Float[Tensor, "M H E Y B"], cos_eI1: Float[Tensor, "e Y 1"], sin_eI1: Float[Tensor, "e Y 1"]
) -> Float[Tensor, "M H E Y B"]:
    """Rotate each pair (e, e + E/2) by its position's angle."""
    first, second = x.chunk(2, dim=2)
    return torch.cat([first * cos_eI1 - second * sin_eI1, second * cos_eI1 + first * sin_eI1], dim=2)


def logprob(
    logits_MNV: Float[Tensor, "M N V"], at_MLB: Int[Tensor, "M L B"]
) -> tuple[Float[Tensor, "M L B"], Float[Tensor, "M N V"]]:
    """log Q of the targets, and of every token for the backward. `at` is row * V + target."""
    logall_MNV = logits_MNV.log_softmax(-1)
    return logall_MNV.flatten(1).gather(1, at_MLB.flatten(1)).view(at_MLB.shape), logall_MNV


def logprob_backward(
    upstream_MLB: Float[Tensor, "M L B"],
    logall_MNV: Float[Tensor, "M N V"],
    at_MLB: Int[Tensor, "M L B"],
    hot_MBR: Float[Tensor, "M B R"],
    shared: int,
) -> Float[Tensor, "M N V"]:
    """``upstream (onehot - softmax)``, summed over the sequences that share a row."""
    M, _, V = logall_MNV.shape
    hot_MLBV = (at_MLB[..., None] % V == torch.arange(V, device=at_MLB.device)).to(logall_MNV.dtype)
    wanted = upstream_MLB[..., None] * hot_MLBV
    roots = torch.bmm(hot_MBR.mT, wanted[:, :shared].transpose(1, 2).reshape(M, -1, shared * V))
    roots = roots.view(M, -1, shared, V).transpose(1, 2).reshape(M, -1, V)
    wanted_MNV = torch.cat([roots, wanted[:, shared:].reshape(M, -1, V)], dim=1)
    return wanted_MNV - wanted_MNV.sum(-1, keepdim=True) * logall_MNV.exp()


def fresh(*_: object) -> None:
    """No buffer: the operation makes its own result."""


class Ops(NamedTuple):
    """The pieces as values, so that a device can bring its own (compiled, or written by hand) in place of these.

    `start` is called before a forward pass; `take(*shape)` and `scratch(name, *shape)` give the buffer that a product writes to, or None.
    What `take` gives stays untouched until the next `start`, what `scratch` gives until the next call with that name.
    """

    rms: Callable[..., Any] = rms
    rms_backward: Callable[..., Any] = rms_backward
    swiglu: Callable[..., Any] = swiglu
    swiglu_backward: Callable[..., Any] = swiglu_backward
    attend: Callable[..., Any] = attend
    attend_backward: Callable[..., Any] = attend_backward
    logprob: Callable[..., Any] = logprob
    logprob_backward: Callable[..., Any] = logprob_backward
    start: Callable[[], None] = fresh
    take: Callable[..., Any] = fresh
    scratch: Callable[..., Any] = fresh


def compiled() -> Ops:
    """Each piece through ``torch.compile``: on a GPU one or a few kernels in place of a dozen."""
    pieces = Ops()[:8]
    return Ops(*(torch.compile(piece, dynamic=False, fullgraph=True) for piece in pieces))
