"""Many configurations to their end, each into its own run folder: `SideBySide` with files, a log and a resume."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from widen.models import checkpoint
from widen.models.tiny_llama import TinyLlama

from .alone import save_finished
from .engine import Engine
from .log import Log
from .progress import OnProgress, Timer
from .settings import Configuration
from .side_by_side import SideBySide, StepLog

__all__ = ["train_many"]


def train_many(
    configurations: Sequence[Configuration],
    folders: Sequence[str | Path],
    *,
    resume: str | Path,
    starts: Sequence[TinyLlama | None] | None = None,
    engine: Engine | None = None,
    save_every: int = 1000,
    log_every: int = 50,
    progress: OnProgress | None = None,
) -> SideBySide:
    """Train configurations side by side; each leaves ``log.jsonl`` and ``checkpoint/`` in its folder, as if it had been alone.

    Args:
      configurations: of one shape, batch size and number of steps.
      folders: one a configuration.
      resume: where the common checkpoint goes while training lasts; a run killed at any moment goes on from there.
      starts: the model that each one fine-tunes; None starts from its seed.
      engine: device and arithmetic; `Engine.fast("cuda")` for a GPU.
      save_every, log_every: steps between checkpoints and between lines of the logs.
      progress: called with the mean loss of all.
    """
    if len(folders) != len(configurations):
        raise ValueError(f"{len(configurations)} configurations but {len(folders)} folders: give one each")
    if save_every < 1 or log_every < 1:
        raise ValueError(f"save_every={save_every}, log_every={log_every}: both must be at least 1")
    trainer = SideBySide(configurations, engine=engine, starts=starts)
    found = checkpoint.latest(resume)
    if found:
        trainer.restore(checkpoint.load(found))
    logs = [Log(Path(folder) / "log.jsonl", step=trainer.step) for folder in folders]
    timer = Timer(trainer.step, trainer.steps)
    try:
        while trainer.step < trainer.steps:
            for figures in trainer.advance(save_every - trainer.step % save_every):
                if figures.step % log_every == 0 or figures.step == trainer.steps - 1:
                    _write(logs, configurations, figures)
                if progress:
                    progress(timer.at(figures.step + 1, _mean(figures.loss_M), _mean(figures.nll_M)))
            for log in logs:
                log.sync()
            checkpoint.save(resume, trainer.checkpoint())
    finally:
        for log in logs:
            log.close()
    for m, folder in enumerate(folders):
        average = trainer.model(m, average=True) if configurations[m].train.ema else None
        save_finished(Path(folder), trainer.model(m), average)
    shutil.rmtree(resume, ignore_errors=True)
    return trainer


def _write(logs: Sequence[Log], configurations: Sequence[Configuration], figures: StepLog) -> None:
    columns = zip(logs, configurations, figures.loss_M, figures.nll_M, figures.grad_norm_M, strict=True)
    for log, configuration, loss, nll, norm in columns:
        lr = configuration.train.lr(figures.step)
        log.write({"step": figures.step, "loss": loss, "nll": nll, "grad_norm": norm, "lr": lr})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
