r"""How much each right answer of a prompt counts in training.

One prompt has the right answers y that are in the data or were found by the sampler; each is one row of the training file. A row has

.. math::  w_y = s_y \Big/ \overline{s}, \qquad
    s_y = \frac1{k_y} \;\text{(plain)}, \quad
    s_y = \frac{c_y + n_y}{k_y} \;\text{(sampled)}, \quad
    s_y = \frac1{k_y R} \sum_{r \,\text{finds}\, y} \min(\mathrm{cap},\, 1 / \pi_{y,r}) \;\text{(uniform)}, \qquad
    \pi_{y,r} = 1 - (1 - q_{y,r})^{N_r},

where the mean is over the rows of the prompt, k is the number of rows with this answer, c counts those of the data, n how often it was
drawn, R is the number of rounds, q is its probability under the decoding of round r, and N the draws per prompt of that round. An answer
of the data has pi = 1 in every round.

pi is the chance that a round finds y at all, so a found answer also stands for 1 / pi - 1 answers as rare that were not found (the
estimator of Horvitz and Thompson). Without the cap and the mean, a round adds pi * (1 / pi) = 1 to the expectation of *every* right
answer, and so does the mean over the rounds: the expected training distribution of a prompt is uniform over its right answers, whatever
the models prefer and however few draws there are. It needs no q of a round that did not find y, which nobody knows.
With one draw the weight is 1 / q; with many draws pi tends to 1, and `uniform` tends to `plain`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

WEIGHTS = ("plain", "sampled", "uniform")


class Seen(NamedTuple):
    """How one right answer of a prompt was seen.

    Args:
      copies: rows of the data that hold it.
      found: how often it was drawn.
      draws: for each round that found it, its probability under the decoding and the number of draws of the prompt.
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


def answer_weights(kind: str, answers: Sequence[Seen], *, cap: float = 10.0, rounds: int = 1) -> list[float]:
    """The weight of a row of each right answer of one prompt; the mean over all rows of the prompt is 1.

    Args:
      kind: one of `WEIGHTS`.
      answers: every right answer that is in the data or was found.
      cap: the largest 1 / pi of `uniform`.
      rounds: how many rounds have sampled the prompt.

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
    if (most := max(len(one.draws) for one in answers)) > rounds:
        raise ValueError(
            f"rounds={rounds}: must be at least {most}, the number of rounds that found one of the answers"
        )
    if kind == "uniform" and not all(one.copies or one.draws for one in answers):
        raise ValueError("draws=(): an answer that is not in the data needs the draws of the rounds that found it")
    rows = [max(1, one.copies) for one in answers]
    scores = [1.0] * len(answers)
    if kind == "sampled":
        scores = [float(one.copies + one.found) for one in answers]
    elif kind == "uniform":
        least = max(1 / cap, sys.float_info.min)  # q is 0 below e^-745
        chances = [[chance_of_being_found([draw]) for draw in one.draws] for one in answers]
        scores = [
            1.0 if one.copies else math.fsum(1 / max(chance, least) / rounds for chance in found)
            for one, found in zip(answers, chances, strict=True)
        ]
    top = max(scores)  # first the ratios: with cap=inf the sum can be infinite
    total = math.fsum(score / top for score in scores)
    # An answer with several rows shares its score among them.
    return [score / top / n * sum(rows) / total for score, n in zip(scores, rows, strict=True)]
