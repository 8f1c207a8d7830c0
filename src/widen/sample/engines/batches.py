"""Which samples are drawn together.

This depends on the set of prompts, `num` and `batch` alone, not on the order of the prompts or on what is already on disk. A batch that was
interrupted is drawn again with the same samples in the same rows, so its samples are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..prompts import Prompt

__all__ = ["PromptBatch", "PromptTokens", "batches"]


class PromptTokens(NamedTuple):
    """A prompt as tokens."""

    prompt: Prompt
    ids: tuple[int, ...]
    without: tuple[int, ...] = ()  # what the second stream of KL guidance starts from


class PromptBatch(NamedTuple):
    """Prompts that are read together, and the blocks of sample indices drawn of each."""

    members: tuple[PromptTokens, ...]
    blocks: tuple[range, ...]


def batches(prompts: Sequence[PromptTokens], *, num: int, batch: int, read: int = 65_536) -> Iterator[PromptBatch]:
    """Prompts of similar length, with at most `batch` samples drawn and about `read` prompt tokens read at a time.

    Examples:
      >>> some = [PromptTokens(Prompt(text=t, id=t), tuple(range(n))) for t, n in [("a", 5), ("b", 2), ("c", 5), ("d", 3)]]
      >>> [([m.prompt.text for m in one.members], one.blocks) for one in batches(some, num=4, batch=8)]
      [(['b', 'd'], (range(0, 4),)), (['a', 'c'], (range(0, 4),))]
      >>> [one.blocks for one in batches(some[:1], num=10, batch=4)]
      [(range(0, 4), range(4, 8), range(8, 10))]
    """
    together = max(1, batch // num)
    blocks = tuple(range(start, min(start + batch, num)) for start in range(0, num, batch))
    members: list[PromptTokens] = []
    for one in sorted(prompts, key=lambda one: (len(one.ids), one.ids, one.prompt.id)):
        if members and (len(members) == together or (len(members) + 1) * len(one.ids) > read):
            yield PromptBatch(tuple(members), blocks)
            members = []
        members.append(one)
    if members:
        yield PromptBatch(tuple(members), blocks)
