"""A loss in training: its state, its weights, and what the micro-batches and ranks of one optimizer step add up to.

Every trainer uses it the same way: the plain loop (`step.py`), many small models at once (`stacked.py`), and the Hugging Face
hosts, which own forward, backward and optimizer themselves.

    loss = objective.through_head(...)  or  w = objective.weigh(...)      for each micro-batch
    objective.add(...)                                                    for each micro-batch
    objective.finish()                                                    when all gradients of the step are in, before the optimizer

Shapes: B rows, C columns, N = B C places, D hidden, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.rows import COUNTED, Rows, needs_of
from widen.data.targets import IGNORE, LOSS_WEIGHTS, Sequences
from widen.head import HeadLoss, HostCopy, TokenLocalWeight, weighted_linear_nll, weighted_logit_nll
from widen.losses import Column, Product, State, Weight, fitted

from . import distributed
from .figures import Figures, concentration, staleness, starvation, threshold
from .guard import refuse_non_finite

SCALES = ("raw", "mean_one")
"""Weights as the loss gives them, or divided by the mean weight of the previous optimizer step."""

_NO_SCORES = torch.empty(0, 0)
_FLOAT32_MAX = torch.finfo(torch.float32).max


class MicroBatch(NamedTuple):
    """What the step keeps of one micro-batch."""

    sums: HostCopy
    """The head's sums over targets, requested when they were launched and read when the step ends."""
    divided_by: float
    """What the loss was divided by."""
    number: HostCopy | None
    """Sequences with a target; None for a loss that does not look at positions."""
    loss: Tensor
    logq_N: Tensor
    w_N: Tensor
    sequences: Sequences
    tokens_BC: Tensor


class Objective:
    """A loss, its state, the scale of its weights, and the micro-batches of the current step.

    Args:
      weight: the loss.
      weight_scale: ``raw``, or ``mean_one``, which divides every weight by the mean weight of the *previous* optimizer step over all
        micro-batches and ranks. One number holds for the whole step, so accumulation and ranks change nothing. The first step divides
        by 1.
    """

    def __init__(self, weight: Weight, *, weight_scale: str = "raw") -> None:
        if weight_scale not in SCALES:
            raise ValueError(f"weight_scale={weight_scale!r}; legal: {' or '.join(map(repr, SCALES))}")
        self.asked, self.weight_scale = weight, weight_scale
        self.reset()

    def reset(self) -> None:
        """Return to the state before the first step, with the loss as it was given."""
        self.weight = self.asked
        self.state: State = self.weight.init()
        self.mean_weight = 1.0
        self.pending: list[MicroBatch] = []
        self._data_weighs = False
        self._said: set[str] = set()

    def fit(self, sequences: int) -> None:
        """Choose every window that was left open for a run over so many sequences. Call it before the first step."""
        self.weight = fitted(self.asked, sequences)
        self.state = self.weight.init()

    @property
    def divisor(self) -> float:
        """What the weights of this step are divided by."""
        return self.mean_weight if self.weight_scale == "mean_one" else 1.0

    # ---- one micro-batch

    def through_head(
        self,
        hidden_ND: Float[Tensor, "N D"],
        head_VD: Float[Tensor, "V D"],
        sequences: Sequences,
        *,
        num_tokens: float,
        bias: Tensor | None = None,
        softcap: float | None = None,
    ) -> HeadLoss:
        """Hidden states to the weighted loss, without the logits; ``num_tokens`` counts the targets of the whole step."""
        head = partial(weighted_linear_nll, hidden_ND, head_VD, bias=bias, softcap=softcap)
        return self._through(head, sequences, num_tokens)

    def through_logits(
        self, logits_NV: Float[Tensor, "N V"], sequences: Sequences, *, num_tokens: float | Tensor
    ) -> HeadLoss:
        """As `through_head`, for a trainer that has computed all logits already."""
        return self._through(partial(weighted_logit_nll, logits_NV), sequences, num_tokens)

    def _through(self, head: Callable[..., HeadLoss], sequences: Sequences, num_tokens: float | Tensor) -> HeadLoss:
        now = self.weight.now(self.state)
        if not now.token_local:
            return _one_pass(head, sequences, _WholeSequences(self, sequences, now), num_tokens)
        if LOSS_WEIGHTS in sequences.columns:
            now = Product(now, Column(LOSS_WEIGHTS))
        out = _one_pass(head, sequences, now, num_tokens)
        if self.weight.score_columns:  # during its warm-up a Trunc already fills its window
            self.weigh(rows_of(out), sequences)
        return out

    def weigh(self, rows: Rows, sequences: Sequences) -> Float[Tensor, " N"]:
        """The weight of each target, padded or packed; 0 elsewhere. Advances the state.

        ``rows`` has one entry per place (`rows_of`); columns that the loss does not need are not touched.
        """
        needs = needs_of(self.weight)
        found = rows.only(needs - COUNTED).map(Tensor.detach)  # positions are counted from the mask
        found = found.adding(**{name: x.flatten() for name, x in sequences.columns.items() if name in needs})
        if sequences.start_BC is None:  # every row is one sequence already; nothing waits for the device
            mask_BC = sequences.mask_N.view_as(sequences.target_BC)
            w_BC, self.state = self.weight.apply(found.map(lambda x: x.view_as(mask_BC)), mask_BC, self.state)
            w_N = torch.where(mask_BC, w_BC, 0.0).flatten()
        else:
            w_SL, self.state = self.weight.apply(found.map(sequences.rows), sequences.row_mask, self.state)
            w_N = sequences.places(w_SL)
        given_N = sequences.loss_weight_N
        return w_N if given_N is None else w_N * given_N.to(w_N.dtype)

    def add(self, out: HeadLoss, sequences: Sequences, tokens_BC: Tensor, *, divided_by: float) -> None:
        """Note one micro-batch. Nothing here waits for the device."""
        number = HostCopy(sequences.number) if needs_of(self.weight) & COUNTED else None
        kept = (out.loss.detach(), out.logq_N, out.w_N, sequences, tokens_BC)
        self.pending.append(MicroBatch(HostCopy(out.sums), divided_by, number, *kept))
        self._data_weighs |= LOSS_WEIGHTS in sequences.columns

    # ---- one optimizer step

    def finish(self, *, step: int, dataset: Any = None) -> Figures:
        """End step number ``step`` (from 1) before the optimizer moves: let the loss observe, and add up the figures.

        Raises NonFiniteLossError on every rank if a micro-batch of any rank was not finite; it looks up the bad rows in ``dataset``.
        """
        table = self._gather()
        refuse_non_finite(self.pending, [line[0] for line in table], step=step, dataset=dataset, loss=self.weight)
        scores = _NO_SCORES
        if self.weight.score_columns:  # the same on every rank, so that all ranks gather or none
            rows = int(max(line[1] for line in table))
            scores = distributed.gather_scores(self.weight.seen(self.state), rows=rows)
        self.state = self.weight.observe(scores, self.state)
        made = sum((Figures(*line[2:]) for line in table), Figures())
        if made.tokens and made.weight:  # a step without active tokens says nothing about the scale
            self.mean_weight = made.weight_mean
        self.pending = []
        return made

    def logged(self, seen: Figures) -> dict[str, float]:
        """The figures of a step or a logging window under their names in the log, with the loss's threshold if it has one."""
        figures = seen.logged()
        if figures and (delta := threshold(self.weight, self.state, seen.mean_length)) is not None:
            figures["threshold"] = delta
        return figures

    def warning(self, seen: Figures) -> str | None:
        """A sentence if the loss trains on almost nothing, on much less than was asked for, or on few tokens; each kind once."""
        few = starvation(self.weight, seen, mean_length=seen.mean_length)
        if few is None and not self._data_weighs:  # a token of weight 0 in the data is no sequence that Trunc left out
            few = staleness(self.weight, seen)
        for kind, text in (("few", few), ("uneven", concentration(self.weight, seen))):
            if text is not None and kind not in self._said:
                self._said.add(kind)
                return text
        return None

    def _gather(self) -> list[list[float]]:
        """One line per rank: its first bad micro-batch (0: none), its number of scores, its figures.

        The sums were requested before the backward pass, so reading them does not wait for it.
        """
        bad, sums = 0, Figures()
        for at, micro in enumerate(self.pending, 1):
            number = 0.0 if micro.number is None else float(micro.number.read())
            found = Figures(*micro.sums.read())._replace(sequences=number)
            if not bad and not _is_finite(found, micro.divided_by):
                bad = at
            sums += found
        rows = len(self.weight.seen(self.state)) if self.weight.score_columns else 0
        line = [float(bad), float(rows), *sums]
        if distributed.world_size() == 1:
            return [line]
        device = self.pending[0].loss.device if self.pending else torch.device("cpu")
        here = torch.tensor([line], dtype=torch.float64, device=device)
        gathered: list[list[float]] = distributed.gather_scores(here, rows=1).tolist()
        return gathered


class _WholeSequences:
    """The weights of a loss that looks at whole sequences, as the head asks for them: for some whole sequences at a time.

    The state of the loss is frozen during an optimizer step, so the weights do not depend on how the head splits the micro-batch.
    """

    token_local = True
    needs = frozenset({"logq", "entropy", "top1", "place"})

    def __init__(self, objective: Objective, sequences: Sequences, now: Weight) -> None:
        self.objective, self.sequences = objective, sequences
        self.residual, self.rows_fn = now.residual, getattr(now, "rows_fn", None)
        self.split = False  # whether the head asks more than once

    def sequence_ends(self, row_T: Tensor | None) -> list[int]:
        """The number of targets up to the end of each sequence. Waits for the device."""
        self.split = True
        sequence_T = self.sequences.sequence_N if row_T is None else self.sequences.sequence_N[row_T]
        return [*(sequence_T.diff().nonzero()[:, 0] + 1).tolist(), len(sequence_T)]

    def weigh(self, rows: Rows) -> Tensor:
        """The loss's weights of these rows, which lie at ``place`` among the N."""
        place_C, sequences = rows["place"], self.sequences
        if self.split:
            target_N = torch.full_like(sequences.target_N, IGNORE)
            target_N[place_C] = sequences.target_N[place_C]
            sequences = replace(sequences, target_BC=target_N.view_as(sequences.target_BC))
        found = rows.only({"logq", "entropy", "top1"})
        total = sequences.target_BC.numel()
        w_N = self.objective.weigh(found.map(lambda x: x.new_zeros(total).index_copy(0, place_C, x)), sequences)
        return w_N[place_C]


def rows_of(out: HeadLoss) -> Rows:
    """What the head found, as a loss reads it."""
    return Rows(out.logq_N, entropy=out.entropy_N, top1=out.is_top1_N.to(out.logq_N.dtype))


def _one_pass(
    head: Callable[..., HeadLoss], sequences: Sequences, weight: TokenLocalWeight, num_tokens: float | Tensor
) -> HeadLoss:
    """Loss and gradient of a token-local loss in one pass over the vocabulary."""
    needs = needs_of(weight)
    extra = {name: x.flatten() for name, x in sequences.columns.items() if name in needs}
    if "place" in needs:
        extra["place"] = torch.arange(len(sequences.target_N), device=sequences.target_N.device)
    return head(
        sequences.target_N,
        weight,
        position_N=sequences.position_N if "position" in needs else None,
        length_N=sequences.length_N if "length" in needs else None,
        extra=extra,
        num_tokens=num_tokens,
        ignore_index=IGNORE,
    )


def _is_finite(found: Figures, count: float) -> bool:
    """Whether loss and gradient of a micro-batch are finite in float32, as a sum over tokens and divided by ``count``.

    The NLL counts too: Trunc and TruncR give weight 0 to a sequence whose score is nan, so the loss is finite and the gradient is
    nan. An infinite NLL is no such sign: a dropped token may have probability 0.
    """
    most = max(abs(found.weighted), abs(found.weighted) / (count or 1.0))
    return most <= _FLOAT32_MAX and not math.isnan(found.logq)
