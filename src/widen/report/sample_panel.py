"""Samples for the page: the same prompts from every run, gzip inside base64, within a budget. The page says how many are left out."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from .lines import ModelLine
from .parts import Panel
from .run_data import RunData, SampleCell, SampleText

BUDGET = 7_500_000
"""Bytes of the page for samples. With plotly's 4.8 MB and the scores it stays under 15 MB."""

FEWEST = 50
"""At least so many samples of a cell are kept, if it has them."""

LADDER = ((200, 100_000), (100, 20_000), *((FEWEST, clip) for clip in (8_000, 2_000, 1_000, 600, 400, 250, 150, 80)))
"""Samples per cell and characters per sample: the first step that fits the budget is taken."""

LONGEST_PROMPT = 2000

TOGETHER = 5
"""Samples of one prompt taken before those of the next: variety shows at one prompt."""


class Packed(NamedTuple):
    """The samples panel, and a sentence on what was kept."""

    panel: Panel
    said: str


def pack(lines: Sequence[ModelLine], *, budget: int = BUDGET) -> Packed | None:
    """The panel with the samples of all runs; None if there are none."""
    runs = [(line, run) for line in lines for run in line.runs if run.samples]
    if not runs:
        return None
    order = _prompt_order(run for _, run in runs)
    longest = max((len(s.text) for _, run in runs for cell in run.samples for s in cell.samples), default=0)
    for keep, clip in LADDER:
        blobs, cells, prompts = _blobs(runs, order, keep=keep, clip=clip)
        if sum(map(len, blobs.values())) + sum(map(len, prompts)) <= budget:
            break
    kept, drawn = (
        sum(cell["kept"] for group in cells for cell in group),
        sum(cell["drawn"] for group in cells for cell in group),
    )
    said = f"{kept:,} of {drawn:,} samples are kept in this page, at most {keep} per model and decoding; the rest are counted."
    if longest > clip:
        said += f" Texts of more than {clip:,} characters are cut, and say so."
    return Packed(Panel(name="samples", data=_data(runs, prompts, cells), scripts=["samples.js"], blobs=blobs), said)


def _prompt_order(runs: Iterator[RunData]) -> dict[str, int]:
    """Every prompt by its first appearance over all runs, so that each cell keeps the same ones."""
    order: dict[str, int] = {}
    for run in runs:
        for cell in run.samples:
            for sample in cell.samples:
                order.setdefault(sample.prompt, len(order))
    return order


def chosen(cell: SampleCell, order: Mapping[str, int], keep: int) -> list[SampleText]:
    """``keep`` samples: five of the first prompt, five of the second ..., then five more of each while there is room."""
    by_prompt: dict[str, list[SampleText]] = {}
    for sample in cell.samples:
        by_prompt.setdefault(sample.prompt, []).append(sample)
    queues = [by_prompt[prompt] for prompt in sorted(by_prompt, key=lambda prompt: order[prompt])]
    rounds = range(0, max(map(len, queues), default=0), TOGETHER)
    return list(islice((sample for at in rounds for queue in queues for sample in queue[at : at + TOGETHER]), keep))


def _blobs(
    runs: Sequence[tuple[ModelLine, RunData]], order: Mapping[str, int], *, keep: int, clip: int
) -> tuple[dict[str, str], list[list[dict[str, Any]]], list[str]]:
    """One compressed text per run, what each of its cells holds, and the prompts that remain."""
    blobs, cells, index = {}, [], dict[str, int]()
    for number, (_, run) in enumerate(runs):
        kept = [chosen(cell, order, keep) for cell in run.samples]
        rows = [[_row(sample, index, clip) for sample in samples] for samples in kept]
        packed = gzip.compress(json.dumps(rows, separators=(",", ":")).encode("ascii"), compresslevel=6, mtime=0)
        blobs[f"samples-{number}"] = base64.b64encode(packed).decode("ascii")
        cells.append(
            [
                {"label": cell.label, "kept": len(samples), "drawn": cell.drawn, "distinct": cell.distinct}
                for cell, samples in zip(run.samples, kept, strict=True)
            ]
        )
    return blobs, cells, [prompt[: min(clip, LONGEST_PROMPT)] for prompt in index]


def _row(sample: SampleText, index: dict[str, int], clip: int) -> list[Any]:
    row: list[Any] = [index.setdefault(sample.prompt, len(index)), sample.text[:clip]]
    return row if len(sample.text) <= clip else [*row, len(sample.text)]


def _data(
    runs: Sequence[tuple[ModelLine, RunData]], prompts: Sequence[str], cells: Sequence[list[dict[str, Any]]]
) -> dict[str, Any]:
    found = {cell.label: cell.temperature for _, run in runs for cell in run.samples}
    labels = sorted(found, key=lambda label: (found[label] is None, found[label] or 0.0, label))

    def from_one(place: int) -> tuple[float, int]:
        return abs((found[labels[place]] or 99.0) - 1.0), place

    firsts = {line.name: i for i, (line, _) in reversed(list(enumerate(runs)))}
    chosen_runs = sorted(firsts.values())[:3]
    chosen_labels = {min(range(len(labels)), key=from_one)}
    for number in chosen_runs:  # c-Div and NLL are drawn at different temperatures where they are matched
        own = {labels.index(cell.label) for cell in runs[number][1].samples}
        if not own & chosen_labels:
            chosen_labels.add(min(own, key=from_one))
    return {
        "prompts": list(prompts),
        "runs": [
            {
                "label": line.name if len(line.runs) == 1 else f"{line.name}, seed {run.seed}",
                "blob": f"samples-{number}",
                "cells": cells[number],
            }
            for number, (line, run) in enumerate(runs)
        ],
        "labels": labels,
        "chosen_runs": chosen_runs,
        "chosen_labels": sorted(chosen_labels),
    }
