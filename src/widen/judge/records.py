"""Turn records of known data sets into programs to be judged.

Each function takes a record, a dictionary as in the data set's file, and a source text, and returns a `Program`.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Mapping
from typing import Any

from .judges import Exchange, Program


def mathqa_python(record: Mapping[str, Any], source: str | None = None) -> Program:
    """Convert a MathQA-Python record; without a source, the program is the reference.

    Examples:
        >>> mathqa_python({"task_id": 7, "code": "answer = 2.0", "answer": 2.0}).tests
        (2.0,)
    """
    text = source if source is not None else record.get("code", record.get("program"))
    name = str(record.get("task_id", record.get("question")))
    return Program(problem=name, source=_text(text, record), tests=(float(record["answer"]),))


def mbpp(record: Mapping[str, Any], source: str | None = None) -> Program:
    """Convert an MBPP record. The setup runs after the program: it may build objects of the program's classes.

    If the reference defines a function with a builtin's name (`sum` in problem 126), tests use the program's.
    """
    setup = "\n".join([*record.get("test_imports", ()), record.get("test_setup_code", "")]).strip()
    text = source if source is not None else record.get("code")
    body = _parsed(record.get("code", "")).body
    defined = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return Program(
        problem=f"MBPP/{record['task_id']}",
        source=_text(text, record),
        tests=tuple(record["test_list"]),
        setup=setup,
        shadows=tuple(sorted(defined & set(dir(builtins)))),
    )


def humaneval(record: Mapping[str, Any], completion: str | None = None) -> Program:
    """Convert a HumanEval record: prompt and completion are the program, `check` of the entry point is the test.

    The prompt's helpers, e.g. a polynomial or a cipher, are trusted: a completion that redefines them does not change
    its test.
    """
    text = completion if completion is not None else record.get("canonical_solution")
    name = record["entry_point"]
    helpers = _parsed(record["prompt"])
    helpers.body = [node for node in helpers.body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    return Program(
        problem=str(record["task_id"]),
        source=record["prompt"] + _text(text, record),
        tests=(f"{record['test']}\ncheck({name})",),
        trusted=ast.unparse(helpers),
    )


def _parsed(code: str) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):  # references write '\w' outside raw strings
        return ast.parse(code)


def contest(problem: str, source: str, exchanges: list[tuple[str, str]]) -> Program:
    """Build the program of a contest problem from (input, output) pairs."""
    return Program(problem=problem, source=source, tests=tuple(Exchange(stdin, stdout) for stdin, stdout in exchanges))


def _text(text: Any, record: Mapping[str, Any]) -> str:
    if not isinstance(text, str):
        raise ValueError(f"record with keys {sorted(record)}: no source given and no reference program in it")
    return text
