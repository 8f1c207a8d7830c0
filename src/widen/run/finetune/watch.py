"""What a fine-tuning writes while it runs: log, checkpoints to resume from, progress. Only the first process writes.

A checkpoint counts once it holds ``whole.json``, which is written last; until then the checkpoint before it is kept.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widen.disk.atomic_folder import flush
from widen.disk.checksums import write_checksums
from widen.disk.json_file import read_json, write_sealed
from widen.train.log import Log

from ..folder import StageProgress

__all__ = ["drop_others", "log_line", "newest_whole", "same_spread", "step_after", "watcher"]

WHOLE = "whole.json"
RENAMED = {
    "learning_rate": "lr",
    "eval_loss": "eval_nll",
    "weight_ess": "ess",
    "weight_zero_share": "zero_share",
}
"""Names of transformers' log and of our trainer's, and what the logs of all runs call them."""
TIMES = ("runtime", "per_second", "total_flos", "train_loss")


def newest_whole(resume: Path) -> Path | None:
    """The newest checkpoint that was finished, or None."""
    whole = [path for path in resume.glob("checkpoint-*") if (path / WHOLE).is_file()]
    return max(whole, key=_step_of, default=None)


def same_spread(checkpoint: Path | None, *, spread: bool) -> None:
    """Refuse to resume without FSDP from a checkpoint written with it, and the other way round: their formats differ."""
    if checkpoint is None or read_json(checkpoint / WHOLE).get("fsdp", spread) == spread:
        return
    before, now = ("without", "with") if spread else ("with", "without")
    raise ValueError(
        f"{checkpoint} was written {before} FSDP and this run is {now} it: continue as the run began, "
        f"or remove {checkpoint.parent} to begin again"
    )


def drop_others(resume: Path, kept: Path | None) -> None:
    """Remove every checkpoint but one: older ones, and any that a kill left half written."""
    for path in resume.glob("checkpoint-*"):
        if path != kept:
            shutil.rmtree(path)


def _step_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def step_after(checkpoint: Path | None) -> int:
    """The step that comes next."""
    return 0 if checkpoint is None else _step_of(checkpoint)


def log_line(logs: Mapping[str, Any], step: int) -> dict[str, Any] | None:
    """One line of log.jsonl, or None if a log holds no number of a step. Times are left out.

    >>> log_line({"loss": 2.5, "learning_rate": 1e-6, "epoch": 0.5}, 10)
    {'step': 9, 'loss': 2.5, 'lr': 1e-06, 'epoch': 0.5}
    """
    if "train_runtime" in logs:
        return None
    kept = {RENAMED.get(k, k): v for k, v in logs.items() if not k.endswith(TIMES)}
    # JSON has no infinity and no nan: write them as words
    kept = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in kept.items()}
    return {"step": step - 1, **kept}


def watcher(
    *,
    log: Log | None,
    resume: Path,
    what: str,
    first: int,
    progress: StageProgress | None,
    main: bool,
    evaluate: bool,
    spread: bool,
) -> Any:
    """The callback that writes log lines, marks checkpoints as whole and reports progress."""
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
        """See the module."""

        def __init__(self) -> None:
            self.steps = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps = state.max_steps
            self._tell(first)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            line = log_line(logs or {}, state.global_step)
            if line is not None and log is not None:
                log.write(line)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # Evaluate here, before the checkpoint of this step. The host evaluates after it: a run killed in between would skip one.
            last = state.global_step >= state.max_steps
            control.should_evaluate = evaluate and (last or abs(state.epoch - round(state.epoch)) < 1e-9)
            if last:
                # The finished model follows at once. Resumed from a checkpoint of the last step, the host would make one step too many
                # (seen in transformers 5.22).
                control.should_save = False
            self._tell(state.global_step)

        def _tell(self, step: int) -> None:
            if progress is not None and main:
                progress(what, step, self.steps)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            _wait()  # every process has written its random state
            if main:
                checkpoint = resume / f"checkpoint-{state.global_step}"
                if log is not None:
                    log.sync()
                write_checksums(checkpoint)
                flush(checkpoint)
                write_sealed(checkpoint / WHOLE, {"step": state.global_step, "fsdp": spread})
                drop_others(resume, checkpoint)

    return Watcher()


def _wait() -> None:
    from accelerate import PartialState

    PartialState().wait_for_everyone()
