"""Recipes by name, ``module:function``: functions of a package that take no arguments and return experiments."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches
from types import ModuleType

from .experiment import Experiment


def find(package: str, spec: str) -> list[Experiment]:
    """The experiments of ``module:function``, or of its small form ``module:tiny:function``."""
    module_name, _, rest = spec.partition(":")
    try:
        module = importlib.import_module(f"{package}.{module_name}")
    except ModuleNotFoundError:
        raise ValueError(
            f"no recipe module is called {module_name!r}; recipes: {', '.join(summaries(package))}"
        ) from None
    small, _, function = rest.rpartition(":")
    if function not in _functions(module) or small not in ("", "tiny"):
        close = get_close_matches(spec, summaries(package), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"no recipe is called {spec!r}{hint} Recipes: {', '.join(summaries(package))}")
    experiments: list[Experiment] = getattr(module, function)()
    if small and not hasattr(module, "tiny"):
        raise ValueError(f"{module_name}:{function} has no small form")
    return list(module.tiny(experiments)) if small else experiments


def summaries(package: str) -> dict[str, str]:
    """Every recipe of a package, as ``module:function``, with the first sentence of its docstring."""
    found = {}
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        for function in _functions(module):
            text = (getattr(module, function).__doc__ or "").strip().partition("\n")[0]
            found[f"{info.name}:{function}"] = text.replace("`", "")
    return found


def _functions(module: ModuleType) -> list[str]:
    hints = {name: getattr(value, "__annotations__", {}) for name, value in vars(module).items()}
    return [
        name
        for name, of_name in hints.items()
        if not name.startswith("_") and "Experiment]" in str(of_name.get("return")) and set(of_name) == {"return"}
    ]
