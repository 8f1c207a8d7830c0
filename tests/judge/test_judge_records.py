"""Records of the known data sets become programs with the right tests."""

import pytest
from sandbox_shared import shared

from widen.judge import Assertions, Exchange, judge_programs, records

sandbox = pytest.mark.sandbox


def test_records_become_programs():
    assert (
        records.mbpp({"task_id": 1, "code": "x = '\\w'", "test_list": []}).source == "x = '\\w'"
    )  # no warning escapes
    mbpp = {
        "task_id": 9,
        "code": "def sum(a): return a",
        "test_list": ["assert sum(1) == 1"],
        "test_setup_code": "z = 1",
        "test_imports": ["import math"],
    }
    program = records.mbpp(mbpp)
    assert (program.problem, program.setup, program.shadows) == ("MBPP/9", "import math\nz = 1", ("sum",))
    humaneval = {
        "task_id": "HumanEval/1",
        "prompt": "import math\ndef helper(x):\n    return x\n\ndef f(x):\n    '''doc'''\n",
        "entry_point": "f",
        "test": "def check(c):\n    assert c(1) == helper(2)",
        "canonical_solution": "    return x + 1\n",
    }
    program = records.humaneval(humaneval, "    return 2\n")
    assert program.source.endswith("return 2\n")
    assert "helper" in program.trusted
    assert "def f" not in program.trusted
    assert records.contest("c", "x", [("1", "2")]).tests == (Exchange("1", "2"),)
    with pytest.raises(ValueError, match="no source"):
        records.mathqa_python({"answer": 1})


@sandbox
def test_a_completion_cannot_move_its_test_by_redefining_the_prompts_helper():
    record = {
        "task_id": "HumanEval/1",
        "prompt": "def helper(x):\n    return x\n\ndef f(x):\n    '''doc'''\n",
        "entry_point": "f",
        "test": "def check(c):\n    assert helper(c(1)) == 2",
        "canonical_solution": "    return x + 1\n",
    }
    right, hostile = records.humaneval(record), records.humaneval(record, "    return 0\ndef helper(x): return 2\n")
    assert [v.passed for v in judge_programs(Assertions(), [right, hostile], sandbox=shared())] == [True, False]
