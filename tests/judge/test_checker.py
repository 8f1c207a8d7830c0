"""A checker of the user's own: scores, keys and named failures, in order and once."""

import json
from pathlib import Path

import pytest
from sandbox_shared import LIMITS, only, shared

from widen.judge import Checked, Limits, Sandbox, checker, run_checker
from widen.judge.worker import Outcome

pytestmark = pytest.mark.sandbox
CHECKER = """
import os, time
def check(prompt, answer):
    if answer == "wait":
        time.sleep(60)
    if answer == "die":
        os._exit(3)
    if answer == "raise":
        raise KeyError("no such thing")
    return {"half": 0.5, "two": 2, "none": None, "numpy": __import__("numpy").bool_(True)}.get(answer, prompt in answer)
def key(answer):
    return 7 if answer == "p bad key" else answer.lower().strip()
"""


def run(tmp_path, source, pairs, *, function="check", sandbox=None, **more):
    (tmp_path / "own.py").write_text(source)
    return run_checker(tmp_path / "own.py", function, pairs, sandbox=sandbox or shared(), **more)


def test_scores_keys_and_failures_come_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(checker, "_BATCH", 5)
    only(monkeypatch)
    answers = ["P p", "no", "half", "raise", "two", "none", "wait", "p again", "die", "p bad key", "numpy", "P p"]
    with Sandbox(limits=type(LIMITS)(wall_seconds=0.5), workers=1) as quick:
        found = run(tmp_path, CHECKER, [("p", answer) for answer in answers], sandbox=quick)
    scored = {i: (one.score, one.key) for i, one in enumerate(found) if one.status == "scored"}
    assert scored == {
        0: (1.0, "p p"),
        1: (0.0, "no"),
        2: (0.5, "half"),
        7: (1.0, "p again"),
        10: (1.0, "numpy"),
        11: (1.0, "p p"),
    }
    failed = {i: (one.status, one.detail) for i, one in enumerate(found) if one.status != "scored"}
    assert failed == {
        3: ("error", "KeyError: 'no such thing' (line 9)"),
        4: ("wrong type", "returned 2; a bool, or a number from 0 to 1, is legal"),
        5: ("wrong type", "returned None; a bool, or a number from 0 to 1, is legal"),
        6: ("timeout", "over 0.5 s"),
        8: ("error", "the process exited early (exit status 3)"),
        9: ("wrong type", "key returned 7; a text of at most 10000 letters is legal"),
    }


def test_what_was_checked_is_not_checked_again_unless_the_checker_changes(tmp_path):
    source, ticks = "def check(prompt, answer): return prompt == answer", []
    more = {"verdicts_path": tmp_path / "v", "progress": lambda done, total: ticks.append((done, total))}
    first = run(tmp_path, source, [("a", "a"), ("a", "b"), ("a", "a")], **more)
    assert first == [Checked(status="scored", score=float(right)) for right in (True, False, True)]
    assert ticks == [(2, 3), (3, 3)]
    assert run(tmp_path, source, [("a", "b"), ("a", "a")], **more) == [first[1], first[0]]
    assert len(ticks) == 2
    run(tmp_path, source + "  # changed", [("a", "b")], **more)
    assert ticks[2:] == [(1, 1)]


def test_many_pairs_are_checked_in_few_processes(tmp_path):
    source = "import os\ndef check(prompt, answer): return True\ndef key(answer): return str(os.getpid())"
    found = run(tmp_path, source, [("p", str(i)) for i in range(100)])
    assert {one.score for one in found} == {1.0}
    assert len({one.key for one in found}) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def chek(prompt, answer): return True", r"own\.py: defines no 'check'; legal is def check\(prompt: str"),
        (
            "import pytest\ndef check(p, a): return True",
            r"does not load \(ModuleNotFoundError.*standard library, numpy",
        ),
        ("def check(p, a:", r"own\.py: not Python"),
        ("import os; os._exit(0)", r"own\.py: ended, or took over"),
    ],
)
def test_a_file_that_cannot_serve_is_refused_by_name(tmp_path, source, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, source, [("p", "a")])


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.py"):
        run_checker(tmp_path / "nowhere.py", "check", [("p", "a")], sandbox=shared())


def test_a_checker_runs_inside_the_walls(tmp_path):
    (tmp_path / "secret").write_text("hush")
    source = f"def check(p, a): return open({str(tmp_path / 'secret')!r}).read() == 'hush'"
    (found,) = run(tmp_path, source, [("p", "a")])
    assert (found.status, "FileNotFoundError" in found.detail) == ("error", True)


def test_the_example_compares_the_final_number_with_gsm8ks_solutions(tmp_path):
    file = Path(__file__).parents[2] / "examples" / "gsm8k_checker.py"
    question = "A box holds 1,250 nails. How many nails are in 2 boxes?"
    solution = {"question": question, "answer": "2 boxes hold 2 * 1250 nails.\n#### 2,500"}
    (tmp_path / "test.jsonl").write_text(json.dumps(solution) + "\n")
    answers = ["1250 * 2 = 2500 nails. #### 2,500", "It is $2500", "2 * 1250 is 2,400", "I do not know", "2500.0"]
    pairs = [(f"Q: {question}\nA:", answer) for answer in answers] + [("What else?", "1")]
    found = run_checker(file, "check", pairs, sandbox=shared(), files=[tmp_path / "test.jsonl"])
    assert [one.score for one in found] == [1.0, 1.0, 0.0, 0.0, 1.0, None]
    assert [one.key for one in found] == ["2500", "2500", "2400", "", "2500", None]
    assert (found[-1].status, "no solution for the prompt" in found[-1].detail) == ("error", True)


class Noting(Sandbox):
    """Notes the jobs and runs none of them."""

    def __init__(self, **limits):
        super().__init__(limits=Limits(**limits))
        self.jobs = []

    def settings(self):
        return {}

    def stream(self, jobs):
        while jobs:
            self.jobs.append(jobs.popleft())
            results = [("scored", 1.0, None, "")] * len(self.jobs[-1].exam["pairs"])
            yield self.jobs[-1], Outcome({}, report={"status": "ok", "results": results})


@pytest.mark.parametrize("limits", [{}, {"wall_seconds": 60.0}, {"wall_seconds": 3600.0}, {"cpu_seconds": 900}])
def test_a_process_has_the_time_of_all_its_pairs_so_that_the_last_ones_are_not_cut_off(tmp_path, limits):
    """One process may run for an hour. It used to get 64 pairs of a minute each, and the 60th was a timeout."""
    sandbox = Noting(**limits)
    run(tmp_path, "def check(prompt, answer): return True", [("p", str(i)) for i in range(100)], sandbox=sandbox)
    assert sum(len(job.exam["pairs"]) for job in sandbox.jobs) == 100
    for job in sandbox.jobs:
        number = len(job.exam["pairs"])
        assert number == 1 or job.wall_seconds >= sandbox.limits.wall_seconds * (number + 1)
        assert number == 1 or job.cpu_seconds >= job.wall_seconds
        assert max(job.wall_seconds, job.cpu_seconds) <= 3600
    if not limits:
        assert len(sandbox.jobs) == 2


def test_files_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "large").write_text("x" * LIMITS.tmp_bytes)
    with pytest.raises(ValueError, match=f"take {LIMITS.tmp_bytes} bytes"):
        run(tmp_path, "def check(p, a): return True", [("p", "a")], files=[tmp_path / "large"])
