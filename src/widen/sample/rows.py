"""Token after token until every row has ended: choose, record, drop the rows that are done, step.

Shapes: B rows of the batch, L positions of a sample, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .decoding import Settings
from .draw import Token, choose
from .kl_guided import guided_temperature
from .processors import apply_steps, pipeline
from .stream import Stream

__all__ = ["Continued", "continue_rows"]

SHRINK = 0.875
"""The batch is cut when fewer than this share of its rows go on. A cut copies the cache of the others once: about the cost of a step."""

SHRINK_CAPTURED = 0.7
"""The same where steps run as a CUDA graph: a cut also captures a new one, about the cost of four steps."""

ASK_EVERY = {"cuda": 8}
"""Steps between two questions whether rows have ended: asking a GPU makes it wait for the answer."""


class Continued(NamedTuple):
    """All rows of a batch, ended; on the CPU."""

    tokens_BL: Int[Tensor, "B L"]
    length_B: Int[Tensor, " B"]
    logq_B: Float[Tensor, " B"]
    sampler_B: Float[Tensor, " B"]


class _Record:
    """What has been drawn so far. Its rows are those of the whole batch; `row` says which of them still go on."""

    def __init__(self, rows: int, length: int, ends: tuple[int, ...], device: torch.device) -> None:
        self.tokens = torch.zeros((rows, length), dtype=torch.long, device=device)
        self.length = torch.full((rows,), length, device=device)
        self.logq, self.sampler = (torch.zeros(rows, dtype=torch.float64, device=device) for _ in range(2))
        self.row = torch.arange(rows, device=device)
        self.going: Bool[Tensor, " b"] = torch.ones(rows, dtype=torch.bool, device=device)
        self.end = torch.tensor(ends, dtype=torch.long, device=device)

    def add(self, chosen: Token, position: int) -> None:
        """One token a row; rows that have ended but were not cut yet add nothing."""
        self.tokens[self.row, position] = chosen.token_B
        self.logq[self.row] += torch.where(self.going, chosen.logq_B, 0.0)
        self.sampler[self.row] += torch.where(self.going, chosen.sampler_B, 0.0)
        if len(self.end) == 0:
            return
        ended = self.going & torch.isin(chosen.token_B, self.end)
        self.length[self.row] = torch.where(ended, position + 1, self.length[self.row])
        self.going = self.going & ~ended

    def keep(self, rows: Int[Tensor, " b"]) -> None:
        """Only these rows of the present batch go on."""
        self.row, self.going = self.row[rows], self.going[rows]

    def done(self) -> Continued:
        return Continued(self.tokens.cpu(), self.length.cpu(), self.logq.cpu(), self.sampler.cpu())


@torch.inference_mode()
def continue_rows(
    first: Stream,
    second: Stream | None,
    settings: Settings,
    uniform_BL: Float[Tensor, "B L"] | None,
    *,
    ends: tuple[int, ...],
) -> Continued:
    """Draw until every row has ended or is full.

    Args:
      first: the rows, with their prompts read.
      second: the same rows without the prompt, for KL guidance.
      uniform_BL: one uniform a row and position; None is greedy.
      ends: tokens that end a row.
    """
    device, length = first.logits_BV.device, settings.max_tokens
    record = _Record(len(first.logits_BV), length, ends, device)
    streams = [stream for stream in (first, second) if stream is not None]
    steps = pipeline(settings.decoding, device=device)
    every = ASK_EVERY.get(device.type, 1)
    for position in range(length):
        scores = apply_steps(steps, first.logits_BV, _temperature(first, second, settings)) if steps else None
        uniform_B = uniform_BL[record.row, position] if uniform_BL is not None else None
        chosen = choose(first.logits_BV, scores, uniform_B)
        record.add(chosen, position)
        token_B = chosen.token_B
        if position + 1 == length:
            break
        share = SHRINK_CAPTURED if first.captured else SHRINK
        if (position + 1) % every == 0 and (going := int(record.going.sum())) <= share * len(record.row):
            if going == 0:
                break
            rows = record.going.nonzero()[:, 0]
            record.keep(rows)
            token_B = token_B[rows]
            for stream in streams:
                stream.select(rows)
        for stream in streams:
            stream.step(token_B)
    return record.done()


def _temperature(first: Stream, second: Stream | None, settings: Settings) -> Float[Tensor, " b"]:
    """One temperature a row: T, or what the two streams make of it."""
    decoding, logits = settings.decoding, first.logits_BV
    if second is None or decoding.kl_sigma is None:
        return logits.new_full((len(logits),), decoding.temperature)
    return guided_temperature(logits, second.logits_BV, temperature=decoding.temperature, sigma=decoding.kl_sigma)
