"""Losses as a user writes them, in a module that can be imported. No tests here."""

from dataclasses import dataclass

import torch

from widen.losses import Bounded, TokenWeight


class Focal(TokenWeight):
    """One without fields."""

    def at(self, logq_N, position_N, length_N):
        return -torch.expm1(logq_N)


@dataclass(frozen=True, kw_only=True)
class Power(Bounded):
    """One with fields: a number, words, and something that no config can hold."""

    power: float = 1.0
    tags: tuple[str, ...] = ()
    extra: object = None

    def at(self, logq_N, position_N, length_N):
        return self.bounded((self.power * logq_N).exp())
