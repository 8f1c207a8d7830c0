"""Warnings of a page: duplicates, ceilings, a tiny delta, single runs, mixed versions, cut samples, and what training logged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from widen.losses import LambdaPR, Product
from widen.run.against_nll import last_loss
from widen.theory.optima import lambda_pr_threshold

from .lines import ModelLine, setting
from .load import number
from .run_data import RunData

TINY_DELTA = 0.01
"""Warn if delta of lambda-PR is below this: more probable tokens are not trained any further."""
AT_CEILING = 0.98
"""Warn if recall is above this share of its ceiling: it then measures the number of samples, not the model."""
FEW_DIFFERENT = 0.1
MANY_CUT = 0.2
"""Warn if max-tokens ended a larger share of the samples: a cut answer rarely counts as right."""
STARVED = 0.99
"""Warn if a larger share of tokens has weight 0: almost nothing is left to train."""


def without_duplicates(runs: Sequence[RunData]) -> tuple[list[RunData], list[str]]:
    """Each trained model once: a second folder of the same setting and seed would count one seed twice."""
    kept: dict[tuple[str, ...], RunData] = {}
    said = []
    for run in runs:
        data_seed = (run.experiment.get("model", {}).get("data") or {}).get("seed")
        key: tuple[str, ...] = (str(run.experiment.get("name")), setting(run.experiment), f"{run.seed} {data_seed}")
        if run.seed is None:
            key = (*key, run.name)
        if key in kept:
            said.append(f"{run.name} is the same model and seed as {kept[key].name}: counted once.")
        kept.setdefault(key, run)
    return list(kept.values()), said


def warnings(lines: Sequence[ModelLine], duplicates: Sequence[str] = ()) -> dict[str, list[str]]:
    """The warnings by the title of the section that they concern, none twice. ``duplicates`` are those of `without_duplicates`."""
    found = {
        "The trade-off": _scores(lines),
        "Training": (said for line in lines for said in _training(line)),
        "Samples": (said for line in lines for said in _samples(line)),
        "What was run": (*duplicates, *_runs(lines)),
    }
    return {title: list(dict.fromkeys(said)) for title, said in found.items()}


def _scores(lines: Sequence[ModelLine]) -> Iterator[str]:
    if single := [line.name for line in lines if len(line.runs) == 1]:
        yield f"Single runs, without an interval over seeds: {_some(single, 8, ', ')}."
    counts = sorted({p.n for line in lines for p in line.points if p.ceiling is not None and p.n is not None})
    if len(counts) > 1:
        yield f"Recall is counted over different numbers of samples ({', '.join(map(str, counts))}): such recalls do not compare."
    for line in lines:
        if near := [p for p in line.points if p.ceiling and p.recall.value > AT_CEILING * p.ceiling]:
            at = _some([p.decoding.spec for p in near], 3, "; ")
            yield (
                f"{line.name}: recall is at its ceiling of {near[0].ceiling:.3f} at {at}. "
                "A larger number of samples per score would tell such points apart."
            )


def _some(names: Sequence[str], most: int, between: str) -> str:
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _training(line: ModelLine) -> Iterator[str]:
    weight = last_loss(line.loss)
    # delta falls with the length of a sequence: 8 target tokens in the integer task, 512 assumed elsewhere.
    length = 8 if "modulus" in (line.experiment.get("model", {}).get("data") or {}) else 512
    for factor in weight.factors if isinstance(weight, Product) else (weight,):
        if isinstance(factor, LambdaPR):
            delta = lambda_pr_threshold(factor.lam, length, factor.gamma)
            if delta < TINY_DELTA:
                yield f"{line.name}: delta is {delta:.2g} for {length} target tokens; more probable tokens are not trained."
    for run in line.runs:
        for row in run.log:
            said = row.get("warning") or row.get("warnings") or ()
            texts = [said] if isinstance(said, str) else said
            yield from (f"{line.name}: {text}" for text in texts if isinstance(text, str))
            loss = number(row.get("loss"))
            if loss is not None and not math.isfinite(loss):
                yield f"{line.name}, seed {run.seed}: the loss was {loss} at step {row.get('step')}."
                break
        zero = number(run.log[-1].get("weight_zero_share")) if run.log else None
        if zero is not None and zero > STARVED:
            yield f"{line.name}, seed {run.seed}: at the end {zero:.2%} of the target tokens had weight 0; training was starved."


def _samples(line: ModelLine) -> Iterator[str]:
    cells = [cell for run in line.runs for cell in run.samples if cell.drawn >= 20]
    if not cells:
        return
    worst = min(cells, key=lambda cell: cell.distinct / cell.drawn)
    if worst.distinct < FEW_DIFFERENT * worst.drawn:
        yield f"{line.name}, {worst.label}: only {worst.distinct} of {worst.drawn} samples are different; the rest are duplicates."
    cut = max(cells, key=lambda cell: cell.cut / cell.drawn)
    if cut.cut > MANY_CUT * cut.drawn:
        yield f"{line.name}, {cut.label}: max-tokens cut {cut.cut} of {cut.drawn} samples; sample again with a larger --max-tokens."


def _runs(lines: Sequence[ModelLine]) -> Iterator[str]:
    seen: dict[str, set[str]] = {}
    for run in (run for line in lines for run in line.runs):
        for package, version in (run.env.get("packages") or {}).items():
            seen.setdefault(str(package), set()).add(str(version))
    mixed = [f"{package} {' and '.join(sorted(versions))}" for package, versions in seen.items() if len(versions) > 1]
    if mixed:
        yield f"The runs were made with different versions: {'; '.join(mixed)}."
    yield from (f"{line.name}: {note}." for line in lines for run in line.runs for note in run.notes)
