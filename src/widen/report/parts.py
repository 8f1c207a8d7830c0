"""What a page is made of: figures, tables, choices, folds, warnings, and panels with controls of their own.

All of it is values; `page.py` turns them into HTML. Whatever comes from a run (names, samples, warnings) is data and is escaped there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | float | int | None
LONG = 28
"""Text longer than this may wrap inside its cell."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plotly figure and what to see in it; its title stands above it, its legend is a row of buttons, SVG and CSV below it."""

    figure: Any
    caption: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headers that sort; a float is shown with three decimals, None as a dash. The CSV has every digit.

    ``general`` names the columns whose numbers are shown as they are: temperatures.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    general: Sequence[str] = ()

    def shown(self) -> list[list[str]]:
        """The cells as text.

        >>> Table(headers=["t", "score"], rows=[[0.5, 0.5], [2.0, None]], caption="", general=["t"]).shown()
        [['0.5', '0.500'], ['2', '–']]
        """
        plain = [header in self.general for header in self.headers]
        return [
            [f"{cell:g}" if p and isinstance(cell, float) else show(cell) for cell, p in zip(row, plain, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True, kw_only=True)
class FigureChoice:
    """Several figures of which one is shown, picked by name from a list."""

    label: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """A part that opens: a summary, plain sentences, and text set as code."""

    summary: str
    text: Sequence[str] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Warnings:
    """Sentences that a reader must not miss."""

    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A part with controls of its own: ``web/<name>.html`` is its body, ``scripts`` of ``web/`` move it, ``data`` is what they read.

    ``blobs`` are texts of letters and digits only, which the script opens by name when it needs them.
    """

    name: str
    data: Any
    scripts: Sequence[str]
    blobs: Mapping[str, str] = field(default_factory=dict)


Part = Figure | Table | FigureChoice | Fold | Warnings | Panel


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, a few plain sentences, and what they speak of. ``short`` is its name in the page's navigation."""

    title: str
    text: Sequence[str] = ()
    parts: Sequence[Part] = ()
    short: str = ""


def show(cell: Cell) -> str:
    """A cell as people read it.

    >>> show(0.12345), show(None), show(3), show("x"), show(123456.0)
    ('0.123', '–', '3', 'x', '1.235e+05')
    """
    if cell is None:
        return "–"
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.4g}" if abs(cell) >= 1e4 else f"{cell:.3f}"
