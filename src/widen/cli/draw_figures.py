"""Draw the figures of the paper as PDF, SVG and PNG, with the paper's claim in each caption.

  widen figures                                   all of them, into figures/
  widen figures --only tsallis ineq --formats svg
  widen figures --results my_results              CSV files of your own runs

Six figures are exact and need no results. The others show results of recipes, by default those
shipped with widen. If results are missing, the command names the figure.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from .show import table_of

FORMATS = ("pdf", "svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="folder (default: figures)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="which figures to draw (default: all)")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="folder of CSV files (default: those shipped with widen)"
    )
    parser.add_argument(
        "--formats", nargs="+", default=list(FORMATS), metavar="FORMAT", help="some of pdf svg png (default: all)"
    )


def main(options: argparse.Namespace) -> int:
    """Draw the figures, print what was drawn and what was not."""
    from widen.report.paper_figures import write_figures

    shipped = Path(str(files("widen_recipes") / "results"))
    folder = options.results or (shipped if shipped.is_dir() else None)
    done = write_figures(options.out, folder=folder, only=options.only, formats=options.formats)
    rows = [(x.entry.name, x.entry.label, ", ".join(path.name for path in x.paths) or x.missing) for x in done]
    table = table_of(f"figures: {options.out}", ("figure", "in the paper", "files"), rows, left=(0, 1, 2))
    Console(highlight=False).print(table)
    return 0
