"""Write an interactive page about the losses and about the paper's artificial case.

  widen explore                       writes explore.html here
  widen explore --out pages/x.html

The artificial case is a model with two known faults. Drag the size of the vocabulary (V), the
number of right tokens (K), the faults (rho, a, epsilon), the temperature t and lambda. The page
works offline and needs no run. It computes everything itself, by the formulas of widen.theory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--out", type=Path, default=Path("explore.html"), help="output file (default: explore.html)")


def main(options: argparse.Namespace) -> int:
    """Write the page, say where."""
    from widen.report.explorer import explorer

    Console(highlight=False, soft_wrap=True).print(f"page: {explorer().write(options.out)}")
    return 0
