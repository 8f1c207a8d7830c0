"""README, docs, docstrings and examples are executed: what they say is what happens."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODULES = sorted(
    ".".join(p.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for p in (ROOT / "src").rglob("*.py")
    if ">>> " in p.read_text()
)


def python_blocks(page: Path) -> list[str]:
    """Code fenced as ``python``; a block that starts with the comment `# not run` is shown only."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    return [block for block in blocks if not block.startswith("# not run")]


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.fixture(scope="module")
def example_runs(tmp_path_factory):
    """Every example in a process of its own, forked from one that has loaded the libraries: exit status and output by name."""
    folder = tmp_path_factory.mktemp("examples")
    env = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_EXAMPLES, *map(str, EXAMPLES)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return {p.name: (int((folder / f"{p.name}.rc").read_text()), (folder / p.name).read_text()) for p in EXAMPLES}


RUN_EXAMPLES = """
import os, pathlib, runpy, sys, traceback
import torch, transformers.trainer, trl
from transformers import LlamaForCausalLM
for example in sys.argv[1:]:
    name = os.path.basename(example)
    pid = os.fork()
    if pid == 0:
        out = os.open(name, os.O_CREAT | os.O_WRONLY)
        os.dup2(out, 1), os.dup2(out, 2)
        os.mkdir(f"in-{name}"), os.chdir(f"in-{name}")
        try:
            runpy.run_path(example, run_name="__main__")
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    pathlib.Path(f"{name}.rc").write_text(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs_and_is_short(example, example_runs):
    assert len(example.read_text().splitlines()) <= 40
    status, output = example_runs[example.name]
    assert status == 0, output
    assert output.strip()


@pytest.mark.parametrize(
    ("page", "example"), [("advise", "advise.py"), ("grow", "grow_right_answers.py")], ids=("advise", "grow")
)
def test_the_page_shows_what_the_example_prints(page, example, example_runs):
    """Numbers and hashes depend on the machine; every line is there but for them."""

    def lines(text):
        return [re.sub(r"[0-9a-f]{16}|[-+]?\d[\d.]*", "0", line.rstrip()) for line in text.splitlines()]

    text = (ROOT / "docs" / "how_to" / f"{page}.md").read_text()
    (shown,) = re.findall(r"prints:\n\n```text\n(.*?)```", text, flags=re.S)
    printed = set(lines(example_runs[example][1]))
    assert [line for line in lines(shown) if line not in printed] == []


def test_the_reference_tables_every_loss():
    from widen.losses import LOSSES

    pages = [ROOT / "docs" / "reference" / room / "index.md" for room in ("losses", "rivals")]
    rows = {name for page in pages for name in re.findall(r"^\| `([a-z_]+)", page.read_text(), flags=re.M)}
    assert set(LOSSES) <= rows


def test_the_table_of_losses_has_the_rivals_in_a_second_block():
    own, theirs = ((ROOT / "docs" / "reference" / room / "index.md").read_text() for room in ("losses", "rivals"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in theirs.splitlines() if line[:3] == "| `"]
    assert len(rows) > 9
    for loss, _, optimum, temperature in rows:
        assert f"| {loss} | {optimum} | {temperature} |\n" in own


def test_the_readme_is_one_screen_and_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 80
    assert "make demo" in readme
    assert "make test" in readme


def test_every_loss_has_a_page_in_the_docs():
    from widen.losses import LOSSES

    pages = {p.stem for room in ("losses", "rivals") for p in (ROOT / "docs" / "reference" / room).glob("*.md")}
    assert set(LOSSES) - {"dft"} <= pages  # dft is c-Div at alpha = 0 and lives on that page


def test_the_tree_in_contributing_names_every_room():
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("## The tree")[1].split("## A tour")[0]
    for room in (ROOT / "src" / "widen").iterdir():
        if room.is_dir() and room.name != "__pycache__":
            assert f"{room.name}/" in tree


def test_the_page_on_tasks_shows_the_example():
    page = (ROOT / "docs" / "how_to" / "own_task.md").read_text()
    shown = page.split("# not run here: this is examples/own_task.py\n")[1].split("```")[0]
    assert (ROOT / "examples" / "own_task.py").read_text().endswith(shown)
