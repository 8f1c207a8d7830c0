"""Which samples are drawn together, decided by the prompts and the batch alone.

The plan is a function of the *set* of prompts: not of their order in a file, nor of what is already on disk. A batch that a crash cut
short is drawn again as it was, with the same rows in the same places, so its samples come out the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .prompts import Prompt

__all__ = ["Encoded", "Group", "groups"]


class Encoded(NamedTuple):
    """A prompt as tokens."""

    prompt: Prompt
    ids: tuple[int, ...]
    without: tuple[int, ...] = ()


class Group(NamedTuple):
    """Prompts that are read together, and the blocks of sample indices that are then drawn of each."""

    members: tuple[Encoded, ...]
    blocks: tuple[range, ...]


def groups(prompts: Sequence[Encoded], *, num: int, batch: int, read: int = 65_536) -> Iterator[Group]:
    """Neighbours in length, so that little is padded, with at most `batch` rows drawn and about `read` prompt tokens read at a time.

    Examples:
      >>> some = [Encoded(Prompt(text=t, id=t), tuple(range(n))) for t, n in [("a", 5), ("b", 2), ("c", 5), ("d", 3)]]
      >>> [([m.prompt.text for m in g.members], g.blocks) for g in groups(some, num=4, batch=8)]
      [(['b', 'd'], (range(0, 4),)), (['a', 'c'], (range(0, 4),))]
      >>> [g.blocks for g in groups(some[:1], num=10, batch=4)]
      [(range(0, 4), range(4, 8), range(8, 10))]
    """
    ordered = sorted(prompts, key=lambda encoded: (len(encoded.ids), encoded.ids, encoded.prompt.id))
    together = max(1, batch // num)
    blocks = tuple(range(start, min(start + batch, num)) for start in range(0, num, batch))
    members: list[Encoded] = []
    for encoded in ordered:
        if members and (len(members) == together or (len(members) + 1) * len(encoded.ids) > read):
            yield Group(tuple(members), blocks)
            members = []
        members.append(encoded)
    if members:
        yield Group(tuple(members), blocks)
