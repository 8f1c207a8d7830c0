"""What several verbs share: progress bars, plain tables, the best settings of every method, and run folders among paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

if TYPE_CHECKING:
    from widen.run.best_setting import BestSetting, MethodBest
    from widen.run.folder import StageProgress


@contextmanager
def bars() -> Iterator[StageProgress]:
    """A callback that draws one progress bar per thing that is done."""
    name = TextColumn("{task.description}", table_column=Column())  # in a narrow terminal it wraps; the numbers do not
    numbers = (one(table_column=Column(no_wrap=True)) for one in (MofNCompleteColumn, TimeRemainingColumn))
    with Progress(name, BarColumn(), *numbers) as shown:
        tasks: dict[str, TaskID] = {}

        def at(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield at


def table_of(
    title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,), **more: Any
) -> Table:
    """A table; the columns whose numbers are in ``left`` are aligned left, the others right."""
    table = Table(title=title, title_justify="left", caption_justify="left", **more)
    for number, header in enumerate(headers):
        table.add_column(header, justify="left" if number in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def runs_in(paths: Sequence[Path], console: Console) -> list[Path]:
    """The run folders at or below ``paths``. Paths without a run are named and left out; if none has one, that is an error."""
    from widen.report.load import find_runs, holds_runs

    others = [path for path in paths if not holds_runs(path)]
    if others and len(others) < len(paths):
        console.print(f"left out, no run in it: {', '.join(map(str, others))}", soft_wrap=True, highlight=False)
    return find_runs([path for path in paths if path not in others] or paths)


def files_or_runs(paths: list[Path], console: Console) -> list[Path]:
    """Files as they are; folders as the runs in them that have samples."""
    files, folders = [path for path in paths if not path.is_dir()], [path for path in paths if path.is_dir()]
    runs = runs_in(folders, console) if folders else []
    drawn = [path for path in runs if any((path / "samples").glob("*.jsonl"))]
    if drawn and len(drawn) < len(runs):
        names = ", ".join(str(path) for path in runs if path not in drawn)
        console.print(f"left out, no samples yet: {names}", soft_wrap=True, highlight=False)
    return files + (drawn or runs)


def trained_models(names: Sequence[str]) -> list[str]:
    """Names of models as they are; a folder of runs stands for the trained models in it."""
    from widen.report.load import find_runs, holds_runs

    found = []
    for name in names:
        path = Path(name)
        parent = path.is_dir() and not (path / "config.json").exists() and holds_runs(path)
        found += [str(one) for one in find_runs([path]) if (one / "checkpoint").is_dir()] if parent else [name]
    return found


def names_of_files(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Model and way of asking of each samples file, so that no two rows of a table read alike; the second is often empty."""
    from widen.report.load import names_of
    from widen.run.asking import in_words
    from widen.sample import read_samples

    folders = [file.parent.parent if file.parent.name == "samples" else file for file in files]
    return list(zip(names_of(folders), in_words([read_samples(file).settings.asked for file in files]), strict=True))


def best_table(rows: Sequence[MethodBest], *, title: str) -> Table:
    """One line per required precision and method: the best recall at temperature alone, and under any decoding."""
    first, caption = rows[0], "Recall of one seed, under the decoding chosen on it."
    if first.seeds > 1:
        caption = f"Recall, {first.seeds} seeds: each under the decoding chosen on the others; ± is a 95 % interval over seeds."
    settings = f"best of {first.tried_alone}\ntemperatures", f"best of {first.tried}\ndecodings"
    table = table_of(title, ("precision", "training", *settings, "which"), (), left=(0, 1, 4), caption=caption)
    for level, methods in groupby(rows, key=lambda row: row.level):
        for number, row in enumerate(methods):
            which = row.any_decoding.decoding.in_words if row.any_decoding else ""
            recalls = _recall(row.temperature_alone), _recall(row.any_decoding)
            table.add_row("" if number else f"≥ {level:g}", row.name, *recalls, which)
        table.add_section()
    return table


def _recall(best: BestSetting | None) -> str:
    if best is None:
        return "never"
    half_width = best.recall.half_width
    return f"{best.recall.value:.3f}" + (f" ± {half_width:.3f}" if half_width is not None else "")
