"""The callback of a fine-tuning: writes the log, marks checkpoints as complete, reports progress.

A checkpoint is complete once it holds ``whole.json``, which is written last; until then the checkpoint before it is kept.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from widen.disk.atomic_folder import flush
from widen.disk.checksums import write_checksums
from widen.disk.json_file import read_json, write_sealed
from widen.train.log import Log

__all__ = ["drop_others", "log_line", "newest_whole", "same_spread", "step_after", "watcher"]

WHOLE = "whole.json"
RENAMED = {"learning_rate": "lr", "eval_loss": "eval_nll", "weight_ess": "ess", "weight_zero_share": "zero_share"}
"""Names in the host's log, and the names in log.jsonl."""
TIMES = ("runtime", "per_second", "total_flos", "train_loss")


def newest_whole(resume: Path) -> Path | None:
    """The newest complete checkpoint, or None."""
    return max((path for path in resume.glob("checkpoint-*") if (path / WHOLE).is_file()), key=step_after, default=None)


def step_after(checkpoint: Path | None) -> int:
    """The first step after a checkpoint."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def same_spread(checkpoint: Path | None, *, spread: bool) -> None:
    """Refuse to resume without FSDP from a checkpoint written with it, and vice versa: their formats differ."""
    if checkpoint is None or read_json(checkpoint / WHOLE).get("fsdp", spread) == spread:
        return
    before, now = ("without", "with") if spread else ("with", "without")
    raise ValueError(
        f"{checkpoint} was written {before} FSDP and this run is {now} it: continue as the run began, "
        f"or remove {checkpoint.parent} to begin again"
    )


def drop_others(resume: Path, kept: Path | None) -> None:
    """Remove every checkpoint but one: older ones, and half-written ones."""
    for path in resume.glob("checkpoint-*"):
        if path != kept:
            shutil.rmtree(path)


def log_line(logs: Mapping[str, Any], step: int) -> dict[str, Any] | None:
    """One line of log.jsonl without times, or None for the host's last log, which holds only times.

    >>> log_line({"loss": 2.5, "learning_rate": 1e-6, "epoch": 0.5}, 10)
    {'step': 9, 'loss': 2.5, 'lr': 1e-06, 'epoch': 0.5}
    """
    if "train_runtime" in logs:
        return None
    kept = {RENAMED.get(k, k): v for k, v in logs.items() if not k.endswith(TIMES)}
    # JSON has no infinity and no nan: write them as strings.
    kept = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in kept.items()}
    return {"step": step - 1, **kept}


def watcher(
    *,
    log: Log | None,
    resume: Path,
    first: int,
    progress: Callable[[int, int], None],
    evaluate: bool,
    spread: bool,
) -> Any:
    """The callback. ``log`` is None in all processes but the first, which alone writes."""
    from accelerate import PartialState
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
        """See the module."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            progress(first, state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            line = log_line(logs or {}, state.global_step)
            if line is not None and log is not None:
                log.write(line)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # Evaluate before the checkpoint of this step. The host evaluates after it, so a kill in between would skip an evaluation.
            last = state.global_step >= state.max_steps
            control.should_evaluate = evaluate and (last or abs(state.epoch - round(state.epoch)) < 1e-9)
            if last:
                # Resumed from a checkpoint of the last step, the host would make one step too many (seen in transformers 5.22).
                control.should_save = False
            progress(state.global_step, state.max_steps)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            PartialState().wait_for_everyone()  # every process has written its random state
            if log is not None:
                checkpoint = resume / f"checkpoint-{state.global_step}"
                log.sync()
                write_checksums(checkpoint)
                flush(checkpoint)
                write_sealed(checkpoint / WHOLE, {"step": state.global_step, "fsdp": spread})
                drop_others(resume, checkpoint)

    return Watcher()
