"""Several real models at a time on one device, each in a process of its own.

A training step of a small model waits for Python, not for the GPU, so that a few processes on one GPU finish sooner than one. Models that
others start from are trained first. What is on disk is not made again, so that a later `run` only tabulates.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from widen.train.settings import Configuration

from .experiment import Experiment
from .finetune.config import FineTune
from .finetune.stage import fine_tune
from .folder import Say, StageProgress, silent
from .score_settings import ExactScore, SlotScore
from .scoring.job import ScoreTools

TRIES = 4
"""How often a model is tried that runs out of memory: the others may leave more room later."""
_reports: Queue[Any]
"""Of a process that makes models: where it reports its progress."""


def make_side_by_side(
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    jobs: int,
    device: str,
    stages: Sequence[str],
    rows: int | None = None,
    drop_checkpoints: bool = False,
    skip_bad: bool = False,
    progress: StageProgress = silent,
    notice: Say = print,
) -> None:
    """Train, sample and score real models, ``jobs`` of them at a time. A model that fails does not stop the others. A
    model that runs out of GPU memory is tried again after the others.

    Exact and slot scores are made here; k-NN scores share a cache of features and programs share a sandbox, so that `run` makes them later.

    Args:
      rows: samples that each model draws at a time; by default as many as fit into the free memory.
      drop_checkpoints: remove a fine-tuned model's weights once its samples or exact scores are on disk.

    Raises:
      RuntimeError: names every model that failed, once all others are done.
    """
    groups: dict[str, list[Experiment]] = {}
    for one in experiments:
        if not isinstance(one.model, Configuration):
            groups.setdefault(one.folder_name, []).append(one)
    starts = starts_of(experiments)
    if "train" in stages:
        for name, start in starts.items():
            notice(f"training first what others start from: {name}")
            fine_tune(start, root, device=device, skip_bad=skip_bad, progress=progress)
    if not groups:
        return
    one_model = partial(_one_model, root=root, device=device, stages=stages, rows=rows, skip_bad=skip_bad)
    tasks = {
        name: partial(
            one_model, mine, label=f"model {number} of {len(groups)}", drop=drop_checkpoints and name not in starts
        )
        for number, (name, mine) in enumerate(groups.items(), start=1)
    }
    with processes(jobs, progress) as pool:
        failed = run_all(pool, tasks, notice)
    if failed:
        raise RuntimeError("\n".join(["some models failed; run the same command again to resume:", *failed]))


@contextmanager
def processes(jobs: int, progress: StageProgress = silent) -> Iterator[ProcessPoolExecutor]:
    """Processes that report their progress to this one. They end when it does, however it ends: a killed run leaves no model training."""
    context = multiprocessing.get_context("spawn")
    reports: Queue[Any] = context.Queue()
    listener = Thread(target=_listen, args=(reports, progress), daemon=True)
    listener.start()
    try:
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(reports,)) as pool:
            yield pool
    finally:
        # A process that was killed while it reported leaves the queue locked: do not wait for it.
        reports.cancel_join_thread()
        reports.put(None)
        listener.join(timeout=2)


def _listen(reports: Queue[Any], progress: StageProgress) -> None:
    for report in iter(reports.get, None):
        with suppress(OSError):  # of a closed terminal: whoever reports must not wait for it
            progress(*report)


def _begin(reports: Queue[Any]) -> None:
    """In a new process: remember where to report, and end with the parent."""
    global _reports
    _reports = reports

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def report(what: str, done: int, total: int) -> None:
    """Send progress to the process that started this one."""
    _reports.put((what, done, total))


def run_all(pool: Executor, tasks: Mapping[str, Callable[[], None]], notice: Say) -> list[str]:
    """Run every task; returns one line for each that failed. A task that runs out of GPU memory is tried again after the others."""
    failed, tries, done = [], dict.fromkeys(tasks, 1), 0
    running = {pool.submit(task): name for name, task in tasks.items()}
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            name, error = running.pop(future), future.exception()
            if isinstance(error, torch.OutOfMemoryError) and tries[name] < TRIES:
                tries[name] += 1
                notice(f"{name} ran out of memory and is tried again after the others")
                running[pool.submit(tasks[name])] = name
                continue
            if error is not None:
                failed.append(f"{name}: {error}")
            done += 1
            notice(f"{done} of {len(tasks)} models: {name} {'failed' if error else 'is done'}")
    return failed


def starts_of(experiments: Sequence[Experiment]) -> dict[str, FineTune]:
    """The models that others start from, each once, by the name of their folder."""
    starts = (one.model.after for one in experiments if isinstance(one.model, FineTune))
    return {start.folder_name: start for start in starts if start is not None}


def _one_model(
    experiments: list[Experiment],
    *,
    root: str | Path,
    device: str,
    stages: Sequence[str],
    rows: int | None,
    skip_bad: bool,
    label: str,
    drop: bool,
) -> None:
    """All stages of one model, in this process; ``drop`` removes its weights at the end."""
    from .runner import drop_finished, job_of, run, score_one

    def progress(what: str, done: int, total: int) -> None:
        report(f"{label}: {what}", done, total)  # two models may have the same name and seed

    _free_memory()  # of a model that failed before
    try:
        if made := tuple(stage for stage in stages if stage != "score"):
            make = partial(run, device=device, stages=made, rows=rows, skip_bad=skip_bad, progress=progress)
            make(experiments[0].name, experiments, root)
        tools = ScoreTools(root, device=device, progress=progress)
        jobs = [job_of(one, tools, skip_bad=skip_bad) for one in experiments]
        for job in jobs:
            if "score" in stages and isinstance(job.experiment.score, (ExactScore, SlotScore)):
                score_one(job)
        if drop:
            drop_finished(jobs)
    finally:
        _free_memory()


def _free_memory() -> None:
    """Give back what the last model held, so that other processes can use it."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU
