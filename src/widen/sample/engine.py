"""What every engine is: something that continues prompts. Local models, servers and vLLM stand behind these few names.

An engine gets all prompts and all settings at once, so that it can batch as it likes and read each prompt once for all of them. It
hands out what it has drawn in small batches, and is told what is already on disk, so that nothing is drawn twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from .decoding import Settings
from .prompts import Prompt

__all__ = ["Drawn", "Engine", "Have", "Identity", "Sample", "nothing"]

Have = Callable[[Settings, str, int], bool]
"""Whether sample `index` of prompt `id` under these settings is already on disk."""


def nothing(settings: Settings, prompt: str, index: int) -> bool:
    """Nothing is on disk."""
    return False


@dataclass(frozen=True)
class Sample:
    """One continuation.

    Args:
      prompt: the prompt's id.
      index: which of the prompt's samples, from 0.
      text: the continuation, without special tokens.
      finish: ``stop`` (the model ended it) or ``length`` (`max_tokens` did).
      prompt_tokens, num_tokens: lengths; `num_tokens` counts the end token. None where a server does not say.
      logq: log-probability under the model at temperature 1, unfiltered, the end token included. None where unknown.
      sampler: log-probability under what was sampled from: tempered, filtered, guided. None where unknown.
      ids: the tokens, where the engine knows them.
    """

    prompt: str
    index: int
    text: str
    finish: Literal["stop", "length"]
    prompt_tokens: int | None = None
    num_tokens: int | None = None
    logq: float | None = None
    sampler: float | None = None
    ids: tuple[int, ...] | None = None


class Drawn(NamedTuple):
    """Samples of one setting, ready to be written."""

    settings: Settings
    samples: list[Sample]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which model an engine samples. Two samples share a file only if `model` agrees.

    Args:
      engine: local, mulmod, server, vllm.
      name: of the model, for people.
      model: what tells this model from another: a fingerprint of the weights where they can be seen, a name where not.
      details: batch, device, versions: worth keeping, free to differ.
      notes: sentences for whoever reads the file: what is not reproducible, what was not honoured.
    """

    engine: str
    name: str
    model: dict[str, str]
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@runtime_checkable
class Engine(Protocol):
    """Continues prompts."""

    def identity(self) -> Identity:
        """Which model this is; for a server, after asking it."""
        ...

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Refuse, with a ValueError, what this engine cannot do: before the first sample, not after an hour. Called before the rest."""
        ...

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples 0 .. num - 1 of every prompt under every setting, but for those that `have` knows; in any order."""
        ...
