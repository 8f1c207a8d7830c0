"""A recipe end to end: train, score, table, page. Each stage skips what is on disk; running again adds what is missing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from widen.disk.atomic import write_text

from .environment import environment
from .experiment import Experiment
from .scores import Progress, score_all
from .table import Row, summarise, to_csv
from .training import OnTraining, train_all

if TYPE_CHECKING:
    from .text_experiment import TextExperiment


def find(package: str, spec: str) -> list[Any]:
    """The experiments of ``module:function`` in a package of recipes: all of the integer task, or all on texts (`on_texts`).

    A function that takes no argument and returns experiments is a recipe. ``module:tiny:function`` is its small form.
    """
    module_name, _, rest = spec.partition(":")
    try:
        module = importlib.import_module(f"{package}.{module_name}")
    except ModuleNotFoundError:
        raise ValueError(f"no recipe module is called {module_name!r}; recipes: {', '.join(names(package))}") from None
    small, _, function = rest.rpartition(":")
    if function not in _functions(module) or small not in ("", "tiny"):
        close = get_close_matches(spec, names(package), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"no recipe is called {spec!r}{hint} Recipes: {', '.join(names(package))}")
    experiments: list[Any] = getattr(module, function)()
    if small and not hasattr(module, "tiny"):
        raise ValueError(f"{module_name}:{function} has no small form")
    return list(module.tiny(experiments)) if small else experiments


def on_texts(experiments: Sequence[Any]) -> list[TextExperiment] | None:
    """The experiments where they are on texts, which `widen.run.text_stages.run_texts` runs; None where `run` is for them."""
    if not experiments or isinstance(experiments[0], Experiment):
        return None
    from .text_experiment import TextExperiment

    if not all(isinstance(one, TextExperiment) for one in experiments):
        raise TypeError("a recipe's experiments must be of one kind: Experiment, or TextExperiment")
    return list(experiments)


def names(package: str) -> list[str]:
    """Every recipe of a package, as ``module:function``."""
    import pkgutil

    found = []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        found += [f"{info.name}:{function}" for function in _functions(module)]
    return found


def summaries(package: str) -> dict[str, str]:
    """Every recipe of a package with the first sentence of what it says of itself."""
    found = {}
    for name in names(package):
        module, _, function = name.partition(":")
        text = getattr(importlib.import_module(f"{package}.{module}"), function).__doc__ or ""
        found[name] = text.strip().partition("\n")[0].replace("``", "").replace("`", "")
    return found


def _functions(module: ModuleType) -> list[str]:
    """Public functions of a module that return a list of experiments and ask for nothing."""
    found = []
    for name, value in vars(module).items():
        hints = getattr(value, "__annotations__", {})
        if not name.startswith("_") and "Experiment]" in str(hints.get("return")) and set(hints) == {"return"}:
            found.append(name)
    return found


def run(
    name: str,
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    command: str,
    device: str = "cpu",
    seeds: int | None = None,
    on_training: OnTraining | None = None,
    on_score: Progress | None = None,
) -> list[Row]:
    """Train, score and tabulate; the CSV is left in ``root``.

    Args:
      seeds: take only the first so many seeds of each setting; the table says how many each row has.
    """
    experiments = list({(experiment.name, experiment.key): experiment for experiment in experiments}.values())
    if seeds is not None:
        experiments = _first_seeds(experiments, seeds)
    if not experiments:
        raise ValueError(f"{name}: no experiments are left to run")
    folders = train_all(experiments, root, device=device, progress=on_training)
    rows = summarise(name, score_all(folders, device=device, progress=on_score))
    path = Path(root) / f"{name.replace(':', '_')}.csv"
    write_text(path, to_csv(rows, command=command, env=dict(environment())))
    return rows


def _first_seeds(experiments: Sequence[Experiment], seeds: int) -> list[Experiment]:
    """The experiments of the first so many seeds of each setting (a row of the table), as the recipe lists them."""
    kept, of_setting = [], dict[Any, list[int]]()
    for one in experiments:
        model = one.model
        taken = of_setting.setdefault((one.name, str(model.loss), model.data.under_representation), [])
        if model.seed not in taken:
            taken.append(model.seed)
        if model.seed in taken[:seeds]:
            kept.append(one)
    return kept
