"""distinct-n: how many of all n-grams are different ones (Li et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .words import Tokenisation, ngrams, tokenise

VERSION = 1


@dataclass(frozen=True)
class Distinct:
    """Share of different n-grams among all n-grams of a set of texts.

    Args:
      value: different / total.
      different: n-grams that occur.
      total: n-grams with repetition; no n-gram crosses from one text into the next.
      n: the length of an n-gram.
      texts: how many; the value falls as their number grows, so that only sets of one size compare.
      tokenisation: how texts were cut.
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

    Args:
      texts: at least one, at least one of them n tokens long.
      n: length of an n-gram, at least 1.
      tokenisation: ``words``, ``whitespace`` or ``characters``.

    Examples:
      >>> distinct_n(["a b a b", "a b"], n=2).value
      0.5
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    cut = tokenise(texts, tokenisation)
    seen: set[tuple[str, ...]] = set()
    total = 0
    for tokens in cut:
        found = ngrams(tokens, n)
        seen.update(found)
        total += len(found)
    if total == 0:
        raise ValueError(f"texts must hold at least one run of n = {n} tokens, got {len(cut)} shorter texts")
    return Distinct(len(seen) / total, len(seen), total, n, len(cut), tokenisation)
