"""Results of recipes as rows: the columns that the measured figures read.

    recipe, name, loss, b, seeds, temperature, precision, precision_half_width, recall, recall_half_width, auc

Lines that begin with # are comments, other columns are ignored, empty cells are missing values, and only recipe, name, precision and
recall must be there. The support-size figure reads ``recipe, mass, quantile, tokens`` instead. A recipe is known by its
last word: ``mulmod:tsallis`` is ``tsallis``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting at one temperature."""

    recipe: str
    name: str
    loss: str
    b: float | None
    seeds: int | None
    temperature: float
    precision: float
    recall: float
    precision_half_width: float | None
    recall_half_width: float | None


@dataclass(frozen=True, kw_only=True)
class SupportRow:
    """How many tokens hold ``mass`` of the next-token law, at one quantile over positions."""

    mass: float
    quantile: float
    tokens: float


def read(folder: str | Path, recipe: str) -> list[Row]:
    """The rows of one recipe over all CSV files of a folder; empty where there are none."""
    return [_row(cells) for cells in _cells(Path(folder), recipe) if cells.get("precision") and cells.get("recall")]


def read_support(folder: str | Path, recipe: str) -> list[SupportRow]:
    """The rows of the support-size recipe."""
    wanted = ("mass", "quantile", "tokens")
    return [
        SupportRow(**{k: float(cells[k]) for k in wanted})
        for cells in _cells(Path(folder), recipe)
        if all(cells.get(k) for k in wanted)
    ]


def _cells(folder: Path, recipe: str) -> Iterator[dict[str, str]]:
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for cells in csv.DictReader(line for line in file if not line.startswith("#")):
                named = cells.get("recipe") or path.stem
                if re.split(r"[:./]", named)[-1] == recipe:
                    yield {key: value for key, value in cells.items() if isinstance(value, str)}


def _row(cells: dict[str, str]) -> Row:
    def value(name: str) -> float | None:
        text = cells.get(name, "")
        try:
            return float(text) if text else None
        except ValueError:
            raise ValueError(f"column {name} of recipe {cells.get('recipe')!r} holds {text!r}, not a number") from None

    precision, recall, temperature, seeds = map(value, ("precision", "recall", "temperature", "seeds"))
    assert precision is not None
    assert recall is not None
    return Row(
        recipe=cells.get("recipe", ""),
        name=cells.get("name", ""),
        loss=cells.get("loss", ""),
        b=value("b"),
        seeds=None if seeds is None else int(seeds),
        temperature=1.0 if temperature is None else temperature,
        precision=precision,
        recall=recall,
        precision_half_width=value("precision_half_width"),
        recall_half_width=value("recall_half_width"),
    )


def family(loss: str) -> str:
    """The loss's family, warm-up aside: nll, trunc, truncr, gold, cdiv, tailr, lambda_pr.

    >>> family("nll:steps=3000 then cdiv:alpha=0.5"), family("nll:steps=3000 then truncr:drop=0.1"), family("nll")
    ('gold', 'truncr', 'nll')
    """
    last = loss.rpartition(" then ")[2].strip()
    kind = last.partition(":")[0]
    return "gold" if kind == "cdiv" and re.search(r"alpha=0\.50*(?:,|$)", last) else kind


def strength(loss: str) -> float:
    """The number that orders the members of a family: drop, alpha, gamma or lam."""
    found = re.search(r"(?:drop|alpha|gamma|lam)=([0-9.eE+-]+)", loss.rpartition(" then ")[2])
    return float(found.group(1)) if found else 0.0


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each name by rising temperature, in order of first appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.name, []).append(row)
    return {name: sorted(members, key=lambda row: row.temperature) for name, members in groups.items()}
