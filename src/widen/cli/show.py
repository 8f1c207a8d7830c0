"""What several verbs print: progress bars with time left, the table of a frontier, and the best settings of every method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from widen.run.best_setting import BestSetting, MethodBest
from widen.run.folder import StageProgress
from widen.run.table import Row, best_recall
from widen.sample.decoding import Decoding


@contextmanager
def bars() -> Iterator[StageProgress]:
    """A callback that draws one progress bar for everything that is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as shown:
        tasks: dict[str, TaskID] = {}

        def at(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield at


def frontier_table(rows: Sequence[Row], *, title: str, precision: float = 0.9) -> Table:
    """One line per setting: precision and recall at t = 1, and the best recall at the precision asked for."""
    table = Table(title=title, title_justify="left")
    for header in ("loss", "seeds", "precision", "recall", f"recall at\nprecision ≥ {precision:g}", "decoding"):
        table.add_column(header, justify="left" if header == "loss" else "right")
    best = best_recall(rows, precision=precision)
    for name in dict.fromkeys(row.name for row in rows):
        mine = [row for row in rows if row.name == name]
        at_one = min(mine, key=lambda row: abs(row.temperature - 1))
        top = best[name]
        table.add_row(
            name,
            str(at_one.seeds),
            _with(at_one.precision, at_one.precision_half_width),
            _with(at_one.recall, at_one.recall_half_width),
            _with(top.recall, top.recall_half_width) if top else "never",
            Decoding.parse(top.decoding).in_words if top else "",
        )
    return table


def best_table(rows: Sequence[MethodBest], *, title: str) -> Table:
    """One line per required precision and method: the best recall at temperature alone, and under any decoding."""
    table = Table(title=title, title_justify="left")
    table.add_column("precision")
    table.add_column("loss")
    table.add_column(f"best of {rows[0].tried_alone}\ntemperatures", justify="right")
    table.add_column(f"best of {rows[0].tried}\ndecodings", justify="right")
    table.add_column("which")
    for number, row in enumerate(rows):
        level = f"≥ {row.level:g}" if number == 0 or rows[number - 1].level != row.level else ""
        last = number + 1 == len(rows) or rows[number + 1].level != row.level
        best = row.any_decoding
        which = best.decoding.in_words if best else ""
        table.add_row(level, row.name, _recall(row.temperature_alone), _recall(best), which, end_section=last)
    seeds = rows[0].seeds
    table.caption = (
        f"Recall, {seeds} seeds: each under the decoding chosen on the others; ± is a 95 % interval over seeds."
        if seeds > 1
        else "Recall of one seed, under the decoding chosen on it."
    )
    table.caption_justify = "left"
    return table


def _recall(best: BestSetting | None) -> str:
    return _with(best.recall.value, best.recall.half_width) if best else "never"


def _with(value: float, half_width: float | None) -> str:
    return f"{value:.3f}" if half_width is None else f"{value:.3f} ± {half_width:.3f}"
