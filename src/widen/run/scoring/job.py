"""What a scorer gets: the experiment with its folder and questions, and what all scores of one call share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from os import sched_getaffinity
from pathlib import Path
from typing import NamedTuple

from widen.judge import Limits, Sandbox
from widen.judge.ray_sandbox import RaySandbox

from ..experiment import Experiment
from ..folder import RunFolder, StageProgress, silent
from ..questions import Question
from ..score_settings import CheckerScore, ProgramScore


class ScoreTools:
    """The folder of all runs, the device, the progress, and one open sandbox per set of limits; a context manager.

    Args:
      root: verdicts go to ``root/verdicts/``, features of texts to ``root/features/``.
      ray: address of a Ray cluster that runs the sandboxes; None runs them on this machine, with one worker per core.
    """

    def __init__(
        self, root: str | Path, *, device: str = "cpu", progress: StageProgress = silent, ray: str | None = None
    ) -> None:
        self.root, self.device, self.progress, self.ray = Path(root), device, progress, ray
        self._open: dict[Limits, Sandbox] = {}
        self._stack = ExitStack()

    def __enter__(self) -> ScoreTools:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def sandbox(self, limits: Limits) -> Sandbox:
        """The open sandbox for some limits."""
        if limits not in self._open:
            if self.ray is not None:
                sandbox: Sandbox = RaySandbox(self.ray, limits=limits)
            else:
                sandbox = Sandbox(limits=limits, workers=len(sched_getaffinity(0)))
            self._open[limits] = self._stack.enter_context(sandbox)
        return self._open[limits]

    def verdicts(self, name: str) -> Path:
        """The file of the verdicts of a task or a checker."""
        path = self.root / "verdicts" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class ScoreJob(NamedTuple):
    """One experiment to score; without questions for a small model, which is scored on its own task."""

    folder: RunFolder
    experiment: Experiment
    questions: Sequence[Question]
    tools: ScoreTools


def limits_of(score: ProgramScore | CheckerScore) -> Limits:
    """The limits that a score sets for one program or one call of the checker."""
    memory = score.memory_mib << 20
    return Limits(wall_seconds=score.wall_seconds, cpu_seconds=score.cpu_seconds, memory_bytes=memory)
