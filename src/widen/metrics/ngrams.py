r"""Metrics on n-grams: distinct-n (Li et al., 2016) and self-BLEU (Zhu et al., 2018), and how texts are cut into tokens.

BLEU clips an n-gram's count in a text at its largest count in any one reference. With all other texts as references, that is the
largest count over all texts, or the second largest if this text holds the largest. So two numbers per n-gram replace N - 1 references,
and self-BLEU takes time linear in the number of n-grams.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

VERSION = 1
Tokenisation = Literal["words", "whitespace", "characters"]
Smoothing = Literal["epsilon", "none"]
EPSILON = 0.1

TOKENISATIONS: dict[str, Callable[[str], list[str]]] = {
    "words": re.compile(r"\w+|[^\w\s]").findall,
    "whitespace": str.split,
    "characters": list,
}
"""``words``: runs of letters and digits, and single other characters. All keep the case."""


def check_texts(texts: Sequence[str]) -> None:
    """Raise unless this is a list of at least one string."""
    if isinstance(texts, str) or len(texts) == 0:
        raise ValueError(f"texts must be a list of at least one string, got {'one' if texts else 'no'} string")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts must be strings, text {place} is {type(text).__name__}")


def tokenise(texts: Sequence[str], tokenisation: Tokenisation) -> list[list[str]]:
    """The tokens of each text."""
    if tokenisation not in TOKENISATIONS:
        raise ValueError(f"tokenisation must be one of {', '.join(TOKENISATIONS)}, got {tokenisation!r}")
    check_texts(texts)
    return [TOKENISATIONS[tokenisation](text) for text in texts]


def ngrams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Runs of n tokens, in order."""
    return list(zip(*(tokens[start:] for start in range(n)), strict=False))


@dataclass(frozen=True)
class Distinct:
    """Share of different n-grams among all n-grams of a set of texts.

    It falls as the number of texts grows: compare only sets of the same size. No n-gram spans two texts.
    """

    value: float
    different: int
    total: int
    n: int
    texts: int
    tokenisation: str
    version: int = VERSION


def distinct_n(texts: Sequence[str], *, n: int = 2, tokenisation: Tokenisation = "words") -> Distinct:
    """Different n-grams over all n-grams, counted over the whole set.

    Examples:
      >>> distinct_n(["a b a b", "a b"], n=2).value
      0.5
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    counts = Counter(gram for tokens in tokenise(texts, tokenisation) for gram in ngrams(tokens, n))
    total = counts.total()
    if total == 0:
        raise ValueError(f"texts must hold at least one run of n = {n} tokens, got {len(texts)} shorter texts")
    return Distinct(len(counts) / total, len(counts), total, n, len(texts), tokenisation)


@dataclass(frozen=True)
class SelfBleu:
    """Mean over texts of BLEU against all other texts; high means alike. ``n`` is the longest n-gram counted."""

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

    where h is the text's length and r is the nearest length among the others (the shorter one of a tie).

    Args:
      texts: at least two, none without tokens.
      n: the longest n-gram; all lengths have the same weight.
      smoothing: ``epsilon`` counts 0.1 matches where no n-gram of a length matches (nltk's method1); ``none`` makes that text's BLEU 0.

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
    lengths = sorted(map(len, cut))
    by_text = zip(cut, *(_matches(cut, i) for i in range(1, n + 1)), strict=True)
    total = math.fsum(_bleu(shares, len(mine), _nearest(lengths, len(mine)), smoothing) for mine, *shares in by_text)
    return SelfBleu(total / len(cut), n, smoothing, tokenisation, len(cut))


def _matches(cut: list[list[str]], n: int) -> list[tuple[int, int]]:
    """For each text: the clipped count of n-grams that match another text, and the count of all its n-grams."""
    counted = [Counter(ngrams(tokens, n)) for tokens in cut]
    top: dict[tuple[str, ...], tuple[int, int]] = {}  # the two largest counts of each n-gram over texts
    for counts in counted:
        for gram, count in counts.items():
            first, second = top.get(gram, (0, 0))
            if count > second:
                top[gram] = (count, first) if count > first else (first, count)
    return [
        (sum(min(c, top[g][1] if c == top[g][0] else top[g][0]) for g, c in counts.items()), counts.total())
        for counts in counted
    ]


def _nearest(lengths: list[int], mine: int) -> int:
    """The length nearest to ``mine`` among the others; ``lengths`` is sorted and includes mine."""
    at = bisect_left(lengths, mine)
    others = [lengths[i] for i in (at - 1, at + 1) if 0 <= i < len(lengths)]
    return min(others, key=lambda length: (abs(length - mine), length))


def _bleu(shares: list[tuple[int, int]], length: int, reference: int, smoothing: Smoothing) -> float:
    """BLEU of one text; 0 if not even one token matches."""
    if shares[0][0] == 0 or (smoothing == "none" and any(matched == 0 for matched, _ in shares)):
        return 0.0
    log = sum(math.log((matched or EPSILON) / max(total, 1)) for matched, total in shares) / len(shares)
    return math.exp(log + min(0.0, 1 - reference / length))
