r"""How much each right answer of a prompt counts in training.

One prompt has the right answers y that are in the data or were found by the sampler; each is one row of the training file. A row has

.. math::  w_y = s_y \Big/ \overline{s}, \qquad
    s_y = 1 \;\text{(plain)}, \quad
    s_y = c_y + n_y \;\text{(sampled)}, \quad
    s_y = \min(\mathrm{cap},\, 1 / \pi_y) \;\text{(uniform)}, \qquad
    \pi_y = 1 - \prod_r (1 - q_{y,r})^{N_r},

where the mean is over the rows of the prompt, c counts the rows of the data with this answer, n how often it was drawn, q is its
probability under the decoding of round r, N the draws per prompt of that round, and the product is over the rounds that found it. An
answer of the data has pi = 1.

pi is the chance that the sampler finds y at all, so a found answer also stands for 1 / pi - 1 answers as rare that were not found (the
estimator of Horvitz and Thompson). Without the cap and the mean, the expected weight of *every* right answer is pi * (1 / pi) = 1: the
expected training distribution of a prompt is uniform over its right answers, whatever the model prefers and however few draws there are.
With one draw the weight is 1 / q; with many draws pi tends to 1, and `uniform` tends to `plain`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

WEIGHTS = ("plain", "sampled", "uniform")


class Seen(NamedTuple):
    """How one right answer of a prompt was seen.

    Args:
      copies: rows of the data that hold it.
      found: how often it was drawn.
      draws: for each round that found it, its probability under the decoding and the number of draws.
    """

    copies: int = 0
    found: int = 0
    draws: tuple[tuple[float, int], ...] = ()


def chance_of_being_found(draws: Sequence[tuple[float, int]]) -> float:
    """The probability that at least one draw hits, for pairs of a probability per draw and a number of draws.

    >>> chance_of_being_found([(0.5, 2)]), chance_of_being_found([(1.0, 3)])
    (0.75, 1.0)
    """
    if any(q >= 1 for q, _ in draws):
        return 1.0
    return -math.expm1(math.fsum(n * math.log1p(-q) for q, n in draws))  # keeps the digits of a small q


def answer_weights(kind: str, answers: Sequence[Seen], *, cap: float = 10.0) -> list[float]:
    """The weight of a row of each right answer of one prompt; the mean over all rows of the prompt is 1.

    Args:
      kind: one of `WEIGHTS`.
      answers: every right answer that is in the data or was found.
      cap: the largest 1 / pi of `uniform`.

    Examples:
      >>> often, once, known = Seen(found=3, draws=((0.5, 4),)), Seen(found=1, draws=((0.1, 4),)), Seen(copies=1)
      >>> [round(w, 3) for w in answer_weights("uniform", [often, once, known])]
      [0.643, 1.754, 0.603]
      >>> [round(w, 3) for w in answer_weights("sampled", [often, once, known])]
      [1.8, 0.6, 0.6]
    """
    if kind not in WEIGHTS:
        raise ValueError(f"weights={kind!r}: must be one of {', '.join(WEIGHTS)}")
    if not cap >= 1:
        raise ValueError(f"cap={cap}: must be at least 1")
    if not answers:
        return []
    rows = [max(1, one.copies) for one in answers]
    scores = [1.0] * len(answers)
    if kind == "sampled":  # an answer with several rows shares its count among them
        scores = [(one.copies + one.found) / n for one, n in zip(answers, rows, strict=True)]
    elif kind == "uniform":
        scores = [1.0 if one.copies else 1 / max(chance_of_being_found(one.draws), 1 / cap) for one in answers]
    mean = math.fsum(score * n for score, n in zip(scores, rows, strict=True)) / sum(rows)
    return [score / mean for score in scores]
