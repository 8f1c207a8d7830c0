"""The pieces of :mod:`widen.models.stacked_ops` for a CPU: the same arithmetic, written into buffers that are kept from step to step.

A fresh tensor of a few megabytes costs more in page faults than the arithmetic that fills it (a product of two [4096, 128] tensors:
.9 ms fresh, .03 ms into a kept buffer).

Shapes: as in `stacked_ops`.
"""

from __future__ import annotations

import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .stacked_ops import Attended, Block, Ops, segments

__all__ = ["in_place"]


def in_place(dtype: torch.dtype) -> Ops:
    """The pieces with their own buffers, a set for each thread. One set serves any number of models, one forward and backward after
    the other; passes that are open at the same time need a call of `in_place` each.
    """
    own = _InPlace(dtype)
    return Ops(
        own.rms,
        own.rms_backward,
        own.swiglu,
        own.swiglu_backward,
        own.attend,
        own.attend_backward,
        own.logprob,
        own.logprob_backward,
        own.start,
        own.take,
        own.scratch,
    )


class _InPlace(threading.local):
    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.taken: list[Tensor] = []
        self.count = 0
        self.named: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def start(self) -> None:
        self.count = 0

    def take(self, *shape: int) -> Tensor:
        """A pass makes the same calls in the same order, so the n-th call of each pass gets the same buffer."""
        if self.count == len(self.taken):
            self.taken.append(torch.empty(shape, dtype=self.dtype))
        elif self.taken[self.count].shape != shape:
            self.taken[self.count] = torch.empty(shape, dtype=self.dtype)
        self.count += 1
        return self.taken[self.count - 1]

    def scratch(self, name: str, *shape: int) -> Tensor:
        if (name, shape) not in self.named:
            self.named[name, shape] = torch.empty(shape, dtype=self.dtype)
        return self.named[name, shape]

    def rms(self, x_MND: Float[Tensor, "M N D"], eps: float) -> tuple[Float[Tensor, "M N D"], Float[Tensor, "M N 1"]]:
        M, N, D = x_MND.shape
        scale = torch.linalg.vector_norm(x_MND, dim=-1, keepdim=True, out=self.take(M, N, 1))
        scale.square_().div_(D).add_(eps).rsqrt_()
        return torch.mul(x_MND, scale, out=self.take(M, N, D)), scale

    def rms_backward(
        self,
        dn_MND: Float[Tensor, "M N D"],
        n_MND: Float[Tensor, "M N D"],
        scale_MN1: Float[Tensor, "M N 1"],
        dx_MND: Float[Tensor, "M N D"],
    ) -> Float[Tensor, "M N D"]:
        M, N, D = dn_MND.shape
        product = torch.mul(dn_MND, n_MND, out=self.scratch("rms", M, N, D))
        along = torch.mean(product, -1, keepdim=True, out=self.scratch("rms", M, N, 1))
        through = torch.addcmul(dn_MND, n_MND, along, value=-1, out=product)
        return dx_MND.addcmul_(through, scale_MN1)

    def swiglu(self, gate_up_MNG: Float[Tensor, "M N G"]) -> tuple[Float[Tensor, "M N F"], tuple[Tensor, ...]]:
        gate, up = gate_up_MNG.chunk(2, dim=-1)
        sigmoid = torch.sigmoid(gate, out=self.take(*gate.shape))
        silu = torch.mul(gate, sigmoid, out=self.take(*gate.shape))
        return torch.mul(silu, up, out=self.take(*gate.shape)), (up, sigmoid, silu)

    def swiglu_backward(self, dh_MNF: Float[Tensor, "M N F"], kept: tuple[Tensor, ...]) -> Float[Tensor, "M N G"]:
        up, sigmoid, silu = kept
        M, N, F = up.shape
        dgate_up = self.scratch("dgate_up", M, N, 2 * F)
        dgate, dup = dgate_up.chunk(2, dim=-1)
        torch.mul(silu, dh_MNF, out=dup)
        slope = torch.addcmul(silu, silu, sigmoid, value=-1, out=self.scratch("slope", M, N, F)).add_(sigmoid)
        torch.mul(slope.mul_(up), dh_MNF, out=dgate)
        return dgate_up

    def attend(
        self,
        qkv_MCN: Float[Tensor, "M C N"],
        cos_eL1: Float[Tensor, "e L 1"],
        sin_eL1: Float[Tensor, "e L 1"],
        index_MB: Int[Tensor, "M B"],
        heads: int,
        shared: int,
    ) -> Attended:
        (M, C, N), B = qkv_MCN.shape, index_MB.shape[1]
        parts = segments(qkv_MCN, B, cos_eL1.shape[1], heads, shared)
        (_, _, _, E, K, R), J = parts[0].shape, parts[1].shape[4]
        out = self.take(M, C // 3, N)
        roots_out, own_out = out.split([K * R, J * B], dim=2)
        q, k, v = parts[0].unbind(1)
        cos, sin = cos_eL1[:, :K], sin_eL1[:, :K]
        q, k = (self._turn(x, cos, sin, self.take(M, heads, E, K, R)) for x in (q, k))
        roots = self._block(q, k, v, roots_out.view(M, heads, E, K, R))
        q, k, v = parts[1].unbind(1)
        cos, sin = cos_eL1[:, K:], sin_eL1[:, K:]
        q = self._turn(q, cos, sin, self.take(M, heads, E, J, B))
        keys, values = (self.take(M, heads, E, K + J, B) for _ in range(2))
        index = index_MB[:, None, None, None].expand(M, heads, E, K, B)
        torch.gather(roots.k, 4, index, out=keys[:, :, :, :K])
        torch.gather(roots.v, 4, index, out=values[:, :, :, :K])
        self._turn(k, cos, sin, keys[:, :, :, K:])
        values[:, :, :, K:] = v
        own = self._block(q, keys, values, own_out.view(M, heads, E, J, B))
        return Attended(out, roots, own)

    def _block(self, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> Block:
        (M, H, E, Y, B), U = q.shape, k.shape[3]
        pairs = self.scratch("pairs", M, H, E, Y, U, B)
        torch.mul(q[:, :, :, :, None], k[:, :, :, None], out=pairs)
        p = torch.sum(pairs, 2, out=self.take(M, H, Y, U, B)).mul_(E**-0.5)
        p.masked_fill_(torch.ones(Y, U, dtype=torch.bool).triu_(U - Y + 1)[:, :, None], -torch.inf)
        torch.softmax(p, 3, out=p)
        torch.mul(p[:, :, None], v[:, :, :, None], out=pairs)
        torch.sum(pairs, 4, out=out)
        return Block(q, k, v, p)

    def attend_backward(
        self,
        dout_MDN: Float[Tensor, "M D N"],
        seen: Attended,
        cos_eL1: Float[Tensor, "e L 1"],
        sin_eL1: Float[Tensor, "e L 1"],
        hot_MBR: Float[Tensor, "M B R"],
    ) -> Float[Tensor, "M C N"]:
        M, H, E, K, R = seen.roots.q.shape
        N, (J, B) = dout_MDN.shape[2], seen.own.q.shape[3:]
        dqkv = self.scratch("dqkv", M, 3 * H * E, N)
        roots, own = segments(dqkv, B, K + J, H, K)
        droots, down = dout_MDN.split([K * R, J * B], dim=2)
        dq, dk, dv = self._block_backward(down.view(M, H, E, J, B), seen.own)
        of_roots = self.scratch("of_roots", M, 2, H, E, K, B)
        of_roots[:, 0], of_roots[:, 1] = dk[:, :, :, :K], dv[:, :, :, :K]
        summed = torch.bmm(of_roots.view(M, -1, B), hot_MBR, out=self.scratch("summed", M, 2 * H * E * K, R))
        cos, sin = cos_eL1[:, K:], -sin_eL1[:, K:]  # the inverse rotation
        self._turn(dq, cos, sin, own[:, 0])
        self._turn(dk[:, :, :, K:], cos, sin, own[:, 1])
        own[:, 2] = dv[:, :, :, K:]
        dq, dk, dv = self._block_backward(droots.view(M, H, E, K, R), seen.roots)
        dk_more, dv_more = summed.view(M, 2, H, E, K, R).unbind(1)
        cos, sin = cos_eL1[:, :K], -sin_eL1[:, :K]
        self._turn(dq, cos, sin, roots[:, 0])
        self._turn(dk.add_(dk_more), cos, sin, roots[:, 1])
        torch.add(dv, dv_more, out=roots[:, 2])
        return dqkv

    def _block_backward(self, dout: Tensor, seen: Block) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, p = seen
        (M, H, E, Y, B), U = q.shape, k.shape[3]
        pairs = self.scratch("pairs", M, H, E, Y, U, B)
        torch.mul(dout[:, :, :, :, None], p[:, :, None], out=pairs)
        dv = torch.sum(pairs, 3, out=self.scratch("dv", M, H, E, U, B))
        torch.mul(dout[:, :, :, :, None], v[:, :, :, None], out=pairs)
        ds = torch.sum(pairs, 2, out=self.scratch("ds", M, H, Y, U, B)).mul_(p)
        along = torch.sum(ds, 3, keepdim=True, out=self.scratch("along", M, H, Y, 1, B))
        ds.addcmul_(p, along, value=-1).mul_(E**-0.5)
        torch.mul(ds[:, :, None], k[:, :, :, None], out=pairs)
        dq = torch.sum(pairs, 4, out=self.scratch("dq", M, H, E, Y, B))
        torch.mul(ds[:, :, None], q[:, :, :, :, None], out=pairs)
        dk = torch.sum(pairs, 3, out=self.scratch("dk", M, H, E, U, B))
        return dq, dk, dv

    def _turn(
        self,
        x: Float[Tensor, "M H E L B"],
        cos_eL1: Float[Tensor, "e L 1"],
        sin_eL1: Float[Tensor, "e L 1"],
        out: Float[Tensor, "M H E L B"],
    ) -> Float[Tensor, "M H E L B"]:
        (first, second), (left, right) = x.chunk(2, dim=2), out.chunk(2, dim=2)
        torch.mul(first, cos_eL1, out=left).addcmul_(second, sin_eL1, value=-1)
        torch.mul(second, cos_eL1, out=right).addcmul_(first, sin_eL1)
        return out

    def logprob(
        self, logits_MNV: Float[Tensor, "M N V"], at_MLB: Int[Tensor, "M L B"]
    ) -> tuple[Float[Tensor, "M L B"], Float[Tensor, "M N V"]]:
        logall = torch.log_softmax(logits_MNV, -1, out=self.take(*logits_MNV.shape))
        return logall.flatten(1).gather(1, at_MLB.flatten(1)).view(at_MLB.shape), logall

    def logprob_backward(
        self,
        upstream_MLB: Float[Tensor, "M L B"],
        logall_MNV: Float[Tensor, "M N V"],
        at_MLB: Int[Tensor, "M L B"],
        hot_MBR: Float[Tensor, "M B R"],
        shared: int,
    ) -> Float[Tensor, "M N V"]:
        wanted = self.scratch("wanted", *logall_MNV.shape).zero_()
        wanted.flatten(1).scatter_add_(
            1, at_MLB.flatten(1), upstream_MLB.flatten(1)
        )  # one thread a model: a fixed order
        softmax = torch.exp(logall_MNV, out=self.scratch("softmax", *logall_MNV.shape))
        return wanted.addcmul_(softmax, wanted.sum(-1, keepdim=True), value=-1)
