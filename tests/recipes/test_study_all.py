"""All tasks of the study side by side: which run, what a failure and the end of the time do, and that the commands exist."""

import sys
import time
from pathlib import Path

from widen.run import recipe
from widen_recipes.study.all_tasks import LANES, Lane, last_line, run_all
from widen_recipes.study.make_grown import STUDIES


class Words(Lane):
    """A lane whose commands are Python programs."""

    def commands(self, root):
        return [[sys.executable, "-c", program] for program in self.recipes]


def lane(*programs):
    return Words(variables=(), recipes=programs)


def test_each_lane_runs_its_commands_in_order_and_a_failure_stops_only_its_lane(tmp_path):
    lanes = {"good": lane("print('a')", "print('b')"), "bad": lane("raise SystemExit(3)", "print('never')")}
    assert run_all(tmp_path, 1, lanes=lanes, say=lambda text: None) == {"good": 0, "bad": 3}
    assert (tmp_path / "good.log").read_text().split() == ["a", "b"]
    assert last_line(tmp_path / "good.log") == "b"
    assert "never" not in (tmp_path / "bad.log").read_text()


def test_the_end_of_the_time_stops_what_runs_with_its_children_and_begins_nothing_more(tmp_path):
    path = tmp_path / "pids"
    program = f"""
import os, subprocess, time
child = subprocess.Popen(["sleep", "60"])
open({str(path)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(60)
"""
    began = time.monotonic()
    assert run_all(tmp_path, 1.5 / 60, lanes={"long": lane(program, "print('never')")}) == {"long": None}
    while left := [pid for pid in path.read_text().split() if alive(pid)]:
        assert time.monotonic() - began < 30, left
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
