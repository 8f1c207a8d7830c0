"""A loss class of your own as a string, ``module:Class(field=value)``, and back.

Reading such a string imports the module that it names. Values are literals, and nothing but a loss class is called.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from dataclasses import fields, is_dataclass
from typing import Any

CONTRACT = ("weigh", "init", "apply", "observe", "now")
FORM = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)\((.*)\)", re.DOTALL)


def class_spec(loss: Any) -> str:
    """``module:Class(field=value, ...)`` with every field that differs from its default. Refused if it cannot be read back.

    >>> from widen.losses import CDiv
    >>> class_spec(CDiv(alpha=1.4, cap=10.0))
    'widen.losses.cdiv:CDiv(cap=10.0, alpha=1.4)'
    """
    kind = type(loss)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise ValueError(f"{name} cannot be stored: move the class to the top level of a module that can be imported")
    if not is_dataclass(loss) and getattr(loss, "__dict__", {}):
        raise ValueError(f"{name} cannot be stored: make it a frozen dataclass, so that its fields are known")
    shown = [f.name for f in fields(loss) if getattr(loss, f.name) != f.default] if is_dataclass(loss) else []
    for field in shown:
        value = getattr(loss, field)
        if not _is_literal(value):
            raise ValueError(
                f"{name}.{field}={value!r} cannot be stored: a field must be a number, a word, or a list of these"
            )
    stored = f"{name}({', '.join(f'{field}={getattr(loss, field)!r}' for field in shown)})"
    again = from_class_spec(stored)
    if type(again) is not kind or (is_dataclass(loss) and again != loss):
        raise ValueError(f"{name} cannot be stored: {stored} gives {again!r} and not the loss {loss!r}")
    return stored


def from_class_spec(text: str) -> Any | None:
    """The object that ``module:Class(field=value)`` names; None for a string of another form."""
    found = FORM.fullmatch(text)
    if found is None:
        return None
    module, path, arguments = found.groups()
    try:
        kind: Any = importlib.import_module(module)
        for part in path.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r}: cannot import {path} from {module}: {error}") from None
    # A config may come from a stranger: call nothing but a loss.
    if not isinstance(kind, type) or not all(hasattr(kind, name) for name in CONTRACT):
        raise ValueError(f"{text!r}: {path} is not a loss: a class with {', '.join(CONTRACT)}, such as a TokenWeight")
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("write the fields as name=value")
        values = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
        return kind(**values)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from None


def _value(node: ast.expr) -> Any:
    """A literal, or inf, which Python writes without quotes."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Name):
        return -_value(node.operand)
    if isinstance(node, ast.Name) and node.id == "inf":
        return math.inf
    return ast.literal_eval(node)


def _is_literal(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str))
