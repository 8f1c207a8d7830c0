"""Models that are made side by side: who is tried again, and who failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from widen.run import side_by_side
from widen.run.side_by_side import TRIES, processes, report, run_all


def test_a_model_without_memory_is_tried_again_after_the_others():
    order, said = [], []

    def large():
        order.append("large")
        if order.count("large") == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    tasks = {"large": large, "a": lambda: order.append("a"), "b": lambda: order.append("b")}
    with ThreadPoolExecutor(1) as pool:
        assert run_all(pool, tasks, said.append) == []
    assert order == ["large", "a", "b", "large"]
    assert "large ran out of memory and is tried again after the others" in said
    assert any(text.endswith("large is done") for text in said)
    assert said[-1].startswith("3 of 3 models")


def test_a_model_that_never_fits_fails_after_its_last_try():
    tried = []

    def huge():
        tried.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory")

    with ThreadPoolExecutor(2) as pool:
        assert run_all(pool, {"huge": huge, "a": lambda: None}, lambda text: None) == ["huge: CUDA out of memory"]
    assert len(tried) == TRIES


def test_another_error_is_not_tried_again():
    tried = []

    def wrong():
        tried.append(1)
        raise ValueError("bad data")

    with ThreadPoolExecutor(1) as pool:
        assert run_all(pool, {"wrong": wrong}, lambda text: None) == ["wrong: bad data"]
    assert len(tried) == 1


def test_the_progress_of_a_process_is_reported_in_the_one_that_started_it():
    seen = []
    tasks = {name: partial(report, f"train {name}", 3, 3) for name in "ab"}
    with processes(1, lambda *at: seen.append(at)) as pool:
        assert run_all(pool, tasks, lambda text: None) == []
    assert seen == [("train a", 3, 3), ("train b", 3, 3)]


KILLED = """
from concurrent.futures.process import BrokenProcessPool
from test_side_by_side import die_while_reporting
from widen.run.side_by_side import processes
if __name__ == "__main__":
    try:
        with processes(1) as pool:
            pool.submit(die_while_reporting).result()
    except BrokenProcessPool:
        print("ended")
"""


def die_while_reporting():
    side_by_side._reports._wlock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_while_it_reports_does_not_stop_the_one_that_started_it():
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=here, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n")


PARENT = """
import os, time
from test_side_by_side import say_and_sleep
from widen.run.side_by_side import processes
if __name__ == "__main__":
    with processes(2) as pool:
        list(pool.map(say_and_sleep, range(2)))
"""


def say_and_sleep(number):
    print(os.getpid(), flush=True)
    time.sleep(60)


def test_the_processes_end_with_a_parent_that_is_killed():
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=here, stdout=subprocess.PIPE, text=True)
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(map(alive, pids))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = list(filter(alive, pids))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    parent.stdout.close()
    assert not left


def alive(pid):
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
