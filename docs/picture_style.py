"""The style of every picture: large labels, few lines, and colours that follow the reader's light or dark page."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import widen_recipes
from widen.run.table import read_cells

RESULTS = Path(widen_recipes.__file__).parent / "results"
# Okabe and Ito's colours can be told apart with every common kind of colour vision; lines also differ in their dashes.
BLUE, ORANGE, GREEN, PINK = COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]
DASHES = ["-", "--", "-.", ":"]
INK, GREY, PAPER = "#333333", "#8a8a8a", "#ffffff"
DARK = {
    BLUE: "#56b4e9",
    ORANGE: "#ff9a57",
    GREEN: "#3fd0a4",
    PINK: "#e79bc4",
    INK: "#e6e6e6",
    GREY: "#8f8f8f",
    PAPER: "#1e2129",
}
"""What each colour becomes on a dark page."""
BIG = 15
"""Font size of words inside a picture."""
STYLE = {
    "svg.hashsalt": "widen",  # fixed, so that the ids in the file do not change from run to run
    "svg.fonttype": "none",  # text stays text: a few kilobytes instead of fifty
    "font.family": "sans-serif",
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2.4,
    "xtick.minor.bottom": False,  # eight decades of minor ticks are two thirds of the file
    "ytick.minor.left": False,
    "path.simplify_threshold": 0.3,
}


def themed(svg: str) -> str:
    """Replace each colour by a CSS variable with a light and a dark value.

    A browser takes the scheme of the page that shows the picture, so the site's own switch works too.
    """
    for colour in DARK:
        svg = svg.replace(colour, f"var(--c{colour[1:]})")
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in DARK)
    dark = "".join(f"--c{colour[1:]}:{other};" for colour, other in DARK.items())
    rules = f":root{{{light}}}@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    return svg.replace('<style type="text/css">', f'<style type="text/css">{rules}', 1)


def save(figure: Figure, path: Path) -> None:
    """Write the figure as SVG. The same figure gives the same bytes."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    path.write_text(themed(text.getvalue()), encoding="utf-8")


def legend(ax: Axes) -> None:
    """Put the legend above the axes, where no line runs."""
    ax.figure.legend(loc="outside upper left", ncols=2)


def result_rows(file: str, name: str) -> list[dict[str, str]]:
    """The rows of one name in a kept table of results."""
    return [row for row in read_cells(RESULTS / file) if row["name"] == name]
