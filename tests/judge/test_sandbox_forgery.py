"""No program can make its own verdict: it never sees a test, and nothing that it writes is a verdict."""

import secrets

import pytest
from sandbox_shared import assertions, contest, shared

from widen.judge import MathQAPython, Program, judge_programs

pytestmark = pytest.mark.sandbox

FORGERIES = {
    "prints the pass marker": "print('passed', '{\"status\": \"passed\"}')\ndef f(x): return 0",
    "leaves with success while loading": "import os; os._exit(0)",
    "leaves politely while loading": "import sys; sys.exit(0)",
    "leaves with success inside a test": "import os\ndef f(x): os._exit(0)",
    "writes a report on every descriptor": """
import os, json, struct
def f(x):
    for body in (["value", True, []], {"passed": 1, "status": "passed", "kind": "", "detail": "", "serial": 1}, ["ready"]):
        text = json.dumps(body).encode()
        for fd in range(256):
            try:
                os.write(fd, struct.pack(">I", len(text)) + text)
            except OSError:
                pass
    os._exit(0)
""",
    "closes every descriptor": "import os\ndef f(x):\n    os.closerange(0, 256)\n    os._exit(0)",
    "sends garbage": "import os\ndef f(x):\n    os.write(4, b'\\xff' * 100000)\n    return 2",
    "sends half a message and dies": "import os\ndef f(x):\n    os.write(4, b'\\x00\\x00\\x01\\x00[')\n    os._exit(0)",
    "sends what is too deep": """
import os, struct
def f(x):
    os.write(4, struct.pack('>I', 50_000) + b'[' * 50_000)
    os._exit(0)
""",
    "patches the builtins": """
import builtins
class Quiet(Exception):
    pass
builtins.AssertionError = Quiet
builtins.__build_class__ = builtins.isinstance = builtins.abs = builtins.all = lambda *a: True
def f(x): return 0
""",
    "patches the runner": """
import sys, gc, json
json.dumps = lambda *a, **k: '["value", 1, []]'
for thing in gc.get_objects():
    if type(thing).__name__ == "Objects":
        thing.__class__.answer = lambda *a: ["value", True, []]
def f(x): return 0
""",
    "walks the frames": """
import sys
def f(x):
    frame, found = sys._getframe(), []
    while frame:
        found += [v for v in frame.f_locals.values() if isinstance(v, (str, bytes, list, dict))]
        frame = frame.f_back
    return next((v for v in found if "assert" in str(v) and "f(1)" in str(v)), 0)
""",
    "is equal to everything": """
class Yes:
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = lambda *a: True
    __hash__ = lambda s: hash(2)
def f(x): return Yes()
""",
    "is a number equal to everything": """
class Yes(int):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda *a: True
    __hash__ = lambda s: hash(2)
def f(x): return Yes(7)
""",
    "lies about its plain value": """
class Yes:
    def __eq__(self, other): self.seen = other; return True
    def __hash__(self): return hash(2)
def f(x): return Yes()
""",
    "makes the assertion unreachable": "def f(x):\n    raise StopIteration",
    "raises the end of everything": "def f(x):\n    raise SystemExit(0)",
    "raises the end of a generator": "def f(x):\n    raise GeneratorExit",
    "interrupts the keyboard": "def f(x):\n    raise KeyboardInterrupt",
}


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_the_forgery_does_not_pass(name):
    verdict = assertions(FORGERIES[name], "assert f(1) == 2")
    assert not verdict.passed
    assert verdict.tests_passed == 0


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(f(1) - 2.5) < 1e-6",
        "assert abs(2.5 - f(1)) < 1e-6",
        "assert f(1) < 3",
        "assert 3 > f(1)",
        "assert f(1) in (1, 2, 3)",
        "assert 2 in f(1)",
        "assert math.isclose(f(1), 2.5)",
        "assert round(f(1), 2) == 2.5",
        "assert sorted(f(1)) == [1, 2]",
        "assert all(x == y for x, y in zip(f(1), [1, 2], strict=True))",
        "assert not f(1) != 2",
        "try:\n    f(1)\nexcept ValueError:\n    pass\nelse:\n    raise AssertionError",
    ],
)
def test_an_object_that_agrees_with_everything_agrees_with_no_test(test):
    source = """
class Yes:
    def __init__(self, *a): pass
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = __instancecheck__ = lambda *a: True
    __sub__ = __rsub__ = __add__ = __radd__ = __mul__ = __round__ = __call__ = lambda s, *a: s
    __abs__ = lambda s: 0.0
    __float__ = lambda s: 0.0
    __hash__ = lambda s: 0
    __iter__ = lambda s: iter([Yes(), Yes()])
    __getattr__ = lambda s, name: Yes()
def f(x): return Yes()
abs = round = sorted = all = zip = math = Yes()
"""
    assert not assertions(source, test).passed


def test_a_test_that_swallows_every_exception_does_not_swallow_the_programs_death():
    assert not assertions("import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept BaseException:\n    pass").passed


def test_a_program_cannot_lend_its_own_oracle_to_a_test_that_trusts_the_problems():
    hostile = "def f(x): return 0\ndef oracle(x): return 0"
    test = "assert f(3) == oracle(3)"
    assert assertions(hostile, test).passed  # a test that asks the program for the truth gets what it asks for
    assert not assertions(hostile, test, trusted="def oracle(x): return x + 1").passed


def test_a_name_of_the_builtins_is_the_programs_only_where_the_problem_says_so():
    source = "def sum(a, b): return a + b"
    assert not assertions(source, "assert sum(1, 2) == 3").passed
    assert assertions(source, "assert sum(1, 2) == 3", shadows=("sum",)).passed


def test_the_expected_answer_is_in_no_memory_of_the_program():
    token = f"XYZZY-{secrets.token_hex(12)}"
    scan = """
import ctypes, gc, os, re
libc = ctypes.CDLL(None, use_errno=True)
reader, writer = os.pipe()
planted = bytes([80, 76, 65, 78, 84, 69, 68, 45]) + b"0" * 24
def look(pattern):
    blocks = {id(thing) >> 20 for thing in gc.get_objects()} | {id(planted) >> 20}
    for block in sorted({b + d for b in blocks for d in (-1, 0, 1)}):
        end = b""      # of the page before: what is looked for may lie across two pages
        for page in range(block << 20, (block + 1) << 20, 4096):
            if libc.write(writer, ctypes.c_void_p(page), 4096) != 4096:      # an unmapped page is EFAULT, not a crash
                end = b""
                continue
            both = end + os.read(reader, 4096)
            found = re.search(pattern, both)
            if found:
                return found[0].decode()
            end = both[-40:]
def control():
    return look(bytes([80, 76, 65, 78, 84, 69, 68, 45]) + b"0{24}") is not None
def f(x):
    return look(bytes([88, 89, 90, 90, 89, 45]) + b"[0-9a-f]{24}")
"""
    right = f"def f(x): return {token!r}"
    for _ in range(4):  # both workers have seen the token in programs, tests and outputs before the hunt begins
        assert assertions(right + f"\n# {_}", f"assert f(1) == {token!r}").passed
        assert contest(f"print({token!r})\n# {_}", ("", token)).passed
    verdict = assertions(scan, "assert control()", f"assert f(1) == {token!r}")
    assert (verdict.status, verdict.tests_passed) == ("failed", 1), verdict


def test_a_contest_program_cannot_read_what_is_expected_of_it():
    hunt = "import gc\nprint(next((o for o in gc.get_objects() if isinstance(o, (str, bytes)) and 'plugh' in str(o)), 'no'))"
    verdict = contest(hunt, ("", "plugh-42"), ("", "plugh-43"))
    assert verdict.status == "failed"


def test_an_answer_that_is_no_number_is_wrong():
    sources = [
        "class A:\n    __float__ = lambda s: 5.0\nanswer = A()",
        "answer = float('nan')",
        "answer = float('inf')",
        "answer = '5'",
        "answer = None",
        "answer = [5]",
        "x = 5",
        "answer = 10 ** 400",
        "answer = 10 ** 5000",
        "import numpy\nanswer = numpy.array([5.0])",
        "answer = []\nfor _ in range(900): answer = [answer]",
        "import os\nanswer = 5\nos._exit(0)",
    ]
    programs = [Program(problem=str(i), source=source, tests=(5.0,)) for i, source in enumerate(sources)]
    verdicts = judge_programs(MathQAPython(), programs, sandbox=shared())
    assert [v.passed for v in verdicts] == [False] * len(sources)
