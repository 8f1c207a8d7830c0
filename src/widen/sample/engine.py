"""The interface of every engine: local models, the small Llama, servers and vLLM.

An engine gets all prompts and settings at once, so that it can choose its batches and read each prompt once. It yields samples in small
batches, and skips those that are already on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from .decoding import Settings
from .prompts import Prompt

Have = Callable[[Settings, str, int], bool]  # whether this sample (settings, prompt id, index) is already on disk


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
      prompt_tokens, num_tokens: lengths; `num_tokens` counts the end token.
      logq: log-probability under the model at temperature 1, unfiltered, the end token included.
      sampler: log-probability under the distribution that was sampled from.
      ids: the tokens. None is unknown, here and above.
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
    """Samples of one setting."""

    settings: Settings
    samples: list[Sample]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which model an engine samples. Samples share a file only if `model` is equal.

    Args:
      engine: local, mulmod, server, vllm.
      name: of the model, for people.
      model: a fingerprint of the weights, or the name if the weights cannot be read.
      details: batch, device, versions; these may differ within a file.
      notes: sentences for readers of the file, such as what cannot be reproduced.
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
        """Which model this is; called after `check`."""

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Raise a ValueError for what this engine cannot do; called first."""

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples 0 .. num - 1 of every prompt under every setting, in any order, except those that `have` knows."""
