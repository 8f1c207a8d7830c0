"""All tasks of the study side by side: which run, what a failure and the end of the time do, and that the commands exist."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from widen.run import recipe
from widen_recipes.study.all_tasks import LANES, Lane, last_line, run_all
from widen_recipes.study.make_grown import STUDIES


class Words(Lane):
    """A lane whose commands are Python programs."""

    def commands(self, root):
        return [[sys.executable, "-c", program] for program in self.recipes]


def lane(*programs):
    return Words(variables=(), recipes=programs)


LONG = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "60"])
print(os.getpid(), child.pid, flush=True)
time.sleep(60)
"""


def test_each_lane_runs_its_commands_in_order_and_a_failure_stops_only_its_lane(tmp_path):
    lanes = {"good": lane("print('a')", "print('b')"), "bad": lane("raise SystemExit(3)", "print('never')")}
    assert run_all(tmp_path, 1, lanes=lanes, say=lambda text: None) == {"good": 0, "bad": 3}
    assert (tmp_path / "good.log").read_text().split() == ["a", "b"]
    assert last_line(tmp_path / "good.log") == "b"
    assert "never" not in (tmp_path / "bad.log").read_text()


def test_the_end_of_the_time_stops_what_runs_with_its_children_and_begins_nothing_more(tmp_path):
    began = time.monotonic()
    assert run_all(tmp_path, 1.5 / 60, lanes={"long": lane(LONG, "print('never')")}) == {"long": None}
    assert_gone((tmp_path / "long.log").read_text().split(), before=began + 30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_stops_what_runs_with_its_children(tmp_path, number):
    program = f"""
import signal
from test_study_all import LANES, LONG, lane
from widen_recipes.study.all_tasks import all_tasks
signal.signal({int(number)}, signal.default_int_handler if {int(number)} == 2 else signal.SIG_DFL)  # the tests may run under nohup
LANES.clear()
LANES["long"] = lane(LONG, "print('never')")
all_tasks({str(tmp_path)!r})
"""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    began, log = time.monotonic(), tmp_path / "long.log"
    command = subprocess.Popen([sys.executable, "-c", program], env=here, stderr=subprocess.PIPE, text=True)
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < began + 60
        time.sleep(0.05)
    command.send_signal(number)
    _, said = command.communicate(timeout=30)
    assert (command.returncode, said) == (128 + number, "stopped; the same command continues\n")
    assert_gone(log.read_text().split(), before=time.monotonic() + 30)


def assert_gone(pids, *, before):
    assert len(pids) == 2
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < before, left
        time.sleep(0.05)


def alive(pid):
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_lane_without_its_variables_is_left_out_and_named(tmp_path):
    said = []
    lanes = {"one": Words(variables=("WIDEN_A", "WIDEN_B"), recipes=("raise SystemExit(1)",))}
    assert run_all(tmp_path, 1, lanes=lanes, environ={"WIDEN_A": "x"}, say=said.append) == {}
    assert said == ["one is left out: WIDEN_B is not set"]


def test_every_lane_names_recipes_growths_and_all_variables_that_these_read(monkeypatch):
    for name, one in LANES.items():
        read = []
        for module in ("countdown", "coverageqa", "e2e", "grow", "grow_small", "code", "mathqa"):
            place = sys.modules[f"widen_recipes.study.{module}"]
            monkeypatch.setattr(place, "path_of", lambda variable, to=read: to.append(variable) or f"${variable}")
        for recipe_name in one.recipes:
            assert recipe.find("widen_recipes", f"study:{recipe_name}"), name
        for task in one.grown:
            STUDIES[task]()
        assert set(read) == set(one.variables), name
