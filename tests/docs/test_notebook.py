"""The notebook of the docs runs from its first cell to its last, shows the page's code, and its sentences hold."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

START = Path(__file__).parents[2] / "docs" / "start"
pytestmark = pytest.mark.timeout(600)  # it trains
LINE = re.compile(r"^(\S+) +precision (\S+), coverage (\S+)$", flags=re.M)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The code cells after a run in an empty folder."""
    notebook = nbformat.read(START / "ten_minutes.ipynb", as_version=4)
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def scores(cell):
    """{decoding: (precision, coverage)} as the cell prints them."""
    printed = "".join(output.get("text", "") for output in cell.outputs)
    return {spec: (float(precision), float(coverage)) for spec, precision, coverage in LINE.findall(printed)}


def test_the_notebook_runs_and_its_sentences_hold(cells):
    heated, truncated, grown = scores(cells[2]), scores(cells[3]), scores(cells[4])
    assert heated["t=3"][1] < heated["t=1"][1] < heated["t=1.5"][1]  # heat finds more, then fewer
    assert heated["t=0.7"][0] > heated["t=1"][0] > heated["t=1.5"][0] > heated["t=3"][0]
    for precision, coverage in truncated.values():
        assert precision > heated["t=1"][0]
        assert coverage > max(found for _, found in heated.values())
    assert grown["t=1"][1] > max(found for _, found in heated.values())
    assert grown["t=1"][0] > heated["t=1"][0]


def test_the_page_and_the_notebook_begin_with_the_same_code():
    (block, *_) = re.findall(r"^```python\n(.*?)^```", (START / "ten_minutes.md").read_text(), flags=re.M | re.S)
    first = next(
        cell for cell in nbformat.read(START / "ten_minutes.ipynb", as_version=4).cells if cell.cell_type == "code"
    )
    assert block.strip() == first.source.strip()
