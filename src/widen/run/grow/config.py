"""The settings of `widen grow` as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from widen.sample.decoding import Decoding, Settings
from widen.sample.engines.local import DTYPES

from ..finetune.config import FineTune, Source
from ..value import NEWER, from_json
from .weights import WEIGHTS


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Rounds of sampling, judging and training.

    Args:
      model: folder or hub name of the model to begin with; a run folder stands for its checkpoint.
      prompts: the problems to sample. The task says how an answer is judged: by its own check (`answers`, `e2e`), or by running it as a
        program.
      data: the rows of the original training data; None takes the completions of ``prompts``.
      checker: ``FILE.py:FUNCTION`` judges instead of the task; see `widen.judge.run_checker`.
      checker_files: texts that the checker may open.
      held_out: problems that are never trained on; they are sampled and judged after every round.
      rounds: the most rounds; growth stops earlier when a round finds nothing new.
      num: samples per problem and round.
      decoding: how they are drawn. Hot, but truncated, finds most new right answers.
      max_tokens: of an answer. An answer that reaches it without ending counts as wrong.
      weights, cap: see `widen.run.grow.weights`.
      start: each training starts from ``base`` (the ``model``), from ``last`` (the model of the round before), or from a named model.
      chat: ask through the chat template, with the prompt as the user's message, and train on the answer as the assistant's.
      held_out_num, held_out_decoding: how held-out problems are sampled.
      fenced: a program is the first block between ``` marks of an answer.
      wall_seconds: for one program or one call of the checker.
      dtype: of the weights while sampling.
      seed: of the samples; round k uses seed + k.
      training: keys of `FineTune`, such as ``{"epochs": 2.0, "lr": 1e-4}``.
      find_only: train nothing. Every round samples ``model`` again and writes its ``train.jsonl``, which any trainer takes.

    Examples:
      >>> one = Growth(model="gpt2", prompts=Source(task="answers", path="train.jsonl"), training={"epochs": 2.0})
      >>> one.fine_tuning("round-1/train.jsonl", start="gpt2").epochs
      2.0
    """

    model: str
    prompts: Source
    data: Source | None = None
    checker: str = ""
    checker_files: tuple[str, ...] = ()
    held_out: Source | None = None
    rounds: int = 2
    num: int = 64
    decoding: str = "t=1.5,min_p=0.05,order=temperature_last"
    max_tokens: int = 256
    weights: str = "plain"
    cap: float = 10.0
    start: str = "base"
    held_out_num: int = 64
    held_out_decoding: str = "t=1"
    fenced: bool = False
    wall_seconds: float = 10.0
    dtype: str = "auto"
    seed: int = 0
    training: dict[str, Any] = field(default_factory=dict)
    chat: bool = field(default=False, metadata=NEWER)
    find_only: bool = field(default=False, metadata=NEWER)

    def __post_init__(self) -> None:
        for name in ("decoding", "held_out_decoding"):
            object.__setattr__(self, name, Decoding.parse(getattr(self, name)).spec)
        for name in ("rounds", "num", "held_out_num"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.held_out is not None and not self.checker and self.held_out.task != self.prompts.task:
            raise ValueError(
                f"held_out.task={self.held_out.task!r}: must be the task of prompts, {self.prompts.task!r}"
            )
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights={self.weights!r}: must be one of {', '.join(WEIGHTS)}")
        if not self.cap >= 1:
            raise ValueError(f"cap={self.cap}: must be at least 1")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: must be one of {', '.join(DTYPES)}")
        if not self.wall_seconds > 0:
            raise ValueError(f"wall_seconds={self.wall_seconds}: must be above 0")
        Settings(decoding=Decoding.parse(self.decoding), max_tokens=self.max_tokens, seed=self.seed)
        self.fine_tuning("train.jsonl", start=self.model)

    def fine_tuning(self, path: str, *, start: str) -> FineTune:
        """The training of a round on the file at ``path``."""
        return from_json(FineTune, {**self.training, "model": start, "train": {"task": "jsonl", "path": path}})
