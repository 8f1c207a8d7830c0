"""Write one page that compares runs: precision and recall, best settings, training, scores, samples.

  widen report runs/nll runs/cdiv               two runs, side by side
  widen report runs                             every run in or below a folder
  widen report runs --out pages/report.html     another file name

Runs that differ only in the seed form one line. The page is one file that works offline. Static
figures (PDF, SVG and PNG) go into figures/ beside it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from .show import runs_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, or folders that hold them")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: report.html in the common folder)")
    parser.add_argument("--title", default="", help="title of the page (default: made from the names of the runs)")
    parser.add_argument("--no-figures", action="store_true", help="leave out the static figures")


def main(options: argparse.Namespace) -> int:
    """Read the runs, write the page."""
    from widen.report.load import holds_runs
    from widen.report.run_report import write_report
    from widen.run.folder import RunFolder
    from widen.run.model_card import complete_card

    console = Console(highlight=False, soft_wrap=True)
    runs = runs_in(options.runs, console)
    given = [path.resolve() for path in options.runs if holds_runs(path)]
    out = options.out or Path(os.path.commonpath(given)) / "report.html"
    page, *figures = write_report(runs, out, title=options.title, figures=not options.no_figures)
    console.print(f"page: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    for run in runs:
        complete_card(RunFolder(run))
    if figures:
        console.print(f"figures: {figures[0].parent} ({len(figures)} files)")
    return 0
