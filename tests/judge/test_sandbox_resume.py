"""A judge killed midway goes on where it stopped: verdicts reached are kept, and no process is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from sandbox_shared import descendants, gone, shared

from widen.judge import Assertions, Program, Verdict, VerdictFile, judge_programs

JUDGE = """
import sys
sys.path[:0] = {path!r}
from test_sandbox_resume import programs
from sandbox_shared import shared
from widen.judge import Assertions, judge_programs, selftest
selftest.ATTACKS.clear()
judge_programs(Assertions(), programs(), sandbox=shared(), verdicts_path={file!r})
"""


def programs():
    body = "import time\ndef f(x):\n    time.sleep(0.05)\n    return x + {}"
    return [
        Program(problem="p", source=body.format(i % 2) + f"  # {i}", tests=("assert f(1) == 2",)) for i in range(24)
    ]


def verdict(seconds=0.0):
    return Verdict(status="passed", tests_passed=1, tests=1, seconds=seconds)


@pytest.mark.sandbox
def test_a_killed_judge_resumes_and_leaves_no_process(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    script = JUDGE.format(path=[str(Path(__file__).parent), *[p for p in sys.path if p]], file=str(file))
    judge = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (not file.exists() or file.read_bytes().count(b"\n") < 3):
            time.sleep(0.02)
        below = descendants(judge.pid)
        assert len(below) >= 4
    finally:
        os.kill(judge.pid, signal.SIGKILL)
        judge.wait()
    assert gone(below, within=5.0)
    kept = file.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    assert 3 <= whole.count(b"\n") < 24
    file.write_bytes(whole + b'{"v": 1, "key": "torn')
    ticks = []
    verdicts = judge_programs(
        Assertions(), programs(), sandbox=shared(), verdicts_path=file, progress=lambda done, total: ticks.append(done)
    )
    assert [v.passed for v in verdicts] == [i % 2 == 1 for i in range(24)]
    assert ticks[0] == whole.count(b"\n") + 1  # what was judged before is not judged again
    after = file.read_bytes()
    assert after.startswith(whole)
    assert after.count(b"\n") == 24
    assert b"torn" not in after


@pytest.mark.sandbox
def test_a_verdict_once_reached_is_not_reached_again(tmp_path):
    some = programs()[:4]
    first = judge_programs(Assertions(), some, sandbox=shared(), verdicts_path=tmp_path / "v")
    content = (tmp_path / "v").read_bytes()
    ticks = []
    again = judge_programs(
        Assertions(), some, sandbox=shared(), verdicts_path=tmp_path / "v", progress=lambda *a: ticks.append(a)
    )
    assert again == first
    assert ticks == []
    assert (tmp_path / "v").read_bytes() == content


@pytest.mark.sandbox
def test_a_sandbox_that_is_killed_under_the_judge_is_replaced():
    os.kill(next(iter(descendants(shared()._pool[0].process.pid))), signal.SIGKILL)
    assert [v.passed for v in judge_programs(Assertions(), programs()[:6], sandbox=shared())] == [
        i % 2 == 1 for i in range(6)
    ]


@pytest.mark.sandbox
def test_a_caller_that_leaves_early_leaves_nothing_running():
    from collections import deque

    from widen.judge.worker import Job

    exam = {"outputs": [""], "tolerance": 0.0, "ignore_case": False}
    jobs = deque(Job(f"import time; time.sleep(5)  # {i}", exam, inputs=("",)) for i in range(4))
    jobs.appendleft(Job("print(1)", exam, inputs=("",)))
    stream = shared().stream(jobs)
    next(stream)
    below = {pid for worker in shared()._pool for pid in descendants(worker.process.pid)}
    stream.close()
    assert gone(below, within=5.0)


def test_records_are_appended_and_read_back(tmp_path):
    with VerdictFile(tmp_path / "v", Verdict) as file:
        for i in range(3):
            file.add(f"k{i}", verdict(float(i)))
    with VerdictFile(tmp_path / "v", Verdict) as file:
        assert file.known == {f"k{i}": verdict(float(i)) for i in range(3)}


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_torn_last_line_is_dropped_in_silence_and_the_file_goes_on(tmp_path, cut):
    path = tmp_path / "v"
    with VerdictFile(path, Verdict) as file:
        file.add("a", verdict())
        file.add("b", verdict())
    path.write_bytes(path.read_bytes()[:-cut])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with VerdictFile(path, Verdict) as file:
            assert set(file.known) == {"a"}
            file.add("c", verdict())
        with VerdictFile(path, Verdict) as file:
            assert set(file.known) == {"a", "c"}


@pytest.mark.parametrize(
    "damage", [(b'"passed"', b'"failed"'), (b'"k1"', b'"k9"'), (b'"v": 1', b'"v": 7'), (b"{", b"\x00")]
)
def test_a_damaged_record_is_named_and_not_believed(tmp_path, damage):
    path = tmp_path / "v"
    with VerdictFile(path, Verdict) as file:
        for i in range(3):
            file.add(f"k{i}", verdict())
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(*damage, 1)
    path.write_bytes(b"".join(lines))
    with pytest.warns(RuntimeWarning, match=r"1 damaged records \(first: line 2\)"), VerdictFile(path, Verdict) as file:
        assert set(file.known) == {"k0", "k2"}


def test_two_judges_do_not_write_to_one_file(tmp_path):
    with (
        VerdictFile(tmp_path / "v", Verdict),
        pytest.raises(ValueError, match="another judge"),
        VerdictFile(tmp_path / "v", Verdict),
    ):
        pass


def test_every_line_is_json_with_a_checksum(tmp_path):
    with VerdictFile(tmp_path / "v", Verdict) as file:
        file.add("k", verdict())
    record = json.loads((tmp_path / "v").read_text())
    assert set(record) == {"v", "key", "verdict", "check"}
