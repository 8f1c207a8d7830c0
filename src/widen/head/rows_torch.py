"""Row operations on a chunk of logits in plain PyTorch: any device, no kernel to compile. Same functions as `rows_triton`.

Shapes: C rows of the chunk, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .stats import Front, RowStats, real_dtype, target_sums


def pitch(vocabulary: int) -> int:
    """Elements from one row of the buffer to the next."""
    return vocabulary


def scratch_bytes(vocabulary: int, dtype: torch.dtype, softcap: float | None) -> int:
    """Bytes of workspace per row: the logits, log-softmax and softmax, and tanh under a soft cap."""
    real = real_dtype(dtype)
    copies = 1 + (real != dtype) + (softcap is not None)
    return vocabulary * (dtype.itemsize + copies * real.itemsize)


def pick(target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]:
    """How many targets count, and how many of those lie outside the vocabulary. Which they are cannot be told without a wait."""
    keep_N = target_N != ignore_index
    wrong_N = keep_N & ((target_N < 0) | (target_N >= vocabulary))
    return None, torch.stack((keep_N.sum(), wrong_N.sum()))


def _capped(z_CV: Tensor, softcap: float | None) -> tuple[Tensor, Tensor | None]:
    """Logits in float32 or better after the soft cap, and its slope; without a cap they share memory with ``z_CV`` if they can."""
    real_CV = z_CV.to(real_dtype(z_CV.dtype))
    if softcap is None:
        return real_CV, None
    bent_CV = torch.tanh(real_CV / softcap)
    return softcap * bent_CV, bent_CV.square_().neg_().add_(1)


def _at(x_CV: Tensor, target_C: Tensor) -> Tensor:
    return x_CV.gather(1, target_C[:, None])[:, 0]


def normalise(z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None) -> None:
    """Fill ``lse`` and ``logq`` of ``stats``."""
    real_CV, _ = _capped(z_CV, softcap)
    torch.logsumexp(real_CV, 1, out=stats.lse_C)
    torch.sub(_at(real_CV, target_C), stats.lse_C, out=stats.logq_C)


def describe(z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None, residual: bool) -> None:
    """Fill all of ``stats``; the logits are used up, and with ``residual`` become softmax - onehot."""
    real_CV, slope_CV = _capped(z_CV, softcap)
    logp_CV = real_CV.log_softmax(1)
    stats.logq_C.copy_(_at(logp_CV, target_C))
    torch.sub(_at(real_CV, target_C), stats.logq_C, out=stats.lse_C)
    stats.top1_C.copy_(stats.logq_C >= logp_CV.amax(1))
    p_CV = torch.exp(logp_CV, out=real_CV)
    logp_CV.clamp_(min=torch.finfo(logp_CV.dtype).min)  # 0 * -inf is nan, 0 times the lowest number is 0
    torch.sum(logp_CV.mul_(p_CV), 1, out=stats.entropy_C).neg_()
    stats.factor_C.fill_(1)
    if residual:
        _subtract_onehot_(p_CV, target_C)
        if slope_CV is not None:
            p_CV.mul_(slope_CV)
        if p_CV is not z_CV:
            z_CV.copy_(p_CV)


def residual_(z_CV: Tensor, target_C: Tensor, lse_C: Tensor, coefficient_C: Tensor, *, softcap: float | None) -> None:
    """Overwrite the logits with coefficient * (softmax - onehot)."""
    real_CV, slope_CV = _capped(z_CV, softcap)
    p_CV = real_CV.sub_(lse_C[:, None]).exp_()
    _subtract_onehot_(p_CV, target_C)
    if slope_CV is not None:
        p_CV.mul_(slope_CV)
    torch.mul(p_CV, coefficient_C[:, None], out=z_CV)


def _subtract_onehot_(p_CV: Tensor, target_C: Tensor) -> None:
    row_C = torch.arange(len(p_CV), device=p_CV.device)
    p_CV[row_C, target_C] -= 1  # index_put_ with distinct places: reproducible, unlike scatter_add_ on CUDA


def front(w_C: Tensor) -> Front:
    """How the rows of weight other than 0 come to the front, with as few moves as there can be."""
    place_C, active_C = torch.arange(len(w_C), device=w_C.device), w_C != 0
    count = active_C.sum()
    hole_H = ((place_C < count) & ~active_C).nonzero()[:, 0]
    place_C[hole_H] = ((place_C >= count) & active_C).nonzero()[:, 0]
    return Front(place_C, hole_H, torch.stack((count, count.new_full((), len(hole_H)))))


def move_(z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None:
    """``z[hole] = z[order[hole]]``."""
    z_CV[hole_H] = z_CV[order_C[hole_H]]


def scale(coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """``out = x`` with each row times its coefficient, for every pair (x, out); ``out`` may be ``x``."""
    for x_CD, out in pairs:
        torch.mul(x_CD, coefficient_C[:, None], out=out)


def multiply_(factor: Tensor, *tensors: Tensor) -> None:
    """``x *= factor`` for each; a factor of 1 costs nothing but, off the CPU, the wait for its value."""
    # A Python number is not rounded to x's dtype on the way, a tensor would be: bfloat16 turns 1/3 into 0.334.
    value = factor.item()
    if value != 1:
        for x in tensors:
            x.mul_(value)


def sums(each_kT: Tensor) -> Tensor:
    """`TargetSums` of rows that all count, from log q, weight, entropy and top-1 of each."""
    return target_sums(*each_kT, tokens=each_kT.shape[1])
