"""Which programs count as one: a form that spelling, names and the order of independent steps do not change.

Only programs that have passed their tests belong here. The sandbox has compiled those without harm, so that parsing them is safe.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

COMMUTE = (ast.Add, ast.Mult)
MOST = 64


def tidy(source: str) -> str:
    """A program without blank lines and white space at the ends of lines. It is not parsed: it may be hostile.

    >>> tidy("a = 1  \\n\\nif a:\\n    b = 2\\n")
    'a = 1\\nif a:\\n    b = 2'
    """
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())


def program_form(source: str, *, result: str = "answer") -> str:
    """The form of a right program; programs of one form count as one.

    A program of assignments that ends in the variable ``result`` is its formula: names, unused variables, imports and `print` do not
    count, nor does the order of terms and factors. Other programs are compared without comments, docstrings and names of variables. A
    text that is no Python is compared line by line.

    >>> program_form("n0 = 3\\nt0 = n0 * 2.0\\nanswer = t0 + 1\\nprint(answer)") == program_form("answer = 1.0 + 2.0 * 3.0")
    True
    >>> program_form("answer = 7.0") == program_form("answer = 1.0 + 2.0 * 3.0")
    False
    >>> program_form("def f(a):\\n    '''Add.'''\\n    return a + 1") == program_form("def f(x): return x + 1  # add")
    True
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
        return _formula(tree.body, result) or _renamed(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return tidy(source)


class _Form(NamedTuple):
    """A digest of an expression; of a sum or a product also the digests of its terms or factors, each with how often it occurs."""

    digest: str
    kind: str = ""
    parts: Mapping[str, int] = {}


def _formula(body: Sequence[ast.stmt], result: str) -> str | None:
    """A digest of the formula in ``result``; None for a program with other statements than assignments, imports and `print`."""
    known: dict[str, _Form] = {}
    for one in body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            known[one.targets[0].id] = _value(one.value, known)
        elif isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            read = ast.Name(id=one.target.id, ctx=ast.Load())
            known[one.target.id] = _value(ast.BinOp(left=read, op=one.op, right=one.value), known)
        elif not isinstance(one, (ast.Import, ast.ImportFrom)) and not _prints(one):
            return None
    return known[result].digest if result in known else None


def _prints(one: ast.stmt) -> bool:
    """Whether a statement is a call of `print` or a text on its own."""
    value = one.value if isinstance(one, ast.Expr) else None
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(value, ast.Constant) or (isinstance(called, ast.Name) and called.id == "print")


def _value(node: ast.AST, known: Mapping[str, _Form]) -> _Form:
    """The form of an expression, in which a known name is what it stands for. Its length is bounded: formulas cannot explode."""
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 2**53:
        return _value(ast.Constant(float(node.value)), known)
    if isinstance(node, ast.BinOp) and isinstance(node.op, COMMUTE):
        return _joined(type(node.op).__name__, _value(node.left, known), _value(node.right, known))
    parts = [type(node).__name__]
    for name, field in ast.iter_fields(node):
        items = [_value(item, known).digest if isinstance(item, ast.AST) else repr(item) for item in _listed(field)]
        parts += [] if name == "ctx" else [f"{name}={','.join(items)}"]
    return _Form(_digest(" ".join(parts)))


def _joined(kind: str, left: _Form, right: _Form) -> _Form:
    """A sum or a product: its terms or factors in any order. One with more than `MOST` different ones counts as a single one."""
    parts = Counter[str]()
    for side in (left, right):
        parts.update(side.parts if side.kind == kind else {side.digest: 1})
    digest = _digest(" ".join([kind, *(f"{one}*{number}" for one, number in sorted(parts.items()))]))
    return _Form(digest, kind, parts) if len(parts) <= MOST else _Form(digest)


def _listed(field: object) -> list[object]:
    return field if isinstance(field, list) else [field]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _renamed(tree: ast.Module) -> str:
    """A digest of a program whose variables and arguments are numbered in order of appearance, without docstrings."""
    numbers: dict[str, str] = {}
    bound = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    bound |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Name) and one.id in bound:
            one.id = numbers.setdefault(one.id, f"v{len(numbers)}")
        elif isinstance(one, ast.arg):
            one.arg, one.annotation = numbers.setdefault(one.arg, f"v{len(numbers)}"), None
        if isinstance(one, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(one) is not None:
            one.body = one.body[1:]
        if isinstance(one, ast.FunctionDef):
            one.returns = None
    return _digest(ast.dump(tree))
