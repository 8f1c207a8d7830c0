"""Programs that attack the judge itself: none passes, none ends the run, and the honest program after them passes."""

import os
import resource
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
from sandbox_shared import LIMITS, assertions, only, shared, writes

from widen.judge import (
    Assertions,
    Exchange,
    Limits,
    MathQAPython,
    Program,
    Sandbox,
    StdinStdout,
    judge_programs,
    judging,
    worker,
)
from widen.judge.worker import Outcome

sandbox = pytest.mark.sandbox

SUPPLY = """
import sys
Objects = sys.modules["inside.program"].Objects
honest = Objects.answer
class Zero:
    def __getattr__(self, name): return lambda *a, **k: 0
    def __call__(self, *a, **k): return 0
def answer(self, request):
    reply = honest(self, request)
    if request[0] == "names":
        for name in ("abs", "set", "len", "sorted", "math", "oracle", "all", "__builtins__"):
            reply[1]["d"].append([name, self.encode(Zero())])
    return reply
Objects.answer = answer
def f(x): return 7
"""


@sandbox
@pytest.mark.parametrize(
    "test",
    [
        "assert abs(f(2) - 4) < 0.1",
        "assert set([f(2)]) == set([4])",
        "assert len([f(2)]) == 0",
        "assert sorted([f(2)]) == sorted([4])",
        "assert math.floor(f(2)) == math.floor(4)",
        "assert not all([f(2)])",
        "assert f(2) == oracle(2) or oracle(2) == 0",
    ],
)
def test_a_program_cannot_supply_names_that_were_not_asked_for(test):
    assert not assertions(SUPPLY, test, trusted="def oracle(x): return x + 2").passed


ANSWERS = {
    "a fraction of nothing": b'{"F": []}',
    "a deque of nothing": b'{"q": []}',
    "a dtype that does not parse": b'{"n": ["(1,", [1], "x", true]}',
    "nested 930 deep": b"[" * 930 + b"]" * 930,
    "nested 20,000 deep": b"[" * 20_000 + b"]" * 20_000,
    "nested in tags": b'{"t": [' * 900 + b"1" + b"]}" * 900,
    "an enormous integer": b'{"i": "0x' + b"f" * 1_000_000 + b'"}',
    "too many digits": b"9" * 5000,
    "an enormous exponent": b'{"D": "1e999999999999999999"}',
    "a handle": b'{"h": 0}',
    "an unknown tag": b'{"zz": 1}',
    "not a number": b"NaN",
}


@sandbox
def test_no_value_of_a_variable_ends_the_run():
    sources = [writes(b'["ready"]', b'["value", {"d": [["answer", ' + raw + b"]]}, []]") for raw in ANSWERS.values()]
    sources += [writes(b'["ready"]', reply) for reply in (b"[]", b"7", b'["value", [], []]', b'["raised", 5, 5]')]
    sources += [writes(hello) for hello in (b"[]", b"{}", b'["failed", 3]', b'["failed", ["E", []]]', b'"ready"')]
    programs = [Program(problem="p", source=source, tests=(5.0,)) for source in [*sources, "answer = 5"]]
    verdicts = judge_programs(MathQAPython(), programs, sandbox=shared())
    assert [v.status for v in verdicts[:-1] if v.status not in ("failed", "error")] == []
    assert verdicts[-1].passed
    assert max(len(v.detail) for v in verdicts) < 1000


@sandbox
def test_no_output_ends_or_stalls_the_run():
    sources = ["print('1' * 60_000 + 'x')", "print('10e999999')", "print('9' * 60_000)", "print('\\ud800')"]
    sources += [writes(*bodies) for bodies in ([b'["done", ["x"]]'], [b'["done", [1, 2]]'], [b'["done"]'], [b"3"])]
    programs = [Program(problem="p", source=s, tests=(Exchange("", "0.5"),)) for s in [*sources, "print(.5)"]]
    start = time.monotonic()
    verdicts = judge_programs(StdinStdout(), programs, sandbox=shared())
    assert time.monotonic() - start < LIMITS.wall_seconds
    assert [v.passed for v in verdicts] == [False] * len(sources) + [True]


@sandbox
def test_a_job_that_cannot_be_sent_is_an_error_of_that_program_alone(monkeypatch):
    monkeypatch.setattr(worker, "JOB_LIMIT", 1 << 16)
    sources = ["#" * (1 << 17), "print(1)"]
    programs = [Program(problem="p", source=source, tests=(Exchange("", "1"),)) for source in sources]
    programs.append(Program(problem="p", source="print(1)", tests=(Exchange("x" * (1 << 17), "1"),)))
    verdicts = judge_programs(StdinStdout(), programs, sandbox=shared())
    assert [v.status for v in verdicts] == ["error", "passed", "error"]
    assert "65536" in verdicts[0].detail


@sandbox
def test_an_outcome_that_cannot_be_read_is_an_error_of_that_program_alone(monkeypatch, tmp_path):
    honest = judging.read

    def read(outcome, *rest):
        if outcome.report["detail"] == "bad":
            raise RuntimeError("unforeseen" * 1000)
        return honest(outcome, *rest)

    monkeypatch.setattr(judging, "read", read)
    programs = [Program(problem="p", source=f"x = {x!r}", tests=("assert x == 'good', x",)) for x in ("bad", "good")]
    verdicts = judge_programs(Assertions(), programs, sandbox=shared(), verdicts_path=tmp_path / "v")
    assert [v.status for v in verdicts] == ["error", "passed"]
    assert "unforeseen" in verdicts[0].detail
    assert len((tmp_path / "v").read_text()) < 3000


@pytest.mark.parametrize(("code", "words"), [(-40, "signal 40"), (-11, "SIGSEGV"), (-200, "signal 200")])
def test_an_exit_by_any_signal_is_an_error(code, words):
    outcome = Outcome({"exit": code, "timed_out": False, "cpu": 0.0, "seconds": 0.0})
    passed, status, detail = judging.read(outcome, 1, Limits())
    assert (passed, status, words in detail) == (0, "error", True)


@sandbox
@pytest.mark.parametrize(
    "source",
    [
        "raise type('K' * 2_000_000, (Exception,), {})('x' * 2_000_000)",
        "def f(x):\n    raise type('K' * 2_000_000, (Exception,), {})('x' * 2_000_000)",
        "def f(x):\n    return type('K' * 2_000_000, (Exception,), {})",
        writes(b'["failed", ["' + b"K" * 2_000_000 + b'", ""]]'),
    ],
)
def test_a_verdict_is_short_whatever_the_program_names_its_exceptions(source):
    verdict = assertions(source, "assert f(1) == 2")
    assert not verdict.passed
    assert len(verdict.detail) < 1000


@sandbox
def test_a_verdict_on_a_contest_program_is_short_too():
    source = "raise type('K' * 2_000_000, (Exception,), {})('x' * 2_000_000)"
    program = Program(problem="p", source=source, tests=(Exchange("", ""),))
    assert len(judge_programs(StdinStdout(), [program], sandbox=shared())[0].detail) < 1000


@sandbox
@pytest.mark.parametrize("attribute", ["__array_interface__", "__array__", "__array_struct__", "__dlpack__"])
def test_numpy_in_a_test_believes_no_array_of_the_program(attribute):
    source = f"""
class Array:
    def __getattr__(self, name):
        if name == "{attribute}":
            return {{"version": 3, "shape": (8,), "typestr": "|u1", "data": (id(self) & ~4095, True)}}
        raise AttributeError(name)
def f(x):
    return Array()
"""
    assert not assertions(source, "import numpy\nassert numpy.array(f(1)).sum() >= 0").passed
    assert not assertions(source, f"assert hasattr(f(1), '{attribute}')").passed


@sandbox
def test_names_of_functions_are_still_readable_in_tests():
    assert assertions("def f(x): return x", "assert f.__name__ == 'f'").passed


@sandbox
def test_a_default_dictionary_changed_in_place_is_changed_for_the_test():
    test = "from collections import defaultdict\nd = defaultdict(int, a=1)\nf(d)\nassert d == {'a': 1, 'b': 2}\nassert d['c'] == 0"
    assert assertions("def f(d):\n    d['b'] = 2", test).passed


@sandbox
@pytest.mark.parametrize(
    "change", [b"[[1, 3]]", b"[[-1, [9]]]", b"[[5, [9]]]", b"[[1, {}]]", b'[["1", [9]]]', b"[3]", b"{}"]
)
def test_a_change_that_no_function_can_make_is_an_error(change):
    source = writes(b'["ready"]', b'["value", {"d": [["f", {"h": 0}]]}, []]', b'["value", 1, ' + change + b"]")
    verdict = assertions(
        source, "a = [1]\ntry:\n    f(a, 'b')\nexcept BaseException:\n    pass\nassert a == [9] or True"
    )
    assert (verdict.status, "malformed" in verdict.detail) == ("error", True), verdict


@sandbox
def test_no_descriptor_of_the_judge_is_inherited_however_many_files_are_open(monkeypatch):
    taken = 600
    only(monkeypatch, "inherited descriptors")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > taken + 100
    with ExitStack() as stack:
        while (fd := os.open("/dev/null", os.O_RDONLY)) < taken:
            stack.callback(os.close, fd)
        os.close(fd)
        with Sandbox(limits=LIMITS, workers=1) as opened:
            assert assertions("def f(x): return x", "assert f(1) == 1", sandbox=opened).passed


@sandbox
def test_a_program_may_run_all_the_threads_it_is_allowed():
    source = """
import threading
def f(n):
    together, out = threading.Barrier(n), []
    def work(i):
        together.wait(5)
        out.append(len(str(i) * 100_000))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    [t.start() for t in threads]; [t.join() for t in threads]
    return len(out)
"""
    verdict = assertions(source, f"assert f({LIMITS.threads}) == {LIMITS.threads}")
    assert verdict.passed, verdict


@sandbox
def test_a_sandbox_with_a_very_short_time_limit_opens(monkeypatch):
    only(monkeypatch, "memory bomb", "read secrets")
    with Sandbox(limits=replace(LIMITS, wall_seconds=0.02), workers=1) as opened:
        assert assertions("import time\ndef f(x): time.sleep(9)", "assert f(1)", sandbox=opened).status == "timeout"


@sandbox
@pytest.mark.slow  # waits for the time limit and replaces the sandbox
def test_a_set_of_colliding_integers_costs_its_program_the_time_limit(monkeypatch):
    only(monkeypatch)
    frame = b'["value", {"d": [["answer", {"s": [%s]}]]}, []]'
    source = f"""
import os, struct
body = {frame!r} % b", ".join(b"%d" % (i * (2**61 - 1)) for i in range(400_000))
for body in (b'["ready"]', body):
    rest = struct.pack(">I", len(body)) + body
    while rest:
        rest = rest[os.write(4, rest):]
"""
    programs = [Program(problem="p", source=text, tests=(5.0,)) for text in (source, "answer = 5")]
    with Sandbox(limits=replace(LIMITS, wall_seconds=2.0), workers=1) as opened:
        verdicts = judge_programs(MathQAPython(), programs, sandbox=opened)
    assert [v.status for v in verdicts] == ["timeout", "passed"]
