"""Every figure of the paper as PDF, SVG and PNG, with the paper's claim in the caption.

  widen figures                                   all of them, into figures/
  widen figures --only tsallis ineq --formats svg
  widen figures --results my_results              CSV files of your own runs in place of those that ship

Six figures are exact and need no results. The others show the results of recipes; those whose results are not there yet are named.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.table import Table

FORMATS = ("pdf", "svg", "png")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), metavar="DIR", help="where the files go (default: figures)"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some figures, by name (default: all)")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="folder of CSV files (default: the results that ship)"
    )
    parser.add_argument(
        "--formats", nargs="+", default=list(FORMATS), metavar="FORMAT", help="of pdf, svg, png (default: all three)"
    )


def main(options: argparse.Namespace) -> int:
    """Draw, and say what was drawn and what was not."""
    from widen.report.paper_figures import write_figures

    shipped = Path(str(files("widen_recipes") / "results"))
    folder = options.results or (shipped if shipped.is_dir() else None)
    done = write_figures(options.out, folder=folder, only=options.only, formats=options.formats)
    table = Table(title=f"figures: {options.out}", title_justify="left")
    for header in ("figure", "in the paper", "files"):
        table.add_column(header)
    for one in done:
        table.add_row(one.entry.name, one.entry.label, ", ".join(path.name for path in one.paths) or one.missing)
    Console(highlight=False).print(table)
    return 0
