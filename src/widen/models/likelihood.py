"""Exact log-likelihoods under any decoding, on any device: the torch twin of :func:`widen.theory.exact_log_likelihood`.

The model runs once over every sequence; each decoding (:mod:`widen.theory.steps`) then re-normalises the same logits. Probabilities
and sums are float64, whatever the dtype of the model.

Shapes: S sequences, L target tokens, V vocabulary, T decodings, B sequences of a chunk, N scored tokens, U different prefixes before them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from widen.theory.steps import Decodings, Steps, as_decodings, as_steps

from .tiny_llama import TinyLlama

SLICE = 1 << 24
"""Logits converted to float64 at a time: 128 MB, and a few times that while a decoding is applied."""


def log_likelihood(model: TinyLlama, tokens: NDArray[np.int64], decodings: Decodings) -> NDArray[np.float64]:
    """`decoded_log_likelihood` of a small Llama, run in float64.

    Examples:
      >>> from widen.data.mulmod import MulMod
      >>> logq = log_likelihood(TinyLlama(), MulMod(modulus=7, high=9, under_representation=None).support(), [1.0, float("inf")])
      >>> logq.shape, round(float(logq[1, 0] / np.log(13)), 6)
      ((2, 81), -5.0)
    """
    return decoded_log_likelihood(_in_float64(model).logits, tokens, decodings, device=model.head.device)


@torch.no_grad()
def next_logits(model: TinyLlama, tokens: NDArray[np.int64]) -> Float[Tensor, "S L V"]:
    """Teacher-forced logits of a small Llama in float64, on its device, for tokens [S, 1 + L]: row l predicts token l + 1."""
    net, ids = _in_float64(model), torch.from_numpy(np.ascontiguousarray(tokens[:, :-1])).to(model.head.device)
    return torch.cat([net.logits(part) for part in ids.split(1024)])


def _in_float64(model: TinyLlama) -> TinyLlama:
    return TinyLlama(model.shape).to(model.head.device, torch.float64).load_flat(model.flat().double())


@torch.no_grad()
def decoded_log_likelihood(
    logits: Callable[[Tensor], Tensor],
    tokens: NDArray[np.int64],
    decodings: Decodings,
    *,
    mask: NDArray[np.bool_] | None = None,
    chunk: int = 1024,
    device: torch.device | str = "cpu",
) -> NDArray[np.float64]:
    """log Q(x) of every sequence under every decoding, [T..., S]; -inf where a decoding drops a token of x.

    Args:
      logits: maps token ids [B, L] to next-token logits [B, L, V]: ``TinyLlama.logits``, or ``lambda ids: model(ids).logits``.
      tokens: [S, 1 + L], the first token is context only (BOS).
      decodings: as in :func:`widen.theory.exact_log_likelihood`.
      mask: True where a token is scored, [S, L], for tokens 1..L; False for prompts and padding. None scores all.
      chunk: sequences in one forward pass.
      device: where the model is.

    Examples:
      >>> fair = lambda ids: torch.zeros(*ids.shape, 4)
      >>> decoded_log_likelihood(fair, np.array([[0, 1, 3]]), [1.0, (("top_p", 0.5),)]).round(4).tolist()
      [[-2.7726], [-inf]]
    """
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens has shape {tokens.shape}: must be [S, 1 + L] with at least 2 tokens per sequence")
    if mask is not None and np.shape(mask) != tokens[:, 1:].shape:
        raise ValueError(
            f"mask has shape {np.shape(mask)}: must be {tokens[:, 1:].shape}, one entry for each token after the first"
        )
    if chunk < 1:
        raise ValueError(f"chunk={chunk}: must be at least 1")
    found = []
    for start in range(0, len(tokens), chunk):
        part = slice(start, start + chunk)
        ids_BL = torch.from_numpy(np.ascontiguousarray(tokens[part, :-1])).to(device)
        on_BL = None if mask is None else mask[part]
        found.append(log_likelihood_from_logits(logits(ids_BL), tokens[part], decodings, mask=on_BL))
    return np.concatenate(found, axis=-1)


@torch.no_grad()
def log_likelihood_from_logits(
    logits_SLV: Float[Tensor, "S L V"],
    tokens: NDArray[np.int64],
    decodings: Decodings,
    *,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """`decoded_log_likelihood` from logits (`next_logits`), on their device. Sequences with the same prefix share the logits after it."""
    device = logits_SLV.device
    if tokens[:, 1:].shape != logits_SLV.shape[:2]:
        raise ValueError(f"tokens has shape {tokens.shape}: logits of shape {tuple(logits_SLV.shape)} need [S, 1 + L]")
    shape, all_steps = as_decodings(decodings)
    on_SL = np.ones(tokens[:, 1:].shape, bool) if mask is None else np.asarray(mask, bool)
    if on_SL.shape != tokens[:, 1:].shape:
        raise ValueError(
            f"mask has shape {on_SL.shape}: must be {tokens[:, 1:].shape}, one entry for each token after the first"
        )
    scored_N, vocab = tokens[:, 1:][on_SL], logits_SLV.shape[-1]
    if scored_N.size and not (scored_N.min() >= 0 and scored_N.max() < vocab):
        raise ValueError(f"tokens {scored_N.min()} to {scored_N.max()} are scored: must be in 0..{vocab - 1}")
    prefix_N, (of_U, at_U) = _prefixes(tokens, on_SL)
    of_N = torch.from_numpy(on_SL.nonzero()[0]).to(device)
    target_N = torch.from_numpy(scored_N).to(device)
    sums_TS = torch.zeros(len(all_steps), len(tokens), dtype=torch.float64, device=device)
    step = max(1, SLICE // vocab)
    for start in range(0, len(of_U), step):
        here_N = (prefix_N >= start) & (prefix_N < start + step)
        here = torch.from_numpy(here_N.nonzero()[0]).to(device)
        x_N, s_N, u_N = target_N[here], of_N[here], torch.from_numpy(prefix_N[here_N] - start).to(device)
        lead_UV = logits_SLV[of_U[start : start + step], at_U[start : start + step]].double()
        top_U1 = lead_UV.amax(-1, keepdim=True)
        if not top_U1.isfinite().all():
            raise ValueError("logits: each scored row must be free of nan and inf and have a finite entry")
        lead_UV = lead_UV - top_U1
        for number, steps in enumerate(all_steps):
            if (t := _heat(steps)) is not None:
                total_U = (lead_UV / t).exp_().sum(-1)  # at least 1: the largest lead is 0
                sums_TS[number].index_add_(0, s_N, lead_UV[u_N, x_N] / t - total_U.log()[u_N])
        for start_UV, steps_left in _starts(lead_UV, all_steps):
            start_UK, place_N, dropped_N = _compact(start_UV, u_N, x_N)
            for number, left in steps_left.items():
                decoded_UK = _decoded(start_UK, left)
                hit_N = decoded_UK[u_N, place_N].masked_fill(dropped_N, -torch.inf)
                sums_TS[number].index_add_(0, s_N, hit_N - decoded_UK.logsumexp(-1)[u_N])
    return sums_TS.cpu().numpy().reshape(*shape, len(tokens))


def _prefixes(
    tokens: NDArray[np.int64], on_SL: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], ...]]:
    """The number of the prefix before each scored token, [N], and where each prefix first occurs: sequence and position, [U]."""
    same_S, numbers_SL = np.zeros(len(tokens), np.int64), np.empty(on_SL.shape, np.int64)
    for place in range(on_SL.shape[1]):
        same_S = np.unique(np.stack([same_S, tokens[:, place]], 1), axis=0, return_inverse=True)[1].reshape(-1)
        numbers_SL[:, place] = same_S + place * len(tokens)
    _, first_U, prefix_N = np.unique(numbers_SL[on_SL], return_index=True, return_inverse=True)
    return prefix_N.reshape(-1), tuple(index[first_U] for index in on_SL.nonzero())


def _heat(steps: Steps) -> float | None:
    """The temperature of a decoding that does nothing else; None for other decodings.

    >>> _heat((("temperature", 2.0),)), _heat(()), _heat((("min_p", 0.1),)), _heat((("temperature", 0.0),))
    (2.0, 1.0, None, None)
    """
    t = math.prod((value if name == "temperature" else 0.0 for name, value in steps), start=1.0)
    return t if 0 < t < math.inf else None


def _lowest(steps: Steps) -> float:
    """The lowest logit below the largest that a token can have and still count: a min-p that comes before any other filter drops the rest.

    >>> round(_lowest((("temperature", 2.0), ("min_p", 0.1))), 3), _lowest((("top_p", 0.9), ("min_p", 0.1)))
    (-4.605, -inf)
    """
    t = 1.0
    for name, value in steps:
        if name == "min_p":
            return t * math.log(value) * (1 + 1e-9) - 1e-9  # by more than rounding
        if name != "temperature" or not 0 < value < math.inf:
            break
        t *= value
    return -math.inf


def _starts(lead_UV: Tensor, all_steps: Sequence[Steps]) -> Iterator[tuple[Tensor, dict[int, Steps]]]:
    """Logits that several decodings begin with, and the steps that are left of each. Decodings by `_heat` are left out."""
    others = {number: steps for number, steps in enumerate(all_steps) if _heat(steps) is None}
    bounded = {number: steps for number, steps in others.items() if _lowest(steps) > -math.inf}
    if bounded:
        lowest = min(map(_lowest, bounded.values()))
        yield lead_UV.masked_fill(lead_UV < lowest, -torch.inf), bounded
    by_first: dict[Steps, dict[int, Steps]] = {}
    for number, steps in others.items():
        if number not in bounded:
            by_first.setdefault(steps[:1], {})[number] = steps[1:]
    for first, left in by_first.items():
        yield _decoded(lead_UV, first), left


def _compact(decoded_UV: Tensor, u_N: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [U, K] without the columns that a filter dropped, the targets' columns, and which targets were dropped."""
    kept = int((decoded_UV > -torch.inf).sum(-1).amax())
    if 4 * kept > decoded_UV.shape[-1]:
        return decoded_UV, target_N, torch.zeros_like(target_N, dtype=torch.bool)
    column_UK = decoded_UV.topk(kept).indices.sort(-1).values  # in order, because ties are broken by the order
    place_UV = torch.full_like(decoded_UV, -1, dtype=torch.int64)
    place_UV.scatter_(1, column_UK, torch.arange(kept, device=place_UV.device).expand_as(column_UK))
    place_N = place_UV[u_N, target_N]
    return decoded_UV.gather(1, column_UK), place_N.clamp(min=0), place_N < 0


def decoded_log_probabilities(logits_NV: Float[Tensor, "N V"], decoding: float | int | Steps) -> Float[Tensor, "N V"]:
    """Log-probabilities that a decoding samples from, in float64; -inf for tokens that it drops."""
    lead_NV = logits_NV.double()
    return _decoded(lead_NV - lead_NV.amax(-1, keepdim=True), as_steps(decoding)).log_softmax(-1)


def _decoded(lead_NV: Float[Tensor, "N V"], steps: Steps) -> Float[Tensor, "N V"]:
    """Logits after the steps, minus the largest of each row."""
    for name, value in steps:
        if name != "temperature":
            lead_NV = lead_NV.masked_fill(_dropped(lead_NV, name, value), -torch.inf)
        elif value == 0:
            lead_NV = torch.where(lead_NV == 0, 0.0, -torch.inf).double()
        elif math.isinf(value):
            lead_NV = torch.where(lead_NV > -torch.inf, 0.0, -torch.inf).double()
        else:
            lead_NV = lead_NV / value
    return lead_NV


def _dropped(lead_NV: Float[Tensor, "N V"], name: str, value: float) -> Tensor:
    if name == "top_k":
        return lead_NV < lead_NV.topk(min(int(value), lead_NV.shape[-1])).values[:, -1:]
    if name == "min_p":
        return lead_NV.exp() < value
    if name == "top_n_sigma":
        left = lead_NV > -torch.inf
        count = left.sum(-1, keepdim=True)
        mean = lead_NV.masked_fill(~left, 0.0).sum(-1, keepdim=True) / count
        spread = (lead_NV - mean).masked_fill(~left, 0.0)
        return lead_NV < -value * (spread.square().sum(-1, keepdim=True) / count).sqrt()
    if name == "epsilon":
        return (lead_NV.softmax(-1) < value) & (lead_NV < 0)
    # top_p keeps a token only if the tokens up to it sum to more than 1 - value. Up to a token of probability q they sum to at most V q.
    # So tokens of at most (1 - value) / V are dropped, and only the others are sorted.
    q_NV = lead_NV.softmax(-1)
    least = (
        (1 - value) / q_NV.shape[-1] * (1 - 1e-12)
    )  # less by more than rounding: with equal q and a tiny value, all count
    most = int((q_NV > least).sum(-1).amax())
    column_NK = q_NV.topk(most).indices.sort(-1).values  # in order, because ties are broken by the order
    order_NK = lead_NV.gather(1, column_NK).sort(dim=-1, stable=True).indices
    column_NK = column_NK.gather(1, order_NK)
    rest_N1 = q_NV.scatter(1, column_NK, 0.0).sum(-1, keepdim=True)
    dropped_NK = rest_N1 + q_NV.gather(1, column_NK).cumsum(-1) <= 1 - value
    dropped_NK[:, -1] = False
    return torch.ones_like(q_NV, dtype=torch.bool).scatter_(1, column_NK, dropped_NK)
