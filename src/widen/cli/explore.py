"""A page where the paper's artificial case comes alive: drag V, K, rho, a, epsilon, t and lambda, or pick a loss.

  widen explore                       writes explore.html here
  widen explore --out pages/x.html

Everything is computed in the page, by the formulas of widen.theory; it loads nothing and needs no run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--out", type=Path, default=Path("explore.html"), help="the page (default: explore.html)")


def main(options: argparse.Namespace) -> int:
    """Write the page, say where."""
    from widen.report.explorer import explorer

    Console(highlight=False, soft_wrap=True).print(f"page: {explorer().write(options.out)}")
    return 0
