"""Run the tasks of the study side by side on one GPU.

    nvidia-cuda-mps-control -d                               # once, so that the processes share the GPU
    python -m widen_recipes.study all runs 25                # stop after 25 minutes; the same command continues

Each task has one process, which runs its commands one after the other, and a folder of its own:

    <runs>/<task>/            run folders and tables
    <runs>/<task>.log         what its commands print

Models, samples and scores that are on disk are not made again. A table holds what was finished: `tables` writes them without a GPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVERY = 30.0
"""Seconds between two reports of progress."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """The commands of one task, in order.

    Args:
      variables: environment variables that its recipes read.
      grown: growths that its recipes compare, by their names in `make_grown.STUDIES`.
      recipes: of `widen_recipes.study`.
      jobs: models at a time.
      rows: samples that a model draws at a time: several models share the memory.
    """

    variables: tuple[str, ...]
    recipes: tuple[str, ...]
    grown: tuple[str, ...] = ()
    jobs: int = 1
    rows: int = 2048

    def commands(self, root: Path) -> list[list[str]]:
        """What to run, each as a list of words."""
        grow = [sys.executable, "-m", "widen_recipes.study", "grow"]
        found = [[*grow, task, str(root), str(self.jobs)] for task in self.grown]
        for name in self.recipes:
            flags = {"--device": "cuda", "--jobs": str(self.jobs), "--rows": str(self.rows), "--out": str(root)}
            words = [word for flag in flags.items() for word in flag]
            found.append([*_run(name), *words, "--drop-checkpoints"])
        return found


def _run(recipe: str) -> list[str]:
    return [sys.executable, "-m", "widen.cli", "run", f"study:{recipe}"]


_SMALL, _GROWN = "WIDEN_SMOLLM2", "WIDEN_GROWN"
LANES = {
    "countdown": Lane(
        variables=(_SMALL, _GROWN, "WIDEN_COUNTDOWN"), grown=("countdown",), recipes=("grow", "countdown"), jobs=4
    ),
    "e2e": Lane(
        variables=(_SMALL, _GROWN, "WIDEN_E2E", "WIDEN_MPNET"), grown=("e2e",), recipes=("e2e_grow", "e2e"), jobs=4
    ),
    "coverageqa": Lane(
        variables=(_SMALL, _GROWN, "WIDEN_COVERAGEQA"),
        grown=("coverageqa_small_1", "coverageqa_small_2"),
        recipes=("coverageqa_small_grow", "coverageqa", "coverageqa_zero_shot"),
        jobs=2,
    ),
    "mathqa": Lane(
        variables=("WIDEN_QWEN", _GROWN, "WIDEN_TEMPLATES"), grown=("mathqa",), recipes=("mathqa",), jobs=5, rows=2400
    ),
    "code": Lane(variables=("WIDEN_QWEN", "WIDEN_HUMANEVAL", "WIDEN_MBPP"), recipes=("code",)),
    "qwen": Lane(
        variables=("WIDEN_QWEN", "WIDEN_COVERAGEQA"), recipes=("coverageqa_qwen", "coverageqa_qwen_zero_shot"), jobs=2
    ),
}
"""Sixteen cores and 140 GB of GPU memory carry all of them."""


def run_all(
    root: str | Path,
    minutes: float,
    *,
    lanes: Mapping[str, Lane] = LANES,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = print,
) -> dict[str, int | None]:
    """Run the lanes whose variables are set.

    Returns:
      The exit status of each lane: of its first command that failed, 0 if all ended well, None if time ran out.
    """
    root, began = Path(root), time.monotonic()
    root.mkdir(parents=True, exist_ok=True)
    lacking = {name: [one for one in lane.variables if one not in environ] for name, lane in lanes.items()}
    for name, unset in lacking.items():
        if unset:
            say(f"{name} is left out: {', '.join(unset)} {'are' if len(unset) > 1 else 'is'} not set")
    waiting = {name: lane.commands(root / name) for name, lane in lanes.items() if not lacking[name]}
    running: dict[str, subprocess.Popen[bytes]] = {}
    ended, reported = dict[str, int | None](), began
    try:
        while waiting or running:
            for name in [one for one in waiting if one not in running]:
                command = waiting[name].pop(0)
                with (root / f"{name}.log").open("ab") as log:
                    # In a session of its own, so that its children can be stopped too.
                    about: dict[str, Any] = {"env": dict(environ), "start_new_session": True}
                    running[name] = subprocess.Popen(command, stdout=log, stderr=log, **about)
            for name, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                if process.returncode or not waiting[name]:
                    ended[name] = process.returncode
                    del waiting[name]
                    say(f"{name} {'failed, see its log' if process.returncode else 'is done'}")
            now = time.monotonic()
            if now - began > 60 * minutes:
                break
            if now - reported > EVERY:
                reported = now
                for name in running:
                    say(f"{(now - began) / 60:.0f} min, {name}: {last_line(root / f'{name}.log')}")
            time.sleep(0.2)
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGTERM)
        for process in running.values():
            process.wait()
    return {**ended, **dict.fromkeys(waiting, None)}


def last_line(path: Path) -> str:
    """The last line that a log shows."""
    lines = path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def all_tasks(root: str, minutes: str = "inf") -> None:
    """Run all tasks for so many minutes. Ctrl-C, SIGTERM and a closed terminal stop them too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _stop)
    for name, status in run_all(root, float(minutes)).items():
        print(f"{name}: {'no time left' if status is None else 'failed' if status else 'done'}")


def _stop(number: int, frame: object) -> None:
    """End as an error would, so that the tasks are stopped; by default, SIGTERM would leave them running."""
    print("stopped; the same command continues", file=sys.stderr)
    sys.exit(128 + number)


def tables(root: str) -> None:
    """Write the tables of what is finished."""
    for name, lane in LANES.items():
        for recipe in lane.recipes if (Path(root) / name).exists() else ():
            print(f"study:{recipe}")
            subprocess.run([*_run(recipe), "--stages", "score", "--out", str(Path(root) / name)], check=False)
