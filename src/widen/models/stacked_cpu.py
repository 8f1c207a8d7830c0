"""The pieces of :mod:`widen.models.stacked_ops` for a CPU: the same arithmetic, written into buffers that are kept from step to step.

A fresh tensor of a few megabytes costs more in page faults than the arithmetic that fills it (a product of two [4096, 128] tensors:
.9 ms fresh, .03 ms into a kept buffer).

Shapes: as in `stacked_ops`.
"""

from __future__ import annotations

import math
import threading

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .stacked_cpu_attention import Attention
from .stacked_ops import Ops

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
        self.memory: dict[int | str, Tensor] = {}
        self.views: dict[tuple[int | str, tuple[int, ...]], Tensor] = {}
        self.layers: dict[tuple[int, ...], Attention] = {}
        self.count = 0

    def start(self) -> None:
        self.count = 0

    def take(self, *shape: int) -> Tensor:
        """A pass makes the same calls in the same order, so the n-th call of each pass gets the same memory."""
        self.count += 1
        return self._view(self.count, shape)

    def scratch(self, name: str, *shape: int) -> Tensor:
        return self._view(name, shape)

    def _view(self, key: int | str, shape: tuple[int, ...]) -> Tensor:
        """The same tensor for the same key and shape. Where a batch has more rows than any before, the key gets more memory."""
        found = self.views.get((key, shape))
        if found is None:
            size, flat = math.prod(shape), self.memory.get(key)
            if flat is None or flat.numel() < size:
                self._forget(key)
                flat = self.memory[key] = torch.empty(size + size // 8, dtype=self.dtype)
            found = self.views[key, shape] = flat[:size].view(shape)
        return found

    def _forget(self, key: int | str) -> None:
        """Drop what was built on memory that is about to be replaced."""
        self.views = {at: view for at, view in self.views.items() if at[0] != key}
        self.layers.clear()

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
        along = torch.mean(product, -1, keepdim=True, out=self.scratch("along", M, N, 1))
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
    ) -> Attention:
        key = (self.count, *qkv_MCN.shape, index_MB.shape[1], heads, shared, cos_eL1.shape[1])
        layer, count = self.layers.get(key), self.count
        if layer is None:
            layer = Attention(qkv_MCN, cos_eL1, sin_eL1, index_MB.shape[1], heads, shared, self.take, self.scratch)
            self.layers[key] = layer
        self.count = count + Attention.TAKES
        return layer.forward(index_MB)

    def attend_backward(
        self,
        dout_MDN: Float[Tensor, "M D N"],
        seen: Attention,
        cos_eL1: Float[Tensor, "e L 1"],
        sin_eL1: Float[Tensor, "e L 1"],
        hot_MBR: Float[Tensor, "M B R"],
    ) -> Float[Tensor, "M C N"]:
        return seen.backward(dout_MDN, hot_MBR)

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
