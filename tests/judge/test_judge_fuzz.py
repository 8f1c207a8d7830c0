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
from widen.judge.inside.examiner import examine, listen
from widen.judge.judging import _Trial
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
handles = st.builds(lambda number: {"h": [number, "x"]}, st.integers(-1, 3))
names = st.dictionaries(st.sampled_from(NAMES), handles | values, max_size=7)
messages = (
    st.builds(lambda found: ["value", found, []], names)
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
HONEST = framed(
    b'["ready"]', b'["value", {"f": {"h": [0, "function"]}}, []]', *[b'["value", {"h": [1, "V"]}, [[0, [2]]]]'] * 3
)


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
many = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def examined(conversation, exam, *, converse=False):
    """The examiner's reports on a program that sent these bytes and died."""
    theirs, ours = os.pipe()
    os.write(ours, conversation)
    os.close(ours)
    reports, report = os.pipe()
    nowhere, dead = os.open("/dev/null", os.O_RDWR), os.open("/dev/null", os.O_RDONLY)
    channel = wire.Channel(theirs, nowhere, alive=dead)
    try:
        if converse:
            listen(channel, nowhere, exam, 1000, wire.Channel(-1, report))
        else:
            examine(channel, exam, wire.Channel(-1, report))
        os.close(report)
        found = b"".join(iter(lambda: os.read(reports, 65536), b""))
    finally:
        for fd in (theirs, reports, nowhere, dead):
            os.close(fd)
    return found


def outcome_of(raw):
    """The outcome as the judge receives it, after every message has been checked to be short."""
    found = []
    while raw:
        length = int.from_bytes(raw[:4], "big")
        found.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    assert all(len(one) < 3000 for one in found)
    ending = {"exit": 0, "timed_out": False, "cpu": 0.0, "seconds": 0.0}
    return Outcome(ending, tuple(found))


@many
@given(conversations, st.sampled_from(sorted(TESTS)))
@example(
    framed(
        b'["ready"]',
        b'["value", {"f": {"h": [0, "x"]}, "abs": {"h": [1, "x"]}}, []]',
        b'["value", 7, []]',
        b'["value", 0, []]',
    ),
    "abs",
)
def test_no_conversation_passes_an_assertion(conversation, name):
    program = Program(problem="p", source="", tests=(TESTS[name],), trusted="def oracle(x): return x")
    exam = {**Assertions().job(program, (0,)).exam, "serial": 1}
    reading = Assertions().read(program, (0,), outcome_of(examined(conversation, exam)), LIMITS)
    assert reading.held == ()
    assert reading.fault is not None


@many
@given(conversations)
def test_no_conversation_passes_as_a_number(conversation):
    program = Program(problem="p", source="", tests=(SECRET,))
    exam = {**MathQAPython().job(program, (0,)).exam, "serial": 1}
    reading = MathQAPython().read(program, (0,), outcome_of(examined(conversation, exam)), LIMITS)
    assert reading.held == ()
    assert reading.fault is not None


@many
@given(conversations)
def test_no_conversation_passes_as_output(conversation):
    program = Program(problem="p", source="", tests=(Exchange("", "secret"),) * 2)
    exam = {**StdinStdout().job(program, (0, 1)).exam, "serial": 1}
    reading = StdinStdout().read(program, (0, 1), outcome_of(examined(conversation, exam, converse=True)), LIMITS)
    assert reading.held == ()
    assert reading.fault is not None


@pytest.mark.sandbox
@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(conversations, min_size=25, max_size=25))
def test_no_program_that_sends_them_passes_or_stalls_the_sandbox(some):
    sources = [f"import os\nos.write(4, {raw!r})\nos._exit(0)" for raw in some]
    programs = [Program(problem="p", source=source, tests=(TESTS["abs"],)) for source in sources]
    programs.append(Program(problem="p", source=f"def f(x): return {SECRET}", tests=(TESTS["abs"],)))
    start = time.monotonic()
    verdicts = judge_programs(Assertions(), programs, sandbox=shared())
    assert time.monotonic() - start < LIMITS.wall_seconds
    assert [v.passed for v in verdicts] == [False] * len(some) + [True]


findings = (
    st.binary(max_size=60) | st.builds(encoded, values) | st.just(b'{"status": "passed", "passed": "1", "serial": 1}')
)
reports = {
    "status": st.just("passed"),
    "passed": values,
    "number": values,
    "done": values,
    "over": values,
    "failure": values,
}
findings |= st.builds(encoded, st.fixed_dictionaries({}, optional=reports))


@many
@given(
    st.lists(findings, max_size=2), st.dictionaries(st.sampled_from(["exit", "timed_out", "seconds", "cpu"]), values)
)
def test_no_finding_that_the_judge_may_read_ends_it(found, ending):
    cases = {Assertions(): ("x",) * 9, MathQAPython(): (SECRET,), StdinStdout(): (Exchange("", "secret"),)}
    for judge, tests in cases.items():
        trial = _Trial(judge, Program(problem="p", source="", tests=tests))
        result = trial.take(Outcome(ending, tuple(found)), Limits())
        assert isinstance(result, Job) or not result.passed


@many
@given(
    st.binary(max_size=60) | st.builds(encoded, values).map(framed),
    st.binary(max_size=60) | st.builds(encoded, values).map(framed),
)
def test_a_worker_that_sends_nonsense_is_replaced_and_ends_nothing(status, found):
    worker = object.__new__(Worker)
    worker._status_bytes, worker._findings_bytes = bytearray(status), bytearray(found)
    worker._findings, worker._broken, worker.ready, worker.group, worker._oom_seen = {}, "", False, None, 0
    worker.in_flight = deque([(1, Job("", {}))])
    worker.status = worker.findings = os.open("/dev/null", os.O_RDONLY)
    ended, alive = worker.collect()
    os.close(worker.status)
    assert not alive
    assert all(
        not Assertions().read(Program(problem="p", source="", tests=("x",)), (0,), o, LIMITS).held for _, o in ended
    )


@pytest.mark.sandbox
def test_a_program_that_stops_in_the_middle_of_a_message_costs_its_own_time_alone():
    source = writes(b'["ready"]').replace("os._exit(0)", "os.write(4, b'\\x00\\x00\\x01\\x00[')\nwhile True: pass")
    jobs = [
        Job(source, {**Assertions().job(Program(problem="p", source="", tests=("f",)), (0,)).exam}, wall_seconds=0.2)
    ]
    ((_, outcome),) = shared().stream(deque(jobs))
    assert outcome.ending["timed_out"]
    assert outcome.ending["seconds"] < 5.0
