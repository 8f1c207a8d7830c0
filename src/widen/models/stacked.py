"""M small Llamas of one shape as batched products: forward and backward written out, no autograd.

All parameters lie in one buffer [M, P], all gradients in another, so that an optimizer step is a handful of operations for all
models. Each model's numbers are those that :class:`widen.models.TinyLlama` would give alone, up to rounding.

Shapes: M models, B sequences, T = 1 + L tokens, N rows (:mod:`widen.models.prefix`), D hidden, C = 3 D, F feed-forward, G = 2 F,
V vocabulary, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .prefix import SharedBatch
from .stacked_ops import Attended, Ops
from .tiny_llama import LlamaShape, TinyLlama, rotary

__all__ = ["StackedLlama", "Trace"]


class _Layer(NamedTuple):
    """Views of one layer's parameters, or of their gradients."""

    attention_norm: Float[Tensor, "M D"]
    qkv: Float[Tensor, "M C D"]
    out: Float[Tensor, "M D D"]
    mlp_norm: Float[Tensor, "M D"]
    gate_up: Float[Tensor, "M G D"]
    down: Float[Tensor, "M D F"]


class _Views(NamedTuple):
    """The buffer [M, P] seen as the parameters that it holds."""

    embed: Float[Tensor, "M V D"]
    layers: tuple[_Layer, ...]
    norm: Float[Tensor, "M D"]
    head: Float[Tensor, "M V D"]


class _Saved(NamedTuple):
    """What one layer's backward needs."""

    n1: Float[Tensor, "M N D"]
    scale1: Float[Tensor, "M N 1"]
    attended: Attended
    n2: Float[Tensor, "M N D"]
    scale2: Float[Tensor, "M N 1"]
    h: Float[Tensor, "M N F"]
    kept: tuple[Tensor, ...]


class Trace(NamedTuple):
    """One forward pass: log Q of the targets, and what the backward needs."""

    logq_MLB: Float[Tensor, "M L B"]
    logall_MNV: Float[Tensor, "M N V"]
    inputs_MN: Int[Tensor, "M N"]
    at_MLB: Int[Tensor, "M L B"]
    hot_MBR: Float[Tensor, "M B R"]
    layers: tuple[_Saved, ...]
    n: Float[Tensor, "M N D"]
    scale: Float[Tensor, "M N 1"]


class StackedLlama:
    """M models of one shape.

    Args:
      flat_MP: the parameters; kept, and changed in place by whoever trains.
      grad_MP: where `backward` writes; made here if not given.
      shape: the sizes.
      ops: the token-wise pieces; `stacked_cpu.in_place(dtype)` for a CPU, `stacked_ops.compiled()` for a GPU.
      split: into how many parts the sum over tokens of a weight gradient is cut. On a GPU the product [F, N] x [N, D] of a small
        model has too few output tiles to fill the device; its parts fill it. 1 on a CPU.
    """

    def __init__(
        self,
        flat_MP: Float[Tensor, "M P"],
        grad_MP: Float[Tensor, "M P"] | None = None,
        *,
        shape: LlamaShape,
        ops: Ops | None = None,
        split: int = 1,
    ) -> None:
        if flat_MP.ndim != 2 or flat_MP.shape[1] != shape.num_parameters:
            raise ValueError(f"flat_MP has shape {tuple(flat_MP.shape)}: need [M, {shape.num_parameters}]")
        self.shape, self.ops, self.split = shape, ops or Ops(), split
        self.flat_MP, self.grad_MP = flat_MP, torch.zeros_like(flat_MP) if grad_MP is None else grad_MP
        self.weights, self.grads = _views(flat_MP, shape), _views(self.grad_MP, shape)
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, models: Sequence[TinyLlama], **settings: Any) -> StackedLlama:
        """The models' parameters, copied side by side."""
        return cls(torch.stack([model.flat() for model in models]), shape=models[0].shape, **settings)

    def _angles_of(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [E/2, L, 1], kept per length."""
        if length not in self._angles:
            cos, sin = rotary(self.shape, length, device=self.flat_MP.device, dtype=self.flat_MP.dtype)
            self._angles[length] = cos.t()[:, :, None].contiguous(), sin.t()[:, :, None].contiguous()
        return self._angles[length]

    def forward(self, batch: SharedBatch) -> Trace:
        """log Q of tokens 1..L of every sequence, each from the tokens before it."""
        ops, weights, eps = self.ops, self.weights, self.shape.norm_eps
        D, G, V = self.shape.dim, 2 * self.shape.hidden, self.shape.vocab
        cos, sin = self._angles_of(batch.tokens_MTB.shape[1] - 1)
        inputs = batch.inputs_MN()
        M, N = inputs.shape
        ops.start()
        x = torch.gather(weights.embed, 1, inputs[..., None].expand(-1, -1, D), out=ops.take(M, N, D))
        saved = []
        for layer in weights.layers:
            n1, scale1 = ops.rms(x, eps)
            qkv = torch.bmm(layer.qkv * layer.attention_norm[:, None], n1.mT, out=ops.take(M, 3 * D, N))
            attended = ops.attend(qkv, cos, sin, batch.index_MB, self.shape.heads, batch.shared)
            x = torch.baddbmm(x, attended.out.mT, layer.out.mT, out=ops.take(M, N, D))
            n2, scale2 = ops.rms(x, eps)
            gate_up = torch.bmm(n2, (layer.gate_up * layer.mlp_norm[:, None]).mT, out=ops.take(M, N, G))
            h, kept = ops.swiglu(gate_up)
            x = torch.baddbmm(x, h, layer.down.mT, out=ops.take(M, N, D))
            saved.append(_Saved(n1, scale1, attended, n2, scale2, h, kept))
        n, scale = ops.rms(x, eps)
        logits = torch.bmm(n, (weights.head * weights.norm[:, None]).mT, out=ops.take(M, N, V))
        at = batch.rows_MLB() * V + batch.tokens_MTB[:, 1:]
        logq, logall = ops.logprob(logits, at)
        return Trace(logq, logall, inputs, at, batch.hot_MBR(x.dtype), tuple(saved), n, scale)

    def backward(self, trace: Trace, upstream_MLB: Float[Tensor, "M L B"]) -> None:
        """Write the gradient of ``sum(upstream * logq)`` into `grad_MP`."""
        ops, weights, grads = self.ops, self.weights, self.grads
        M, N, D = trace.n.shape
        shared = trace.layers[0].attended.roots.q.shape[3]
        angles = self._angles_of(upstream_MLB.shape[1])
        dlogits = ops.logprob_backward(upstream_MLB, trace.logall_MNV, trace.at_MLB, trace.hot_MBR, shared)
        folded = weights.head * weights.norm[:, None]
        _unfold(self._sum(dlogits, trace.n), weights.head, weights.norm, grads.head, grads.norm)
        dn = torch.bmm(dlogits, folded, out=ops.scratch("dn", M, N, D))
        zero = torch.zeros(M, N, D, dtype=dn.dtype, device=dn.device)
        dx = ops.rms_backward(dn, trace.n, trace.scale, zero)
        for layer, grad, saved in zip(weights.layers[::-1], grads.layers[::-1], trace.layers[::-1], strict=True):
            dx = self._mlp_backward(dx, layer, grad, saved)
            dx = self._attention_backward(dx, layer, grad, saved, angles, trace.hot_MBR)
        vocab = torch.arange(self.shape.vocab, device=dx.device)
        grads.embed.copy_(self._sum((trace.inputs_MN[..., None] == vocab).to(dx.dtype), dx))

    def _mlp_backward(self, dx: Float[Tensor, "M N D"], layer: _Layer, grad: _Layer, saved: _Saved) -> Tensor:
        """Back through the feed-forward half of a layer: its gradients, and that of the stream before it."""
        ops, (M, N, D) = self.ops, dx.shape
        grad.down.copy_(self._sum(dx, saved.h))
        dh = torch.bmm(dx, layer.down, out=ops.scratch("dh", M, N, self.shape.hidden))
        dgate_up = ops.swiglu_backward(dh, saved.kept)
        _unfold(self._sum(dgate_up, saved.n2), layer.gate_up, layer.mlp_norm, grad.gate_up, grad.mlp_norm)
        folded = layer.gate_up * layer.mlp_norm[:, None]
        dn = torch.bmm(dgate_up, folded, out=ops.scratch("dn", M, N, D))
        return ops.rms_backward(dn, saved.n2, saved.scale2, dx)  # type: ignore[no-any-return]

    def _attention_backward(
        self,
        dx: Float[Tensor, "M N D"],
        layer: _Layer,
        grad: _Layer,
        saved: _Saved,
        angles: tuple[Tensor, Tensor],
        hot_MBR: Float[Tensor, "M B R"],
    ) -> Tensor:
        """The same through the attention half."""
        ops, (M, N, D) = self.ops, dx.shape
        grad.out.copy_(torch.bmm(dx.mT, saved.attended.out.mT))
        dout = torch.bmm(layer.out.mT, dx.mT, out=ops.scratch("dout", M, D, N))
        dqkv = ops.attend_backward(dout, saved.attended, *angles, hot_MBR)
        _unfold(torch.bmm(dqkv, saved.n1), layer.qkv, layer.attention_norm, grad.qkv, grad.attention_norm)
        folded = layer.qkv * layer.attention_norm[:, None]
        dn = torch.bmm(dqkv.mT, folded, out=ops.scratch("dn", M, N, D))
        return ops.rms_backward(dn, saved.n1, saved.scale1, dx)  # type: ignore[no-any-return]

    def _sum(self, left_MNF: Float[Tensor, "M N F"], right_MND: Float[Tensor, "M N D"]) -> Float[Tensor, "M F D"]:
        """``left^T right``: a sum over tokens, in `split` parts."""
        M, N, _ = left_MNF.shape
        if self.split == 1 or N % self.split:
            return torch.bmm(left_MNF.mT, right_MND)
        left, right = (t.reshape(M * self.split, N // self.split, -1) for t in (left_MNF, right_MND))
        return torch.bmm(left.mT, right).view(M, self.split, left.shape[-1], right.shape[-1]).sum(1)


def _unfold(
    dfolded: Float[Tensor, "M F D"],
    matrix: Float[Tensor, "M F D"],
    gain: Float[Tensor, "M D"],
    dmatrix: Float[Tensor, "M F D"],
    dgain: Float[Tensor, "M D"],
) -> None:
    """From the gradient of ``matrix * gain`` to those of the two."""
    torch.mul(dfolded, gain[:, None], out=dmatrix)
    dgain.copy_((dfolded * matrix).sum(1))


def _views(flat_MP: Float[Tensor, "M P"], shape: LlamaShape) -> _Views:
    """The buffer's parameters by name, without copying."""
    found, at = {}, 0
    for name, size in shape.parameter_shapes().items():
        count = math.prod(size)
        found[name] = flat_MP[:, at : at + count].view(flat_MP.shape[0], *size)
        at += count
    layers = tuple(_Layer(*(found[f"layers.{i}.{field}"] for field in _Layer._fields)) for i in range(shape.layers))
    return _Views(found["embed"], layers, found["norm"], found["head"])
