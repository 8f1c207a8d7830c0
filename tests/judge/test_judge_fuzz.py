"""Random bytes, random messages and damaged conversations: they never end the judge, never hang it and never pass."""

import json
import os
import time
from collections import deque

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sandbox_shared import LIMITS, framed, shared, writes

from widen.judge import Assertions, Exchange, Limits, MathQAPython, Program, StdinStdout, judge_programs
from widen.judge.inside import wire
from widen.judge.inside.examiner import examine
from widen.judge.judging import read, trial
from widen.judge.worker import Job, Outcome, Worker

# No message below holds these answers, so no conversation may pass.
SECRET = 7919.0625
TESTS = {
    "abs": f"assert abs(f(2) - {SECRET}) < 1e-9",
    "equal": f"assert f([1], b=2) == {SECRET}",
    "set": f"assert set(f(3)) == {{{SECRET}}}",
    "sorted": f"assert sorted(f(3)) == [{SECRET}]",
    "callback": f"assert f(lambda x: x + 1) == {SECRET}",
    "helper": f"assert oracle(f(1)) == {SECRET}",
}
TAGS = [*"itdsfbBcrqCoDFnhxk", "day", "span", "time", "type", "module", "it", "unknown"]
NAMES = ["f", "abs", "set", "sorted", "oracle", "__builtins__", "answer"]

scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "0x1", "int", "<f8", *NAMES])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(TAGS), inner, min_size=1, max_size=1)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    ),
    max_leaves=8,
)
handles = st.builds(lambda number: {"h": number}, st.integers(-1, 3))
names = st.dictionaries(st.sampled_from(NAMES), handles | values, max_size=7)
messages = (
    st.builds(lambda found: ["value", {"d": list(map(list, found.items()))}, []], names)
    | st.builds(lambda value, changed: ["value", value, changed], handles | values, values)
    | st.builds(
        lambda kind, described, number: [kind, described, number],
        st.sampled_from(["raised", "callback"]),
        values,
        values,
    )
    | st.builds(lambda args: ["callback", 0, args, {}], st.lists(values, max_size=2))
    | st.builds(lambda kind: ["raised", [kind, ""], -1], st.sampled_from(["ValueError", "UnicodeDecodeError", "Odd"]))
    | st.builds(lambda failure: ["done", failure], values)
    | values
)


def encoded(message):
    return json.dumps(message).encode()


# A conversation that an honest program with a wrong answer could have, as the bytes that it sends.
HONEST = framed(b'["ready"]', b'["value", {"d": [["f", {"h": 0}]]}, []]', *[b'["value", {"h": 1}, [[1, [2]]]]'] * 3)


@st.composite
def damaged(draw):
    raw = bytearray(HONEST)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(raw) - 1))
        action = draw(st.sampled_from(["set", "delete", "insert"]))
        raw[place : place + (action != "insert")] = (
            b"" if action == "delete" else draw(st.binary(min_size=1, max_size=2))
        )
    return bytes(raw)


conversations = (
    st.binary(max_size=100)
    | st.builds(lambda some: framed(b'["ready"]', *map(encoded, some)), st.lists(messages, max_size=6))
    | st.builds(lambda some: framed(*map(encoded, some)), st.lists(messages, max_size=3))
    | damaged()
)
many = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def passed(conversation, judge, program):
    """How many tests pass if the program sends these bytes and exits with success."""
    theirs, ours = os.pipe()
    os.write(ours, conversation)
    os.close(ours)
    nowhere, dead = os.open("/dev/null", os.O_RDWR), os.open("/dev/null", os.O_RDONLY)
    exam = json.loads(json.dumps(judge.job(program, range(len(program.tests))).exam))
    try:
        report = examine(wire.Channel(theirs, nowhere, alive=dead), nowhere, exam, 1000)
    finally:
        for fd in (theirs, nowhere, dead):
            os.close(fd)
    assert len(json.dumps(report)) < 3000
    ending = {"exit": 0, "timed_out": False, "cpu": 0.0, "seconds": 0.0}
    count, status, _ = read(Outcome(ending, report), len(program.tests), LIMITS)
    assert (status == "passed") == (count > 0)
    return count


@many
@given(conversations, st.sampled_from(sorted(TESTS)))
@example(
    framed(
        b'["ready"]',
        b'["value", {"d": [["f", {"h": 0}], ["abs", {"h": 1}]]}, []]',
        b'["value", 7, []]',
        b'["value", 0, []]',
    ),
    "abs",
)
def test_no_conversation_passes_an_assertion(conversation, name):
    program = Program(problem="p", source="", tests=(TESTS[name],), trusted="def oracle(x): return x")
    assert passed(conversation, Assertions(), program) == 0


@many
@given(conversations)
def test_no_conversation_passes_as_a_number(conversation):
    assert passed(conversation, MathQAPython(), Program(problem="p", source="", tests=(SECRET,))) == 0


@many
@given(conversations)
def test_no_conversation_passes_as_output(conversation):
    program = Program(problem="p", source="", tests=(Exchange("", "secret"),) * 2)
    assert passed(conversation, StdinStdout(), program) == 0


@pytest.mark.sandbox
@settings(max_examples=1, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(conversations, min_size=25, max_size=25))
def test_no_program_that_sends_them_passes_or_stalls_the_sandbox(some):
    sources = [f"import os\nos.write(4, {raw!r})\nos._exit(0)" for raw in some]
    programs = [Program(problem="p", source=source, tests=(TESTS["abs"],)) for source in sources]
    programs.append(Program(problem="p", source=f"def f(x): return {SECRET}", tests=(TESTS["abs"],)))
    start = time.monotonic()
    verdicts = judge_programs(Assertions(), programs, sandbox=shared())
    assert time.monotonic() - start < LIMITS.wall_seconds
    assert [v.passed for v in verdicts] == [False] * len(some) + [True]


FIELDS = {
    "status": st.sampled_from(["passed", "gone", "failed", "raised", "broken", "output"]) | values,
    "passed": values,
    "kind": values,
    "detail": st.just("right") | values,
}
ENDINGS = st.dictionaries(st.sampled_from(["exit", "timed_out", "seconds", "cpu"]), values)


@many
@given(st.fixed_dictionaries({}, optional=FIELDS), ENDINGS)
def test_no_report_that_the_judge_may_read_ends_it(report, ending):
    cases = {Assertions(): ("x",) * 9, MathQAPython(): (SECRET,) * 5, StdinStdout(): (Exchange("", "secret"),) * 5}
    for judge, tests in cases.items():
        runs = trial(judge, Program(problem="p", source="", tests=tests), Limits())
        next(runs)
        verdict = None
        try:
            runs.send(Outcome(ending, report))  # asks for another run
        except StopIteration as end:
            verdict = end.value
        assert verdict is None or not verdict.passed


@many
@given(
    st.binary(max_size=60) | st.builds(encoded, values).map(framed),
    st.binary(max_size=60) | st.builds(encoded, values).map(framed),
)
def test_a_worker_that_sends_nonsense_is_replaced_and_ends_nothing(first, second):
    worker = object.__new__(Worker)
    worker._received, worker._report = bytearray(first + second), None
    worker._broken, worker.ready, worker.group, worker._oom_seen, worker.job = "", False, None, 0, Job("", {})
    worker.stdout = os.open("/dev/null", os.O_RDONLY)
    outcome, alive = worker.collect()
    os.close(worker.stdout)
    assert not alive
    assert outcome is None or outcome.report is None or outcome.report.get("status") != "passed"


@pytest.mark.sandbox
def test_a_program_that_stops_in_the_middle_of_a_message_costs_its_own_time_alone():
    source = writes(b'["ready"]').replace("os._exit(0)", "os.write(4, b'\\x00\\x00\\x01\\x00[')\nwhile True: pass")
    exam = Assertions().job(Program(problem="p", source="", tests=("f",)), (0,)).exam
    ((_, outcome),) = shared().stream(deque([Job(source, exam, wall_seconds=0.2)]))
    assert outcome.ending["timed_out"]
    assert outcome.ending["seconds"] < 5.0
