"""Records of the known data sets as programs to be judged: a record (a dictionary as its file has it) and a source
text in, a `Program` out.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Mapping
from typing import Any

from .judges import Exchange, Program


def mathqa_python(record: Mapping[str, Any], source: str | None = None, *, problem: str | None = None) -> Program:
    """MathQA-Python; the reference program where no source is given.

    Examples:
        >>> mathqa_python({"task_id": 7, "code": "answer = 2.0", "answer": 2.0}).tests
        (2.0,)
    """
    text = source if source is not None else record.get("code", record.get("program"))
    name = problem if problem is not None else str(record.get("task_id", record.get("question")))
    return Program(problem=name, source=_text(text, record), tests=(float(record["answer"]),))


def mbpp(record: Mapping[str, Any], source: str | None = None) -> Program:
    """MBPP and its sanitised part; the setup runs after the program, since it may build objects of its classes.

    A function that the reference calls by a builtin's name (`sum` in problem 126) is the program's in the tests.
    """
    setup = "\n".join([*record.get("test_imports", ()), record.get("test_setup_code", "")]).strip()
    text = source if source is not None else record.get("code")
    shadows = tuple(sorted(_defined(record.get("code", "")) & set(dir(builtins))))
    return Program(
        problem=f"MBPP/{record['task_id']}",
        source=_text(text, record),
        tests=tuple(record["test_list"]),
        setup=setup,
        shadows=shadows,
    )


def humaneval(record: Mapping[str, Any], completion: str | None = None) -> Program:
    """HumanEval: the prompt and its completion are the program, `check` on the entry point is the one test.

    The prompt's helpers (a polynomial to be solved, a cipher to be undone) are trusted code: a completion that
    redefines them does not move its test.
    """
    text = completion if completion is not None else record.get("canonical_solution")
    test = f"{record['test']}\ncheck({record['entry_point']})"
    return Program(
        problem=str(record["task_id"]),
        source=record["prompt"] + _text(text, record),
        tests=(test,),
        trusted=_without(record["prompt"], record["entry_point"]),
    )


def _defined(code: str) -> set[str]:
    """Functions and classes at the top of the code."""
    return {node.name for node in _parsed(code).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def _without(prompt: str, name: str) -> str:
    """The prompt's imports and helpers, less the function that is asked for."""
    tree = _parsed(prompt)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    return ast.unparse(tree)


def _parsed(code: str) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):  # '\w' outside a raw string, as references write it
        return ast.parse(code)


def contest(problem: str, source: str, exchanges: list[tuple[str, str]]) -> Program:
    """A contest problem: (input, output) pairs."""
    return Program(problem=problem, source=source, tests=tuple(Exchange(stdin, stdout) for stdin, stdout in exchanges))


def _text(text: Any, record: Mapping[str, Any]) -> str:
    if not isinstance(text, str):
        raise ValueError(f"record with keys {sorted(record)}: no source given and no reference program in it")
    return text
