r"""Self-BLEU: each text's BLEU with all others as references, exactly, in time linear in the number of n-grams (Zhu et al., 2018).

BLEU clips an n-gram's count in a text at its largest count in any one reference. Over all texts but this one that largest count is the
largest over all texts, or the second largest where this text holds the largest: two numbers per n-gram stand for N - 1 references.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .words import Tokenisation, ngrams, tokenise

VERSION = 1
Smoothing = Literal["epsilon", "none"]
EPSILON = 0.1


@dataclass(frozen=True)
class SelfBleu:
    """Mean over texts of BLEU against the others; high means alike.

    Args:
      value: the mean.
      n: the longest n-gram counted, all lengths weighing the same.
      smoothing: ``epsilon`` gives an n-gram length without a match 0.1 matches (nltk's method1); ``none`` makes that text's BLEU 0.
      tokenisation: how texts were cut.
      texts: how many; each has texts - 1 references, all of them used.
    """

    value: float
    n: int
    smoothing: str
    tokenisation: str
    texts: int
    version: int = VERSION


def self_bleu(
    texts: Sequence[str], *, n: int = 4, smoothing: Smoothing = "epsilon", tokenisation: Tokenisation = "words"
) -> SelfBleu:
    r"""Mean BLEU-n of each text against all others.

    .. math::  BLEU = \min(1, e^{1-r/h}) \prod_{i=1}^n p_i^{1/n}, \qquad p_i = \frac{\sum_g \min(c(g), \max_{others} c(g))}{\sum_g c(g)},

    with h the text's length and r the length nearest to it among the others (the shorter of two as near).

    Args:
      texts: at least two, none without tokens.
      n: the longest n-gram, at least 1.
      smoothing: what an n-gram length without a match counts for.
      tokenisation: ``words``, ``whitespace`` or ``characters``.

    Examples:
      >>> self_bleu(["the cat sat on it", "the cat sat on it"]).value
      1.0
      >>> self_bleu(["the cat sat", "a dog ran"]).value
      0.0
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if smoothing not in ("epsilon", "none"):
        raise ValueError(f"smoothing must be 'epsilon' or 'none', got {smoothing!r}")
    cut = tokenise(texts, tokenisation)
    if len(cut) < 2:
        raise ValueError(f"texts must be at least two for one to be compared with another, got {len(cut)}")
    empty = [place for place, tokens in enumerate(cut) if not tokens]
    if empty:
        raise ValueError(f"texts must hold at least one token, text {empty[0]} holds none ({len(empty)} such)")
    by_length = [matches(cut, i) for i in range(1, n + 1)]
    lengths = sorted(len(tokens) for tokens in cut)
    total = 0.0
    for place, tokens in enumerate(cut):
        shares = [of_length[place] for of_length in by_length]
        total += bleu(shares, len(tokens), nearest_other(lengths, len(tokens)), smoothing)
    return SelfBleu(total / len(cut), n, smoothing, tokenisation, len(cut))


def matches(cut: list[list[str]], n: int) -> list[tuple[int, int]]:
    """For each text: n-grams that some other text matches, counts clipped, and all its n-grams."""
    counted = [Counter(ngrams(tokens, n)) for tokens in cut]
    top: dict[tuple[str, ...], tuple[int, int]] = {}  # the two largest counts of each n-gram over texts
    for counts in counted:
        for gram, count in counts.items():
            first, second = top.get(gram, (0, 0))
            if count > second:
                top[gram] = (count, first) if count > first else (first, count)
    return [
        (sum(min(c, top[g][1] if c == top[g][0] else top[g][0]) for g, c in counts.items()), sum(counts.values()))
        for counts in counted
    ]


def nearest_other(lengths: list[int], mine: int) -> int:
    """The length nearest to ``mine`` among the others; ``lengths`` is sorted and holds mine once too often."""
    at = bisect_left(lengths, mine)
    if at + 1 < len(lengths) and lengths[at + 1] == mine:
        return mine
    around = [lengths[i] for i in (at - 1, at + 1) if 0 <= i < len(lengths)]
    return min(around, key=lambda length: (abs(length - mine), length))


def bleu(shares: list[tuple[int, int]], length: int, reference: int, smoothing: Smoothing) -> float:
    """BLEU of one text from its clipped matches; 0 where not even one token matches, as everywhere."""
    if shares[0][0] == 0 or (smoothing == "none" and any(matched == 0 for matched, _ in shares)):
        return 0.0
    log = sum(math.log((matched or EPSILON) / max(total, 1)) for matched, total in shares) / len(shares)
    return math.exp(log + min(0.0, 1 - reference / length))
