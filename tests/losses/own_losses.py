"""Losses as a user writes them, in a module that can be imported. No tests here."""

from dataclasses import dataclass

import torch

from widen.losses import Bounded, SequenceWeight, TokenWeight, TruncR


class Unsure(TokenWeight):
    """One without fields."""

    def weigh(self, rows):
        return -torch.expm1(rows.logq)


@dataclass(frozen=True, kw_only=True)
class Power(Bounded):
    """One with fields: a number, words, and something that no config can hold."""

    power: float = 1.0
    tags: tuple[str, ...] = ()
    extra: object = None

    def weigh(self, rows):
        return self.bounded((self.power * rows.logq).exp())


@dataclass(frozen=True, kw_only=True)
class Rare(SequenceWeight, Bounded):
    """One that weighs whole sequences: the loss -log Q(x) - share * Q(x)."""

    share: float = 0.5

    def weigh_sequences(self, logq_B, length_B):
        return self.bounded(1 + self.share * logq_B.exp())


@dataclass(frozen=True, kw_only=True)
class Softer(TruncR):
    """A loss of the package, changed: the sequences that TruncR drops count a little."""

    share: float = 0.5

    def apply(self, rows, mask_BL, state):
        w_BL, state = super().apply(rows, mask_BL, state)
        return torch.where(mask_BL, self.share + (1 - self.share) * w_BL, 0.0), state
