"""The judges on small programs: what passes, what fails, and what it is called."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox_shared import LIMITS, assertions, contest, only, shared

from widen.judge import (
    STATUSES,
    Assertions,
    Count,
    Limits,
    MathQAPython,
    Program,
    Sandbox,
    StdinStdout,
    Verdict,
    counts,
    judge_programs,
)
from widen.metrics.passes import pass_at_k

sandbox = pytest.mark.sandbox

NAMED = "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f():\n    return P(1, 2)"
DEFAULT = "from collections import defaultdict\ndef f():\n    d = defaultdict(int)\n    d['a'] += 1\n    return d"
THIRD = "from fractions import Fraction\ndef f():\n    return Fraction(1, 3)"
ARRAY = "import numpy as np\ndef f(n):\n    return np.eye(n)"
POINT = """
from dataclasses import dataclass
@dataclass
class P:
    x: int
def f(p):
    return P(p.x + 1)
"""
VECTOR = """
class V:
    def __init__(self, n): self.n = n
    def __add__(self, other): return V(self.n + other.n)
    def __len__(self): return self.n
"""
DEEP = """
import sys
sys.setrecursionlimit(5000)
def down(n): return 0 if n == 0 else down(n - 1)
down(4000)
print(sum(map(int, input().split())))
"""


@sandbox
def test_mathqa_reads_the_answer_variable_within_one_percent():
    cases = {
        "answer = 2 * 3": 6.0,
        "answer = 6.05": 6.0,
        "import math\nanswer = math.pi": 3.1416,
        "import numpy as np\nanswer = np.float32(2)": 2.0,
    }
    programs = [Program(problem=source, source=source, tests=(value,)) for source, value in cases.items()]
    wrong = [
        Program(problem="w", source=source, tests=(6.0,))
        for source in ("answer = 6.07", "x = 6", "answer = 1 / 0", "answer = (", "answer = 6\nraise ValueError")
    ]
    verdicts = judge_programs(MathQAPython(), programs + wrong, sandbox=shared())
    assert [v.status for v in verdicts] == ["passed"] * 4 + ["failed", "failed", "error", "error", "error"]
    assert "6.07" in verdicts[4].detail
    assert "ZeroDivisionError" in verdicts[6].detail


@sandbox
@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("def f(x):\n    return x + 1", ["assert f(1) == 2", "assert f(-1) == 0"]),
        ("def f(xs):\n    xs.sort()", ["a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"]),
        ("def f(d):\n    d['k'] = d.pop('j')", ["d = {'j': 1}\nf(d)\nassert d == {'k': 1}"]),
        ("def f(n):\n    yield from range(n)", ["assert list(f(3)) == [0, 1, 2]", "assert sum(f(4)) == 6"]),
        ("def f(g, xs):\n    return [g(x) for x in xs]", ["assert f(lambda x: x * x, [2]) == [4]", "assert f(str, [1]) == ['1']"]),
        ("def f(t):\n    return isinstance(1, t)", ["assert f(int)", "assert not f(str)"]),
        ("def f():\n    raise ValueError('no')", ["try:\n    f()\nexcept ValueError as e:\n    assert str(e)\nelse:\n    assert 0"]),
        ("class Odd(Exception): pass\ndef f():\n    raise Odd", ["try:\n    f()\nexcept Odd:\n    pass\nelse:\n    assert False"]),
        (NAMED, ["assert f() == (1, 2)", "assert f().x == 1", "x, y = f()\nassert y == 2"]),
        (DEFAULT, ["assert f() == {'a': 1}", "assert f()['a'] == 1"]),
        (THIRD, ["assert abs(f() - 1 / 3) < 1e-9", "assert f().denominator == 3"]),
        (ARRAY, ["assert f(2).tolist() == [[1, 0], [0, 1]]", "assert (f(2) * 2).sum() == 4"]),
        ("def f(x):\n    return 2 ** x", ["assert f(9000) == 1 << 9000"]),
        ("def f(*a, **k):\n    return a, k", ["assert f(1, b=2) == ((1,), {'b': 2})"]),
        ("def f(verb, target, self):\n    return verb + target + self", ["assert f(verb=1, target=2, self=3) == 6"]),
        ("X = {'a': [1, 2]}", ["assert X['a'][1] == 2"]),
        ("def f(s):\n    return set(s), b'x', 1.5, None, True, 3j", ["assert f('ab') == ({'a', 'b'}, b'x', 1.5, None, True, 3j)"]),
        ("print('noise')\ndef f():\n    print('more')\n    return 1", ["assert f() == 1"]),
        (POINT, ["assert f(P(1)) == P(2)", "assert f(P(1)).x == 2", "assert isinstance(f(P(1)), P)"]),
        (VECTOR, ["assert len(V(1) + V(2)) == 3"]),
    ],
)  # fmt: skip
def test_right_programs_pass_whatever_their_values_are(source, tests):
    verdict = assertions(source, *tests)
    assert verdict.passed, verdict
    assert verdict.tests_passed == verdict.tests == len(tests)


@sandbox
def test_a_setup_builds_objects_of_the_programs_classes():
    source = """
class Node:
    def __init__(self, value): self.value, self.left, self.right = value, None, None
def depth(node): return 0 if node is None else 1 + max(depth(node.left), depth(node.right))
"""
    setup = "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)"
    assert assertions(source, "assert depth(root) == 3", "assert root.left.value == 2", setup=setup).passed


@sandbox
@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("def f(x): return x", "failed", ""),
        ("def g(x): return x", "error", "NameError"),
        ("def f(x): return 1 / 0", "error", "ZeroDivisionError"),
        ("def f(x:", "error", "SyntaxError"),
        ("def f(x): return f(x)", "error", "RecursionError"),
        ("import nowhere", "error", "ModuleNotFoundError"),
        ("import os\nos.fork()", "forbidden", "PermissionError"),
        ("import socket\ndef f(x): return socket.socket()", "forbidden", "PermissionError"),
        ("x = bytearray(1 << 40)", "memory", "MemoryError"),
        ("def f(x): return 'y' * (1 << 40)", "memory", "MemoryError"),
        ("import ctypes\nctypes.string_at(0)", "error", "SIGSEGV"),
        ("import os\nos._exit(3)", "error", "exit status 3"),
        ("def f(x): return 'y' * (20 << 20)", "error", "over the limit"),
    ],
)
def test_wrong_programs_are_called_by_their_names(source, status, words):
    verdict = assertions(source, "assert f(1) == 2")
    assert (verdict.status, verdict.tests_passed) == (status, 0), verdict
    assert words in verdict.detail


@sandbox
def test_a_timeout_is_a_timeout_whoever_takes_the_time(monkeypatch):
    only(monkeypatch)
    with Sandbox(limits=Limits(wall_seconds=0.15), workers=2) as quick:
        programs = [
            Program(problem="p", source=f"def f(x):\n    {body}", tests=("assert f(1) == 2",))
            for body in ("while True: pass", "import time; time.sleep(60)")
        ]
        verdicts = judge_programs(Assertions(), programs, sandbox=quick)
        assert [v.status for v in verdicts] == ["timeout"] * 2
        assert "wall-clock" in verdicts[1].detail
        # A test that goes on for ever is as bad as a program that does, and the sandbox is there again afterwards.
        assert assertions("def f(x): return x", "while True: f(1)", sandbox=quick).status == "timeout"
        assert assertions("def f(x): return x", "while True: pass", sandbox=quick).status == "timeout"
        assert assertions("def f(x): return x", "assert f(1) == 1", sandbox=quick).passed


@sandbox
@pytest.mark.parametrize(
    "source",
    [
        "a, b = map(int, input().split())\nprint(a + b)",
        "import sys\na, b = map(int, sys.stdin.read().split())\nsys.stdout.write(f'{a + b}\\n')",
        "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
        "import os\na, b = map(int, os.read(0, 100).split())\nos.write(1, str(a + b).encode())",
        "a, b = map(int, open(0).read().split())\nprint(a + b, end='')",
        "import sys\nsys.stdout.buffer.write(str(sum(map(int, sys.stdin.buffer.read().split()))).encode())",
        "import threading\ndef main():\n    print(sum(map(int, input().split())))\nthreading.Thread(target=main).start()",
        "import atexit\nn = sum(map(int, input().split()))\natexit.register(lambda: print(n))",
        "print(sum(map(int, input().split())))\nexit()",
        "import sys\nprint(sum(map(int, input().split())))\nsys.exit(0)",
        "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(0)",
        DEEP,
        "if __name__ == '__main__':\n    print(sum(map(int, input().split())))",
    ],
)  # fmt: skip
def test_a_contest_program_may_read_and_write_as_it_likes(source):
    verdict = contest(source, ("1 2\n", "3"), ("10 -4\n", "6\n"), ("0 0", "0"))
    assert verdict.passed, verdict


@sandbox
@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("print(4)", "failed", "'4\\n'"),
        ("pass", "failed", "''"),
        ("print(3)\nraise KeyError('k')", "error", "KeyError"),
        ("print(3)\nimport sys; sys.exit(2)", "error", "exit status 2"),
        ("print(3, flush=True)\nimport os; os._exit(1)", "error", "exit status 1"),
        ("print('x' * 100_000)", "output", "bytes"),
        ("while True: print('x')", "output", "bytes"),
        ("x = [0] * (1 << 40)", "memory", "MemoryError"),
        ("print(", "error", "SyntaxError"),
        ("input(); input()", "error", "EOFError"),
        ("import subprocess; subprocess.run(['/bin/true'])", "forbidden", "PermissionError"),
    ],
)
def test_wrong_contest_programs_are_called_by_their_names(source, status, words):
    verdict = contest(source, ("1 2\n", "3"))
    assert (verdict.status, verdict.tests_passed) == (status, 0), verdict
    assert words in verdict.detail


@sandbox
def test_the_tolerance_of_a_contest_is_a_setting():
    source = "print('0.3334 Yes')"
    assert contest(source, ("", "0.3333 Yes"), tolerance=1e-3).passed
    assert not contest(source, ("", "0.3333 Yes"), tolerance=1e-5).passed
    assert contest(source, ("", "0.3334 YES"), ignore_case=True).passed


@sandbox
def test_a_failure_that_an_earlier_test_caused_is_settled_apart():
    leaky = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    verdict = assertions(leaky, "assert f(7) == 1", "assert f(8) == 1", "assert f(9) == 1")
    assert verdict.passed
    assert verdict.apart
    assert verdict.tests_passed == 3
    wrong = assertions(leaky, "assert f(7) == 1", "assert f(8) == 1", "assert f(9) == 3")
    assert (wrong.status, wrong.tests_passed, wrong.apart) == ("failed", 2, True)
    assert wrong.detail.startswith("test 3: ")


@sandbox
def test_a_contest_failure_that_an_earlier_test_caused_is_settled_apart():
    leaky = "import math\nmath.count = getattr(math, 'count', 0) + 1\nprint(math.count)"
    verdict = contest(leaky, ("a", "1"), ("b", "1"), ("c", "1"))
    assert (verdict.status, verdict.apart, verdict.tests_passed) == ("passed", True, 3)
    assert contest(leaky, ("a", "1"), ("b", "2"), ("c", "1")).passed  # together the second holds, apart the third does


@sandbox
def test_what_a_contest_program_printed_for_one_input_is_not_counted_for_the_next():
    source = (
        "import sys\nn = int(input())\nsys.stdout.write('x' * n)\nif n == 3: import os; sys.stdout.flush(); os._exit(0)"
    )
    assert contest(source, ("2", "xx"), ("3", "xxx"), ("1", "x")).passed


@sandbox
def test_large_inputs_and_outputs_go_through():
    numbers = " ".join(map(str, range(40_000)))
    assert contest("print(len(input().split()))", (numbers, "40000")).passed
    assert contest("print('7' * 60_000)", ("", "7" * 60_000)).passed


@sandbox
def test_an_input_that_does_not_fit_is_an_error_that_names_the_limit():
    verdict = contest("pass", ("x" * (LIMITS.tmp_bytes + 1), ""))
    assert (verdict.status, f"tmp_bytes={LIMITS.tmp_bytes}" in verdict.detail) == ("error", True)


@sandbox
def test_verdicts_come_in_the_order_of_the_programs_and_equal_programs_run_once():
    programs = [
        Program(problem=str(i % 3), source=f"def f(x): return x + {i % 4}", tests=("assert f(1) == 2",))
        for i in range(24)
    ]
    ticks = []
    verdicts = judge_programs(
        Assertions(), programs, sandbox=shared(), progress=lambda done, total: ticks.append((done, total))
    )
    assert [v.passed for v in verdicts] == [i % 4 == 1 for i in range(24)]
    assert len(ticks) == 4
    assert sorted(ticks) == ticks
    assert ticks[-1] == (24, 24)
    found = counts(programs, verdicts)
    assert found == [Count("0", 8, 2), Count("1", 8, 2), Count("2", 8, 2)]
    assert pass_at_k([x.n for x in found], [x.c for x in found], 1).tolist() == pytest.approx([0.25] * 3)


@sandbox
def test_a_hundred_programs_later_the_sandbox_is_as_good_as_new():
    programs = [
        Program(problem="p", source=f"def f(x): return x + {i}", tests=(f"assert f(1) == {i + 1}",)) for i in range(150)
    ]
    assert all(v.passed for v in judge_programs(Assertions(), programs, sandbox=shared()))


@sandbox
def test_the_key_of_a_verdict_knows_limits_interpreter_and_tests():
    from widen.judge.judging import judge_settings, program_key

    program = Program(problem="p", source="x", tests=("assert x",))
    settings = judge_settings(Assertions(), shared())
    other = [
        replace(program, source="y"),
        replace(program, tests=("assert y",)),
        replace(program, setup="z"),
        replace(program, trusted="z"),
        replace(program, shadows=("z",)),
    ]
    keys = {program_key(p, settings) for p in (program, *other)} | {program_key(program, {**settings, "python": "4"})}
    assert len(keys) == 7
    assert program_key(replace(program, problem="q"), settings) == program_key(program, settings)
    assert {"python", "numpy", "scipy", "limits"} <= set(settings)


@pytest.mark.parametrize(
    ("judge", "tests"),
    [
        (MathQAPython(), ("x",)),
        (MathQAPython(), (1.0, 2.0)),
        (Assertions(), (1.0,)),
        (Assertions(), ()),
        (Assertions(), ("assert (",)),
        (StdinStdout(), ("x",)),
    ],
)
def test_tests_of_another_kind_are_refused(judge, tests):
    with pytest.raises(ValueError, match="problem 'p'"):
        judge.check(Program(problem="p", source="", tests=tests))


def test_a_closed_sandbox_is_refused():
    with pytest.raises(RuntimeError, match="with statement"):
        judge_programs(Assertions(), [Program(problem="p", source="", tests=("assert True",))], sandbox=Sandbox())


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall_seconds": 0.0},
        {"wall_seconds": float("nan")},
        {"cpu_seconds": 0},
        {"memory_bytes": 1},
        {"processes": 0},
        {"processes": 9},
        {"output_bytes": 1 << 30},
        {"wall_seconds": 1e9},
    ],
)
def test_limits_out_of_range_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


@pytest.mark.parametrize("wrong", [{"workers": 0}])
def test_a_pool_out_of_range_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sandbox(**wrong)


def test_a_status_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="status='fine'"):
        Verdict(status="fine", tests_passed=0, tests=0, seconds=0.0)
    assert len(set(STATUSES)) == 7


@sandbox
def test_the_page_on_programs_says_what_happens(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "metrics" / "programs.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    monkeypatch.chdir(tmp_path)
    only(monkeypatch)
    exec(compile(block, "programs.md", "exec"), {})
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 2
