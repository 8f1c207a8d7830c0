"""Attention of M small Llamas on a CPU: `attend` and `attend_backward` of :mod:`widen.models.stacked_ops` in kept buffers.

One object a layer and size of batch. It makes its buffers and every view of them once; a step is then the arithmetic alone. q and k are
rotated together.

Shapes: as in `stacked_ops`; the sequences' q and k share one buffer [M, 2, H, E, U, B], of which q fills the last J positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .stacked_ops import Block, segments

__all__ = ["Attention"]

Buffer = Callable[..., Tensor]


class _Turn:
    """Rotate each pair (e, e + E/2) of `source` by its position's angle, into `target`."""

    def __init__(self, source: Tensor, target: Tensor, cos: Tensor, sin: Tensor) -> None:
        (self.first, self.second), (self.left, self.right) = source.chunk(2, dim=3), target.chunk(2, dim=3)
        self.cos, self.sin = cos, sin

    def __call__(self) -> None:
        torch.mul(self.first, self.cos, out=self.left).addcmul_(self.second, self.sin, value=-1)
        torch.mul(self.second, self.cos, out=self.right).addcmul_(self.first, self.sin)


class _Pairs(NamedTuple):
    """The tensors of one block, broadcast against each other: queries along one axis, keys along the next."""

    q: Tensor
    k: Tensor
    v: Tensor
    p: Tensor
    pairs: Tensor
    future: Tensor

    @classmethod
    def of(cls, block: Block, pairs: Tensor) -> _Pairs:
        Y, U = block.q.shape[3], block.k.shape[3]
        future = torch.ones(Y, U, dtype=torch.bool).triu_(U - Y + 1)[:, :, None]
        return cls(
            block.q[..., None, :], block.k[:, :, :, None], block.v[:, :, :, None], block.p[:, :, None], pairs, future
        )

    def forward(self, p: Tensor, out: Tensor) -> None:
        """Write the probabilities and what they pick."""
        torch.mul(self.q, self.k, out=self.pairs)
        torch.sum(self.pairs, 2, out=p).mul_(self.q.shape[2] ** -0.5)
        torch.softmax(p.masked_fill_(self.future, -torch.inf), 3, out=p)
        torch.mul(self.p, self.v, out=self.pairs)
        torch.sum(self.pairs, 4, out=out)

    def backward(
        self, dout: Tensor, p: Tensor, ds: Tensor, ds5: Tensor, along: Tensor, into: tuple[Tensor, ...]
    ) -> None:
        """Write the gradients of q, k and v; `ds5` is `ds` with an axis for the features, `dout` with one for the keys."""
        dq, dk, dv = into
        torch.mul(dout, self.p, out=self.pairs)
        torch.sum(self.pairs, 3, out=dv)
        torch.mul(dout, self.v, out=self.pairs)
        torch.sum(self.pairs, 2, out=ds).mul_(p)
        torch.sum(ds, 3, keepdim=True, out=along)
        ds.addcmul_(p, along, value=-1).mul_(self.q.shape[2] ** -0.5)
        torch.mul(ds5, self.k, out=self.pairs)
        torch.sum(self.pairs, 4, out=dq)
        torch.mul(ds5, self.q, out=self.pairs)
        torch.sum(self.pairs, 3, out=dk)


class _Gradient(NamedTuple):
    """Buffers of one block's backward, and their views."""

    dout: Tensor
    ds: Tensor
    ds5: Tensor
    along: Tensor
    dqk: Tensor
    into: tuple[Tensor, Tensor, Tensor]

    @classmethod
    def of(cls, name: str, dout: Tensor, block: Block, scratch: Buffer) -> _Gradient:
        (M, H, E, Y, B), U = block.q.shape, block.k.shape[3]
        ds = scratch(f"{name} ds", M, H, Y, U, B)
        dqk, dv = scratch(f"{name} dqk", M, 2, H, E, U, B), scratch(f"{name} dv", M, H, E, U, B)
        into = (dqk[:, 0, :, :, U - Y :], dqk[:, 1], dv)
        along = scratch(f"{name} along", M, H, Y, 1, B)
        return cls(dout.view(M, H, E, Y, B)[..., None, :], ds, ds[:, :, None], along, dqk, into)


class Attention:
    """Forward and backward of one layer.

    Args:
      qkv_MCN: the buffer that the rows of q, k and v are written to before each `forward`.
      cos_eL1, sin_eL1: angles.
      batch, heads, shared: B, H, K.
      take, scratch: where buffers come from (`Ops`).
    """

    TAKES: ClassVar[int] = 6
    """How many buffers it takes."""

    def __init__(
        self, qkv_MCN: Tensor, cos_eL1: Tensor, sin_eL1: Tensor, batch: int, heads: int, shared: int, take: Buffer, scratch: Buffer
    ) -> None:  # fmt: skip
        (M, C, N), K, L = qkv_MCN.shape, shared, cos_eL1.shape[1]
        E, R, U = C // (3 * heads), (N - (L - shared) * batch) // shared, L
        self.scratch, self.cos, self.sin, self.sizes = scratch, cos_eL1, sin_eL1, (M, heads, E, K, R, U, batch)
        roots, own = segments(qkv_MCN, batch, L, heads, K)
        self.out = take(M, C // 3, N)
        roots_out, own_out = self.out.split([K * R, N - K * R], dim=2)
        roots_qk, own_qk = take(M, 2, heads, E, K, R), take(M, 2, heads, E, U, batch)
        self.values, self.own_v = take(M, heads, E, U, batch), own[:, 2]
        self.roots = Block(roots_qk[:, 0], roots_qk[:, 1], roots[:, 2], take(M, heads, K, K, R))
        self.own = Block(own_qk[:, 0, :, :, K:], own_qk[:, 1], self.values, take(M, heads, U - K, U, batch))
        self.turns = (
            _Turn(roots[:, :2], roots_qk, cos_eL1[:, :K], sin_eL1[:, :K]),
            _Turn(own[:, :2], own_qk[..., K:, :], cos_eL1[:, K:], sin_eL1[:, K:]),
        )
        self.roots_pairs = _Pairs.of(self.roots, scratch("roots pairs", M, heads, E, K, K, R))
        self.own_pairs = _Pairs.of(self.own, scratch("own pairs", M, heads, E, U - K, U, batch))
        self.outs = roots_out.view(M, heads, E, K, R), own_out.view(M, heads, E, U - K, batch)
        self.shared_keys, self.shared_values = self.own.k[..., :K, :], self.values[..., :K, :]
        self.own_values = self.values[..., K:, :]
        self._back: _Back | None = None

    def forward(self, index_MB: Int[Tensor, "M B"]) -> Attention:
        """Attend; the result is `out`."""
        M, H, E, K, _, _, B = self.sizes
        for turn in self.turns:
            turn()
        self.roots_pairs.forward(self.roots.p, self.outs[0])
        index = index_MB[:, None, None, None].expand(M, H, E, K, B)
        torch.gather(self.roots.k, 4, index, out=self.shared_keys)
        torch.gather(self.roots.v, 4, index, out=self.shared_values)
        self.own_values.copy_(self.own_v)
        self.own_pairs.forward(self.own.p, self.outs[1])
        return self

    def backward(self, dout_MDN: Float[Tensor, "M D N"], hot_MBR: Float[Tensor, "M B R"]) -> Float[Tensor, "M C N"]:
        """Gradient of the rows of q, k and v."""
        if self._back is None or self._back.dout is not dout_MDN:
            self._back = _Back(self, dout_MDN)
        return self._back.run(hot_MBR)


class _Back:
    """The backward of one `Attention` for one buffer of incoming gradients: views made once."""

    def __init__(self, layer: Attention, dout_MDN: Tensor) -> None:
        M, H, E, K, R, U, B = layer.sizes
        self.layer, self.dout = layer, dout_MDN
        droots, down = dout_MDN.split([K * R, (U - K) * B], dim=2)
        self.of_roots = _Gradient.of("roots", droots, layer.roots, layer.scratch)
        self.of_own = _Gradient.of("own", down, layer.own, layer.scratch)
        self.dqkv = layer.scratch("dqkv", M, 3 * H * E, dout_MDN.shape[2])
        roots, own = segments(self.dqkv, B, U, H, K)
        cos, sin = layer.cos, -layer.sin  # the inverse rotation
        self.turns = (
            _Turn(self.of_own.dqk[..., K:, :], own[:, :2], cos[:, K:], sin[:, K:]),
            _Turn(self.of_roots.dqk, roots[:, :2], cos[:, :K], sin[:, :K]),
        )
        asked = layer.scratch("asked", M, 2, H, E, K, B)
        self.asked_k, self.asked_v, self.asked = asked[:, 0], asked[:, 1], asked.view(M, 2 * H * E * K, B)
        self.summed = layer.scratch("summed", M, 2 * H * E * K, R)
        self.more_k, self.more_v = self.summed.view(M, 2, H, E, K, R).unbind(1)
        _, dk, dv = self.of_own.into
        self.shared_k, self.shared_v, self.own_dv = dk[..., :K, :], dv[..., :K, :], dv[..., K:, :]
        self.own_v, self.roots_v = own[:, 2], roots[:, 2]

    def run(self, hot_MBR: Float[Tensor, "M B R"]) -> Float[Tensor, "M C N"]:
        """What the sequences ask of their roots' keys and values is summed over sequences by a product with 0 and 1."""
        layer, own, roots = self.layer, self.of_own, self.of_roots
        layer.own_pairs.backward(own.dout, layer.own.p, own.ds, own.ds5, own.along, own.into)
        self.asked_k.copy_(self.shared_k)
        self.asked_v.copy_(self.shared_v)
        torch.bmm(self.asked, hot_MBR, out=self.summed)
        self.turns[0]()
        self.own_v.copy_(self.own_dv)
        layer.roots_pairs.backward(roots.dout, layer.roots.p, roots.ds, roots.ds5, roots.along, roots.into)
        _, dk, dv = roots.into
        dk.add_(self.more_k)
        self.turns[1]()
        torch.add(dv, self.more_v, out=self.roots_v)
        return self.dqkv
