"""Texts into tokens for the n-gram metrics. The way it is done is part of a score, so that it has a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

Tokenisation = Literal["words", "whitespace", "characters"]

_WORD = re.compile(r"\w+|[^\w\s]")
TOKENISATIONS: dict[str, Callable[[str], list[str]]] = {
    "words": _WORD.findall,
    "whitespace": str.split,
    "characters": list,
}
"""``words`` keeps runs of letters and digits and single other signs, ``whitespace`` splits at blanks, case is kept in all."""


def tokenise(texts: Sequence[str], tokenisation: Tokenisation) -> list[list[str]]:
    """The tokens of each text.

    Examples:
      >>> tokenise(["Don't stop."], "words")
      [['Don', "'", 't', 'stop', '.']]
    """
    if tokenisation not in TOKENISATIONS:
        raise ValueError(f"tokenisation must be one of {', '.join(TOKENISATIONS)}, got {tokenisation!r}")
    if isinstance(texts, str):
        raise ValueError("texts must be a list of strings, got one string")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts must be strings, text {place} is {type(text).__name__}")
    return [TOKENISATIONS[tokenisation](text) for text in texts]


def ngrams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """Runs of n tokens, in order; none where the text is shorter.

    Examples:
      >>> ngrams(["a", "b", "c"], 2)
      [('a', 'b'), ('b', 'c')]
    """
    return list(zip(*(tokens[start:] for start in range(n)), strict=False))
