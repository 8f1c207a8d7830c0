"""The weights of M models with M losses in a few operations, where :mod:`widen.losses` would take a few for each model.

One formula holds all token-local losses of the paper, with one number per model and hyperparameter:

    w = clamp( q^(1 - alpha) * q / (gamma + (1 - gamma) q) * lam^((l-1)/L) * 1[log q <= log delta], floor, cap )

NLL is alpha = 1, gamma = 0, lam = 1, delta = inf. A product of losses is a product of such rows. Trunc and TruncR keep their rolling
lists as the rows of one tensor. The tests hold every loss to its own `apply` and `observe`; a loss of the user's own class is called
as it is. Nothing here asks the device for a value, so a CUDA graph can hold all of it (but for a user's own class).

Shapes: M models, L positions, B sequences; every position of every sequence is a target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from widen.losses import NLL, CDiv, LambdaPR, Product, State, TaiLr, Trunc, TruncR, Warmup, Weight

from .stacked_trunc import StackedTrunc

__all__ = ["StackedWeights"]

_LOCAL = (NLL, CDiv, TaiLr, LambdaPR)
_TRUNC = (Trunc, TruncR)


def factors(weight: Weight) -> tuple[Weight, ...]:
    """The factors of a product, a weight itself otherwise; what a schedule leads to."""
    if isinstance(weight, Warmup):
        return factors(weight.then)
    return weight.factors if isinstance(weight, Product) else (weight,)


def known(weight: Weight) -> bool:
    """Whether the formula above holds this loss. The exact class counts: a subclass may define another weight."""
    return all(type(factor) in _LOCAL + _TRUNC for factor in factors(weight))


class StackedWeights:
    """The losses of M models.

    Args:
      weights: one loss a model.
      length: L, the target tokens of every sequence.
      device, dtype: of the log-probabilities.
    """

    def __init__(
        self, weights: Sequence[Weight], *, length: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.weights, self.length = tuple(weights), length
        self.device, self.dtype = device, dtype
        self.others: dict[int, State] = {m: w.init() for m, w in enumerate(weights) if not known(w)}
        self.slots = max((len(factors(w)) for w in weights if known(w)), default=1)
        self.step = 0
        self.rows_S6M = self._rows().to(device, dtype)
        self.truncs = _truncs(self.weights, self.others, device)
        self.nll_first_M = self._nll_first().to(device)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold `apply`."""
        return not self.others

    def at_step(self, step: int) -> None:
        """Make ready for optimizer step `step`: where a warm-up of NLL ends here, the loss that follows takes over."""
        self.step, before = step, self.nll_first_M
        ends = {w.steps for w in self.weights if isinstance(w, Warmup)}
        if step == 0 or step in ends:
            self.rows_S6M.copy_(self._rows())
            self.nll_first_M = before.copy_(self._nll_first())

    def apply(self, logq_MLB: Float[Tensor, "M L B"]) -> Float[Tensor, "M L B"]:
        """The weight of every token; the rolling lists take in this batch, for the next step."""
        l_L1 = torch.arange(self.length, device=logq_MLB.device, dtype=logq_MLB.dtype)[:, None]
        w_MLB = torch.ones_like(logq_MLB)
        for row in self.rows_S6M.unbind(0):
            w_MLB = w_MLB * _formula(logq_MLB, l_L1 / self.length, row[:, :, None, None])
        for trunc in self.truncs:
            keep_GB = trunc.apply(logq_MLB[trunc.index])
            keep_GB = keep_GB.masked_fill(self.nll_first_M[trunc.index, None], 1.0)
            w_MLB = w_MLB.index_copy(0, trunc.index, w_MLB[trunc.index] * keep_GB[:, None])
        for m in self.others:
            w_MLB[m] = self._own(m, logq_MLB[m].t().contiguous()).t()
        return w_MLB

    def _own(self, m: int, logq_BL: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """A user's own loss, called as it is."""
        weight = self.weights[m]
        w_BL, state = weight.apply(logq_BL, torch.ones_like(logq_BL, dtype=torch.bool), self.others[m])
        self.others[m] = weight.observe(weight.seen(state), state)
        return w_BL

    def _nll_first(self) -> Tensor:
        """Which models are still in their warm-up of NLL."""
        return torch.tensor([isinstance(w, Warmup) and self.step < w.steps for w in self.weights])

    def _rows(self) -> Float[Tensor, "S 6 M"]:
        """The numbers of the formula, by slot and model."""
        rows = torch.stack([torch.stack([_row(NLL(), self.length)] * len(self.weights), dim=1)] * self.slots)
        for m, weight in enumerate(self.weights):
            warming = isinstance(weight, Warmup) and self.step < weight.steps
            if m in self.others or warming:
                continue
            for slot, factor in enumerate(factors(weight)):
                rows[slot, :, m] = _row(factor, self.length)
        return rows

    def states(self) -> list[State]:
        """Each model's state as its own loss keeps it: what a checkpoint stores."""
        return [self._state(m, weight) for m, weight in enumerate(self.weights)]

    def _state(self, m: int, weight: Weight) -> State:
        if m in self.others:
            return self.others[m]
        parts: list[Any] = []
        for slot, factor in enumerate(factors(weight)):
            found = [trunc.state(m, slot) for trunc in self.truncs if trunc.holds(m, slot)]
            parts.append(found[0] if found else factor.init())
        inner = tuple(parts) if isinstance(_after(weight), Product) else parts[0]
        if isinstance(weight, Warmup):
            return weight.init()._replace(step=torch.tensor(self.step), inner=inner)
        return inner

    def load(self, states: Sequence[State], *, step: int) -> None:
        """Take up the states that `states` gave after `step` steps."""
        for m, (weight, state) in enumerate(zip(self.weights, states, strict=True)):
            if m in self.others:
                self.others[m] = state
                continue
            inner = state[1] if isinstance(weight, Warmup) else state
            parts = inner if isinstance(_after(weight), Product) else (inner,)
            for slot, part in enumerate(parts):
                for trunc in self.truncs:
                    if trunc.holds(m, slot):
                        trunc.load(m, slot, part)
        self.step = step
        self.rows_S6M.copy_(self._rows())
        self.nll_first_M.copy_(self._nll_first())


def _after(weight: Weight) -> Weight:
    return weight.then if isinstance(weight, Warmup) else weight


def _row(weight: Weight, length: int) -> Float[Tensor, " 6"]:
    """1 - alpha, gamma, log lam, log delta, floor, cap of a token-local loss; those of NLL for Trunc, whose bounds it keeps itself."""
    power = gamma = log_lam = 0.0
    log_delta, floor, cap = math.inf, 0.0, math.inf
    if isinstance(weight, _LOCAL):
        floor, cap = weight.floor, weight.cap
    if isinstance(weight, CDiv):
        power = 1 - weight.alpha
    if isinstance(weight, (TaiLr, LambdaPR)):
        gamma = weight.gamma
    if isinstance(weight, LambdaPR):
        log_lam = math.log(weight.lam)
        log_delta = float(weight.log_threshold(torch.tensor(float(length), dtype=torch.float64)))
    return torch.tensor([power, gamma, log_lam, log_delta, floor, cap], dtype=torch.float64)


def _formula(
    logq_MLB: Float[Tensor, "M L B"], share_L1: Float[Tensor, "L 1"], row: Float[Tensor, "6 M 1 1"]
) -> Float[Tensor, "M L B"]:
    """The formula of this module; `share` is (l - 1)/L."""
    power, gamma, log_lam, log_delta, floor, cap = row
    # Where power or gamma is 0 the factor is 1, also at q = 0, where 0 * inf would be nan. masked_fill, as `where` copies a number
    # from the host, which a graph refuses.
    w = (power * logq_MLB).masked_fill(power == 0, 0.0).exp()
    w = w / ((1 - gamma) + (gamma * (-logq_MLB).exp()).masked_fill(gamma == 0, 0.0))
    w = w * (log_lam * share_L1).exp() * (logq_MLB <= log_delta)
    return torch.minimum(torch.maximum(w, floor), cap)


def _truncs(weights: Sequence[Weight], others: dict[int, State], device: torch.device | str) -> list[StackedTrunc]:
    """The Trunc and TruncR of all models, gathered into groups that one tensor can hold."""
    groups: dict[tuple[Any, ...], list[tuple[int, int, Trunc]]] = {}
    for m, weight in enumerate(weights):
        for slot, factor in enumerate(() if m in others else factors(weight)):
            if isinstance(factor, _TRUNC):
                groups.setdefault((factor.side, factor.size, factor.score), []).append((m, slot, factor))
    # A model with two Truncs of one kind in a product: one group each, as index_copy wants each model once.
    split = [[member for member in group if member[1] == slot] for group in groups.values() for slot in range(8)]
    return [StackedTrunc(group, device=device) for group in split if group]
