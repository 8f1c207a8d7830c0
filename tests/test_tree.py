"""The tree keeps its shape: every module imports alone, layers hold, no drawers, small files, light imports."""

import ast
import importlib
import importlib.util
import logging
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ROOMS = [
    "cli",
    "data",
    "disk",
    "head",
    "hosts",
    "judge",
    "losses",
    "metrics",
    "models",
    "report",
    "run",
    "sample",
    "theory",
    "train",
]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """The modules of ours that a module imports when it is loaded, and the packages that hold them."""
    here = module_name(path)
    package = here if path.name == "__init__.py" else here.rpartition(".")[0]
    found = set()
    for node in at_import(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*base, *filter(None, [node.module])])
        names = {f"{source}.{alias.name}" for alias in node.names}
        found |= names & MODULES  # a submodule
        if names - MODULES:  # a name of the module itself
            found.add(source)
    parents = {".".join(name.split(".")[:i]) for name in found for i in range(1, name.count(".") + 1)}
    own = {".".join(here.split(".")[:i]) for i in range(1, here.count(".") + 1)}
    return ((found | (parents - own)) & MODULES) - {here}


def at_import(body: list[ast.stmt]) -> list[ast.Import | ast.ImportFrom]:
    """The import statements that run when a module is loaded: not those in functions, nor those for type checkers alone."""
    found = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found += at_import(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            found += at_import(node.body) + at_import(getattr(node, "orelse", []))
            for handler in getattr(node, "handlers", []):
                found += at_import(handler.body)
    return found


MODULES = {module_name(path) for path in SOURCES}


PLUGINS = {"widen.hosts.ms_swift": "swift", "widen.hosts.axolotl": "axolotl", "widen.hosts.torchtitan": "spmd_types"}
"""Modules that load inside a framework only, and the package of it that they import first."""


def test_every_module_imports():
    for name in sorted(MODULES):
        package = PLUGINS.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            with pytest.raises(ModuleNotFoundError, match=f"'{package}'"):
                importlib.import_module(name)
        elif not name.endswith("__main__"):
            importlib.import_module(name)


def test_no_module_needs_itself_to_be_loaded():
    """Without a cycle the order of imports does not matter, so every module can be the first."""
    TopologicalSorter({module_name(path): imported(path) for path in SOURCES}).prepare()


def test_a_cycle_of_imports_is_found():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
    assert "widen.losses.weight" in imported(ROOT / "src/widen/losses/nll.py")
    assert "widen.data" in imported(ROOT / "src/widen/losses/nll.py")


def test_import_widen_loads_no_room_and_theory_loads_no_torch():
    code = """
import sys, widen
print([m for m in sys.modules if m == "torch" or m.startswith("widen.")])
print(widen.theory.pr_curve([1.0], [1.0]).auc, "torch" in sys.modules)
"""
    assert run(code).split("\n")[:2] == ["[]", "1.0 False"]


def test_rooms_are_reached_as_attributes():
    import widen

    assert all(widen.__getattr__(room).__name__ == f"widen.{room}" for room in ROOMS if room != "cli")


def test_an_unknown_room_is_refused_with_the_list_of_rooms():
    import widen

    with pytest.raises(AttributeError, match="rooms: data, disk, head, hosts, judge, losses"):
        widen.lossses  # noqa: B018


def test_no_source_file_is_longer_than_400_lines():
    assert {str(p): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400} == {}


def shared(names: dict[str, set[str]]) -> set[str]:
    return {name for name, rooms in names.items() if len(rooms) > 1}


def room(path: Path) -> str:
    """The room of a file, `widen_recipes` being one."""
    parts = path.relative_to(ROOT / "src").parts
    return parts[1] if parts[0] == "widen" else parts[0]


def test_no_two_rooms_have_a_module_of_the_same_name():
    found = defaultdict(set)
    for path in SOURCES:
        if path.stem not in ("__init__", "__main__") and room(path) != "widen_recipes":
            found[path.stem].add(room(path))
    assert shared(found) == set()


def test_no_two_rooms_have_a_public_class_of_the_same_name():
    found = defaultdict(set)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(room(path))
    assert shared(found) == set()


def test_there_are_no_drawers():
    assert [p for p in SOURCES if p.stem in {"utils", "common", "misc", "helpers", "tools"}] == []


def test_every_folder_of_the_package_is_a_room_of_the_architecture():
    folders = sorted(p.name for p in (ROOT / "src" / "widen").iterdir() if p.is_dir() and p.name != "__pycache__")
    assert folders == ROOMS


def test_import_layers_hold():
    from importlinter.cli import lint_imports

    found = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    for logger in logging.root.manager.loggerDict.values():  # it disables every logger that there was
        if isinstance(logger, logging.Logger):
            logger.disabled = False
    assert found == 0


def test_no_model_brings_code_of_its_own():
    """Whatever transformers loads by name is told not to run code that lies beside the weights."""
    calls = [
        (str(path), ast.unparse(node))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and re.match(r"Auto\w+\.from_pretrained$", ast.unparse(node.func))
    ]
    assert len(calls) >= 8
    assert [call for call in calls if "trust_remote_code=False" not in call[1]] == []


def test_every_module_says_what_it_is_for():
    assert [str(p) for p in SOURCES if not re.match(r'\s*r?"""\S', p.read_text()) and p.name != "__main__.py"] == []


def test_no_test_can_be_skipped_by_a_mark_in_its_file():
    """A skip is decided in conftest by what the machine has, never in a test file to get green."""
    pattern = re.compile(r"pytest\.mark\.(skip|xfail)\b")
    here = [p for p in (ROOT / "tests").rglob("test_*.py") if p != Path(__file__)]
    assert [str(p) for p in here if pattern.search(p.read_text())] == []
