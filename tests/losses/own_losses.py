"""Losses as a user writes them, in a module that can be imported. No tests here."""

from dataclasses import dataclass

import torch

from widen.losses import Bounded, TokenWeight


class Focal(TokenWeight):
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
