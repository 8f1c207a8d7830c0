"""One page of runs: frontiers, best setting for a target, PR curves, training, scores, samples, and what was run.

  widen report runs/nll runs/cdiv                 two runs, side by side
  widen report runs                               every run in or below a folder; runs of one name are seeds of one line
  widen report runs --out pages/report.html       choose the file; static figures go into figures/ beside it

The page is one file that loads nothing: open it anywhere, or send it. The static figures are PDF, SVG and PNG.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders that hold them")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default: report.html in the run, or in the runs' common folder)",
    )
    parser.add_argument("--title", default="", help="title of the page (default: made from the names of the runs)")
    parser.add_argument("--no-figures", action="store_true", help="leave out the static figures")


def main(options: argparse.Namespace) -> int:
    """Read, draw, say where."""
    from widen.report.load import find_runs, holds_runs
    from widen.report.run_report import write_report

    console = Console(highlight=False, soft_wrap=True)
    others = [path for path in options.runs if not holds_runs(path)]
    if others and len(others) < len(options.runs):  # what a star in the command line brings along
        console.print(f"left out, no run in it: {', '.join(map(str, others))}")
        options.runs = [path for path in options.runs if path not in others]
    find_runs(options.runs)
    out = options.out or Path(os.path.commonpath([path.resolve() for path in options.runs])) / "report.html"
    page, *figures = write_report(options.runs, out, title=options.title, figures=not options.no_figures)
    console.print(f"page: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if figures:
        console.print(f"figures: {figures[0].parent} ({len(figures)} files)")
    return 0
