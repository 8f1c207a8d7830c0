"""Compare data, losses and decodings on a small model, in two minutes on two CPU cores.

The model multiplies numbers modulo 97. Half of the products were rare in its training data, so it
seldom writes them. The demo fine-tunes copies of the model: with NLL (the usual loss), with losses
that raise recall (the share of right answers that the model finds), and with NLL on data without
repeats. It scores all copies exactly under the same decodings: temperatures alone, and cut-offs of
unlikely tokens before or after the temperature. It prints a table and a one-sentence summary, and
writes a page. A second call reuses all results.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from widen.disk.lock import hold

from .show import bars, best_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="output folder (default: runs/demo)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")


def main(options: argparse.Namespace) -> int:
    """Run the stages, print the table, write the page."""
    from widen.report.run_report import write_report
    from widen.run.best_setting import what_helped
    from widen.run.folder import folder_of
    from widen.run.runner import best_settings, run
    from widen_recipes.demo import STEPS, fine_tune

    console, begun, name = Console(), time.monotonic(), "demo:fine_tune"
    experiments = fine_tune()
    if all(folder_of(options.out, one).is_trained for one in experiments):
        console.print("Everything is trained already: reading the scores, writing the page again.")
    else:
        console.print(f"Fine-tuning {len(experiments)} copies of one NLL model for {STEPS} steps each.")
    with hold(options.out), bars() as progress:
        run(name, experiments, options.out, command="widen demo", device=options.device, progress=progress)
    best = best_settings(name, experiments, options.out)
    console.print(best_table(best, title="The best recall at a required precision"))
    console.print(what_helped(best), highlight=False)
    console.print(
        f"One seed, {STEPS} steps: it shows the mechanism and proves little. The recipe mulmod:rivals has five seeds."
    )
    folders = [folder_of(options.out, one).path for one in experiments]
    title = f"What data, decoding and loss bring: {len(experiments)} models, one seed, {STEPS} steps"
    path, *_ = write_report(folders, options.out / "report.html", title=title, figures=False)
    console.print(f"page: {path}   ({time.monotonic() - begun:.0f} s)", soft_wrap=True)
    return 0
