"""Grow the training data of a model with its own answers that a judge found right: sample, judge, keep what is new, train, repeat."""

from __future__ import annotations

from .config import Growth
from .rounds import Round, grow, reweighed
from .weights import WEIGHTS, Seen, answer_weights, chance_of_being_found

__all__ = ["WEIGHTS", "Growth", "Round", "Seen", "answer_weights", "chance_of_being_found", "grow", "reweighed"]
