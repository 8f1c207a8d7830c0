"""Samples for the page: the same prompts from every run, compressed, within a budget. The page says how many are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from .lines import ModelLine
from .page import packed
from .parts import Panel, Section
from .run_data import RunData, SampleCell, SampleText

BUDGET = 7_500_000
"""Bytes of the page for samples."""

FEWEST = 50
"""Samples of a cell that are always kept, if it has them."""

LADDER = ((200, 100_000), (100, 20_000), *((FEWEST, clip) for clip in (8_000, 2_000, 1_000, 600, 400, 250, 150, 80)))
"""Samples per cell and characters per sample: the first step that fits the budget is taken."""

LONGEST_PROMPT = 2000

TOGETHER = 5
"""Samples of one prompt taken before those of the next: variety shows at one prompt."""


def samples(lines: Sequence[ModelLine], *, budget: int = BUDGET) -> list[Section]:
    """The section with the samples of all runs."""
    runs = [(line, run) for line in lines for run in line.runs if run.samples]
    if not runs:
        return [Section(title="Samples", text=["No run has samples: `widen sample RUN` draws some."])]
    cells = [cell for _, run in runs for cell in run.samples]
    # Prompts by first appearance over all runs, so that every cell keeps the same ones.
    order = {
        text: i for i, text in enumerate(dict.fromkeys(sample.prompt for cell in cells for sample in cell.samples))
    }
    longest = max((len(sample.text) for cell in cells for sample in cell.samples), default=0)
    for keep, clip in LADDER:
        kept = [[chosen(cell, order, keep) for cell in run.samples] for _, run in runs]
        index: dict[str, int] = {}
        blobs: dict[str, str] = {}
        used, most = 0, math.inf if (keep, clip) == LADDER[-1] else budget
        for n, of_run in enumerate(kept):
            blobs[f"samples-{n}"] = _blob(of_run, index, clip)
            used += len(blobs[f"samples-{n}"])
            if used > most:  # compressing the other runs would be in vain
                break
        prompts = [prompt[: min(clip, LONGEST_PROMPT)] for prompt in index]
        if used + sum(map(len, prompts)) <= most:
            break
    count, drawn = sum(len(some) for of_run in kept for some in of_run), sum(cell.drawn for cell in cells)
    said = f"{count:,} of {drawn:,} samples are kept in this page, at most {keep} per model and decoding; the rest are counted."
    if longest > clip:
        said += f" Texts of more than {clip:,} characters are cut, and say so."
    data = {"prompts": prompts, "runs": [_run(n, *runs[n], kept[n]) for n in range(len(runs))], **_opened(runs)}
    text = ["What the models write, side by side. Choose a prompt, models and decodings; or search.", said]
    panel = Panel(name="samples", data=data, scripts=["samples.js"], blobs=blobs)
    return [Section(title="Samples", text=text, parts=[panel])]


def chosen(cell: SampleCell, order: Mapping[str, int], keep: int) -> list[SampleText]:
    """``keep`` samples: five of the first prompt, five of the second ..., then five more of each while there is room."""
    by_prompt: dict[str, list[SampleText]] = {}
    for sample in cell.samples:
        by_prompt.setdefault(sample.prompt, []).append(sample)
    queues = [by_prompt[prompt] for prompt in sorted(by_prompt, key=lambda prompt: order[prompt])]
    rounds = range(0, max(map(len, queues), default=0), TOGETHER)
    return list(islice((sample for at in rounds for queue in queues for sample in queue[at : at + TOGETHER]), keep))


def _blob(cells: Iterable[Sequence[SampleText]], index: dict[str, int], clip: int) -> str:
    """The samples of one run as [prompt, text, note, whole length] rows, compressed. ``index`` numbers the prompts."""
    rows = [
        [[index.setdefault(s.prompt, len(index)), s.text[:clip], s.note, len(s.text)] for s in samples]
        for samples in cells
    ]
    return packed(json.dumps(rows, separators=(",", ":")))


def _run(number: int, line: ModelLine, run: RunData, kept: Sequence[Sequence[SampleText]]) -> dict[str, Any]:
    return {
        "label": line.name if len(line.runs) == 1 else f"{line.name}, seed {run.seed}",
        "blob": f"samples-{number}",
        "cells": [
            {"label": c.label, "kept": len(some), "drawn": c.drawn, "distinct": c.distinct, "cut": c.cut}
            for c, some in zip(run.samples, kept, strict=True)
        ],
    }


def _opened(runs: Sequence[tuple[ModelLine, RunData]]) -> dict[str, Any]:
    """The decodings, and what the panel opens on: up to three models, each at a decoding near t = 1."""
    found = {cell.label: cell.temperature for _, run in runs for cell in run.samples}
    labels = sorted(found, key=lambda label: (found[label] is None, found[label] or 0.0, label))

    def from_one(place: int) -> tuple[float, int]:
        return abs((found[labels[place]] or 99.0) - 1.0), place

    firsts = {line.name: i for i, (line, _) in reversed(list(enumerate(runs)))}
    chosen_runs = sorted(firsts.values())[:3]
    chosen_labels = {min(range(len(labels)), key=from_one)}
    for number in chosen_runs:  # c-Div and NLL are often drawn at different temperatures
        own = {labels.index(cell.label) for cell in runs[number][1].samples}
        if not own & chosen_labels:
            chosen_labels.add(min(own, key=from_one))
    return {"labels": labels, "chosen_runs": chosen_runs, "chosen_labels": sorted(chosen_labels)}
