"""The tree keeps its shape: every module imports alone, layers hold, no drawers, small files, light imports."""

import ast
import re
import subprocess
import sys
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


@pytest.mark.parametrize("hosts", [False, True], ids=["ours", "in other trainers"])
def test_every_module_imports_alone(hosts):
    """Each in a fresh interpreter state: a module that only works after another was imported is found here."""
    names = [module_name(p) for p in SOURCES if p.name != "__main__.py" and ("hosts" in p.parts) == hosts]
    code = f"""
import importlib, os, sys
# loaded once; every forked child starts from here, without widen. A fork of more memory takes longer, so the trainers only where needed
import jaxtyping, numpy, rich, safetensors.torch, scipy.optimize, scipy.special, scipy.stats, torch
{"import transformers.trainer, trl" if hosts else ""}
failed = []
for name in {names!r}:
    pid = os.fork()
    if pid == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
assert not failed, failed
"""
    run(code)


def test_import_widen_loads_no_room_and_no_torch():
    assert (
        run("import sys, widen; print([m for m in sys.modules if m == 'torch' or m.startswith('widen.')])").strip()
        == "[]"
    )


def test_import_theory_loads_no_torch():
    assert run("import sys, widen.theory; print('torch' in sys.modules)").strip() == "False"


def test_rooms_are_reached_as_attributes():
    assert run(
        "import widen; print(widen.losses.parse('gold').alpha, widen.theory.pr_curve([1.0], [1.0]).auc)"
    ).split() == ["0.5", "1.0"]


def test_an_unknown_room_is_refused_with_the_list_of_rooms():
    import widen

    with pytest.raises(AttributeError, match="rooms: data, disk, head, hosts, judge, losses"):
        widen.lossses  # noqa: B018


def test_no_source_file_is_longer_than_400_lines():
    assert {str(p): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400} == {}


def test_there_are_no_drawers():
    assert [p for p in SOURCES if p.stem in {"utils", "common", "misc", "helpers", "tools"}] == []


def test_every_folder_of_the_package_is_a_room_of_the_architecture():
    folders = sorted(p.name for p in (ROOT / "src" / "widen").iterdir() if p.is_dir() and p.name != "__pycache__")
    assert folders == ROOMS


def test_import_layers_hold():
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


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
