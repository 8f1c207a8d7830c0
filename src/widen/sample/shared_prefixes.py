"""Draw many samples with one forward pass per distinct prefix.

Samples of one prompt that hold the same tokens so far have the same next-token distribution. They share one row of the model's cache, and
the row splits when their draws differ. Each sample draws with its own uniforms, so sharing does not change the samples.

Shapes: B samples, U distinct prefixes of the samples still going, L positions of a sample, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .chat import StopStrings
from .decoding import Decoding
from .draw import choose
from .kl_guided import guided_temperature
from .processors import apply_steps, pipeline

FEW = 0.125  # share of rows without samples that may stay in the cache: dropping rows copies it


@runtime_checkable
class Prefixes(Protocol):
    """A model that has read U prefixes."""

    logits_UV: Float[Tensor, "U V"]
    """Logits of the token after each prefix, float32 or float64."""

    def step(self, parent_U: Int[Tensor, " U"] | None, token_U: Int[Tensor, " U"]) -> None:
        """Prefix u becomes prefix `parent_U[u]` followed by `token_U[u]`; None keeps the order of the prefixes."""


class Continued(NamedTuple):
    """Finished samples: their tokens and their log-probabilities under the model and under what was sampled from."""

    ids: list[list[int]]
    logq: list[float]
    sampler: list[float]


@torch.inference_mode()
def continue_samples(
    prefixes: Prefixes,
    row_B: Int[Tensor, " B"],
    decoding: Decoding,
    uniform_BL: Float[Tensor, "B L"] | None,
    *,
    length: int,
    ends: Sequence[int] = (),
    unprompted: Prefixes | None = None,
    stops: StopStrings | None = None,
) -> Continued:
    """Draw until every sample has ended or has `length` tokens.

    Args:
      prefixes: the model after the prompts.
      row_B: the row of `prefixes` that each sample continues.
      uniform_BL: one uniform per sample and position; None is greedy.
      ends: tokens that end a sample.
      unprompted: the model after the same prompts without their evidence, for KL guidance.
      stops: texts that end a sample.
    """
    device, samples = prefixes.logits_UV.device, len(row_B)
    tokens_BL = torch.zeros((samples, length), dtype=torch.long, device=device)
    length_B = torch.full((samples,), length, device=device)
    logq_B, sampler_B = (torch.zeros(samples, dtype=torch.float64, device=device) for _ in range(2))
    end = torch.tensor(ends, dtype=torch.long, device=device)
    steps = pipeline(decoding, device=device)
    going = torch.arange(samples, device=device)  # the samples that `row_B` belongs to
    for position in range(length):
        logits_UV = prefixes.logits_UV
        temperature_U = logits_UV.new_full((len(logits_UV),), decoding.temperature)
        if unprompted is not None and decoding.kl_sigma is not None:
            other_UV, sigma = unprompted.logits_UV, decoding.kl_sigma
            temperature_U = guided_temperature(logits_UV, other_UV, temperature=decoding.temperature, sigma=sigma)
        scores_UV = apply_steps(steps, logits_UV, temperature_U) if steps else None
        uniform_B = uniform_BL[going, position] if uniform_BL is not None else None
        token_B, logq, sampler = choose(logits_UV, scores_UV, uniform_B, row_B)
        tokens_BL[going, position] = token_B
        logq_B[going] += logq
        sampler_B[going] += sampler
        if position + 1 == length:
            break
        if ends or stops is not None:
            ended = torch.isin(token_B, end)
            if stops is not None:
                recent = tokens_BL[going, max(0, position + 1 - stops.window) : position + 1]
                ended |= torch.tensor(stops.ended(recent.tolist()), device=device)
            length_B[going[ended]] = position + 1
            going, row_B, token_B = going[~ended], row_B[~ended], token_B[~ended]
            if len(going) == 0:
                break
        parent_U, token_U, row_B = _branches(row_B, token_B, rows=len(logits_UV), vocab=logits_UV.shape[1])
        for model in (prefixes, unprompted):
            if model is not None:
                model.step(parent_U, token_U)
    ids = [tokens[:n] for tokens, n in zip(tokens_BL.tolist(), length_B.tolist(), strict=True)]
    return Continued(ids, logq_B.tolist(), sampler_B.tolist())


def _branches(
    row_B: Int[Tensor, " B"], token_B: Int[Tensor, " B"], *, rows: int, vocab: int
) -> tuple[Int[Tensor, " U"] | None, Int[Tensor, " U"], Int[Tensor, " B"]]:
    """Each distinct (row, token) pair gets a row; returns (parent, token) of every new row, and the new row of each sample.

    The first pair of a row stays there. The others take the rows without samples, then new rows at the end. If too many rows have no
    samples, all rows are numbered anew.
    """
    pairs, pair_B = torch.unique(row_B * vocab + token_B, return_inverse=True)
    parent_P, token_P = pairs // vocab, pairs % vocab
    stays_P = torch.ones_like(parent_P, dtype=torch.bool)
    stays_P[1:] = parent_P[1:] != parent_P[:-1]  # `unique` sorts
    empty_U = torch.ones(rows, dtype=torch.bool, device=row_B.device).index_fill_(0, parent_P, False)
    free, others = empty_U.nonzero()[:, 0], int((~stays_P).sum())
    after = max(rows, rows + others - len(free))
    if len(pairs) < (1 - FEW) * after:
        return parent_P, token_P, pair_B
    place_P = parent_P.clone()
    place_P[~stays_P] = torch.cat([free, torch.arange(rows, after, device=row_B.device)])[:others]
    parent_U, token_U = torch.arange(after, device=row_B.device), token_P.new_zeros(after)
    parent_U[place_P], token_U[place_P] = parent_P, token_P
    return (parent_U if others else None), token_U, place_P[pair_B]
