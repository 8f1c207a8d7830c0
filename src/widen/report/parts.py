"""The parts of a page: figures, tables, choices, folds and interactive panels. `page.py` makes them HTML and escapes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

Cell = str | float | int | None


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plotly figure, as an object or as its JSON, with a caption."""

    kind: ClassVar[str] = "figure"
    figure: Any
    caption: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headers that sort. Floats are shown with four decimals, those in the columns ``general`` as they are."""

    kind: ClassVar[str] = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    general: Sequence[str] = ()

    def shown(self) -> list[list[str]]:
        """The cells as text.

        >>> Table(headers=["t", "score"], rows=[[0.5, 0.5], [2.0, None]], caption="", general=["t"]).shown()
        [['0.5', '0.5000'], ['2', '–']]
        """
        plain = [header in self.general for header in self.headers]
        return [[show(cell, plain=one) for cell, one in zip(row, plain, strict=True)] for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class FigureChoice:
    """Several figures; a list selects the one that is shown."""

    kind: ClassVar[str] = "choice"
    label: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, kw_only=True)
class Fold:
    """A summary that opens to sentences and code."""

    kind: ClassVar[str] = "fold"
    summary: str
    text: Sequence[str] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """An interactive part: ``web/<name>.html``, moved by ``scripts`` of ``web/``, which read ``data`` and ``blobs`` (base64 texts)."""

    kind: ClassVar[str] = "panel"
    name: str
    data: Any
    scripts: Sequence[str]
    blobs: Mapping[str, str] = field(default_factory=dict)


Part = Figure | Table | FigureChoice | Fold | Panel


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, sentences, warnings and parts. ``short`` is its name in the page's navigation."""

    title: str
    text: Sequence[str] = ()
    warnings: Sequence[str] = ()
    parts: Sequence[Part] = ()
    short: str = ""


def show(cell: Cell, *, plain: bool = False) -> str:
    """A cell as text.

    >>> show(0.12345), show(None), show(3), show("x"), show(123456.0)
    ('0.1235', '–', '3', 'x', '1.235e+05')
    """
    if cell is None:
        return "–"
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:g}" if plain else f"{cell:.4g}" if abs(cell) >= 1e4 else f"{cell:.4f}"
