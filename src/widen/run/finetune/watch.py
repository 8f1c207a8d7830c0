"""The callback of a fine-tuning: writes the log, marks checkpoints as complete, reports progress.

A checkpoint is complete once it holds ``whole.json``, which is written last; until then the checkpoint before it is kept.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from widen.disk.atomic_folder import flush
from widen.disk.checksums import write_checksums
from widen.disk.json_file import read_json, write_sealed
from widen.train.log import Log

from ..folder import Say

WHOLE = "whole.json"
RENAMED = {"learning_rate": "lr", "eval_loss": "eval_nll"}
"""Names in the host's log, and the names in log.jsonl."""
TIMES = ("runtime", "per_second", "total_flos", "train_loss")


def newest_whole(resume: Path, *, before: int) -> Path | None:
    """The newest complete checkpoint before a step, or None."""
    whole = (path for path in resume.glob("checkpoint-*") if (path / WHOLE).is_file() and step_after(path) < before)
    return max(whole, key=step_after, default=None)


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
    """Remove every checkpoint but one and, if its training keeps the best model, the best one before it."""
    state = kept / "trainer_state.json" if kept else None
    best = json.loads(state.read_text()).get("best_model_checkpoint") if state and state.is_file() else None
    for path in resume.glob("checkpoint-*"):
        if path != kept and path.name != Path(best or "").name:
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
    evaluate_every: int,
    keep_best: bool,
    spread: bool,
    say: Say,
) -> Any:
    """The callback. ``log`` is None in all processes but the first, which alone writes. ``evaluate_every`` 0 evaluates never."""
    from accelerate import PartialState
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
        """See the module."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            progress(first, state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            line = log_line(logs or {}, state.global_step)
            if line is None:
                return
            if log is not None:
                log.write(line)
            if "eval_nll" in line:
                say(f"step {state.global_step:,}: evaluation NLL {float(line['eval_nll']):.3f}")
            elif state.global_step % math.ceil(state.max_steps / 10) == 0 or state.global_step == state.max_steps:
                say(f"step {state.global_step:,}: loss {float(line['loss']):.3f}, NLL {float(line['nll']):.3f}")

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # Evaluate before the checkpoint of this step. The host evaluates after it, so a kill in between would skip an evaluation.
            last = state.global_step >= state.max_steps
            control.should_evaluate = evaluate_every > 0 and (last or state.global_step % evaluate_every == 0)
            if last:
                # No run resumes from its last step: the host would make one step too many (seen in transformers 5.22).
                control.should_save = keep_best
            progress(state.global_step, state.max_steps)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            PartialState().wait_for_everyone()  # every process has written its random state
            if log is not None:
                checkpoint = resume / f"checkpoint-{state.global_step}"
                log.sync()
                write_checksums(checkpoint)
                flush(checkpoint)
                write_sealed(checkpoint / WHOLE, {"step": state.global_step, "fsdp": spread})
                if state.global_step < state.max_steps:
                    drop_others(resume, checkpoint)

    return Watcher()
