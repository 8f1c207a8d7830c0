"""Several real models at a time on one device, each in a process of its own.

A training step of a small model waits for Python, not for the GPU, so that a few processes on one GPU finish sooner than one. Models that
others start from are trained first. What is on disk is not made again, so that a later `run` only tabulates.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from .experiment import Experiment
from .finetune.config import FineTune
from .finetune.stage import fine_tune
from .score_settings import ExactScore


def make_side_by_side(
    by_model: Mapping[str, Sequence[Experiment]],
    root: str | Path,
    *,
    jobs: int,
    device: str,
    stages: Sequence[str],
    skip_bad: bool = False,
    notice: Callable[[str], None] = print,
) -> None:
    """Train, sample and exactly score real models, ``jobs`` of them at a time. A model that fails does not stop the others.

    Args:
      by_model: the experiments of each model, by the name of its folder.

    Raises:
      RuntimeError: names every model that failed, once all others are done.
    """
    if "train" in stages:
        models = [mine[0].model for mine in by_model.values()]
        starts = [one.after for one in models if isinstance(one, FineTune) and one.after is not None]
        for start in {one.key: one for one in starts}.values():
            notice(f"training first what others start from: {start.folder_name}")
            fine_tune(start, root, device=device, skip_bad=skip_bad)
    failed = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(_one_model, list(mine), str(root), device, tuple(stages), skip_bad): name
            for name, mine in by_model.items()
        }
        for done, future in enumerate(as_completed(waiting), start=1):
            error = future.exception()
            if error is not None:
                failed.append(f"{waiting[future]}: {error}")
            notice(f"{done} of {len(waiting)} models: {waiting[future]} {'failed' if error else 'is done'}")
    if failed:
        raise RuntimeError("\n".join(["some models failed; run the same command again to resume:", *failed]))


def _one_model(experiments: list[Experiment], root: str, device: str, stages: tuple[str, ...], skip_bad: bool) -> None:
    """All stages of one model, in this process."""
    from .folder import folder_of
    from .questions import questions_of
    from .runner import run, score_listed

    if made := tuple(stage for stage in stages if stage != "score"):
        run(experiments[0].name, experiments, root, device=device, stages=made, skip_bad=skip_bad)
    for one in experiments:
        if "score" in stages and isinstance(one.score, ExactScore):
            score_listed(folder_of(root, one), one, questions_of(one, root, skip_bad=skip_bad), device=device)
