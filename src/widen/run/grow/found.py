"""The right answers among the samples of one round: how often each was drawn, and how likely that was.

One line of a file is one problem: {"id", "prompt", "drawn", "right", "cut", "answers": [{"key", "completion", "found", "q", "logq"}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from widen.disk.atomic import write_text
from widen.metrics.interval import count_interval, share_interval
from widen.metrics.passes import pass_scores
from widen.sample import Sample, read_samples

from ..folder import StageProgress, silent
from ..questions import Question
from ..scoring.score_files import Measured
from .verify import Verifier


@dataclass(frozen=True, kw_only=True)
class RightAnswer:
    """A right answer of one problem.

    Args:
      completion: its likeliest spelling among the samples.
      found: how often it was drawn.
      q: its probability under the decoding, summed over the drawn spellings; found / drawn if an engine reports none.
      logq: log-probability of ``completion`` under the model at temperature 1, where the engine reports it.
    """

    key: str
    completion: str
    found: int
    q: float
    logq: float | None = None


@dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """One problem: samples drawn, how many are right, how many max_tokens cut off, and the distinct right answers."""

    id: str
    prompt: str
    drawn: int
    right: int
    cut: int
    answers: tuple[RightAnswer, ...]


def judge_samples_once(
    samples: Path,
    questions: Sequence[Question],
    path: Path,
    *,
    num: int,
    verifier: Verifier,
    what: str,
    progress: StageProgress = silent,
) -> list[FoundAnswers]:
    """Judge the first ``num`` samples of every question and write ``path``; if it exists, it is only read.

    An answer that max_tokens cut off is wrong and is not judged.
    """
    if path.exists():
        lines = (json.loads(line) for line in path.read_bytes().splitlines())
        return [FoundAnswers(**{**one, "answers": tuple(RightAnswer(**a) for a in one["answers"])}) for one in lines]
    own: dict[str, list[Sample]] = {one.id: [] for one in questions}
    for sample in sorted(read_samples(samples), key=lambda sample: sample.index):
        if sample.prompt in own and sample.index < num:
            own[sample.prompt].append(sample)
    ended = [(one, sample) for one in questions for sample in own[one.id] if sample.finish == "stop"]
    verdicts = verifier.judge([(one, sample.text) for one, sample in ended], what=what, progress=progress)
    right: dict[str, dict[str, list[Sample]]] = {}
    for (one, sample), verdict in zip(ended, verdicts, strict=True):
        if verdict.right:
            right.setdefault(one.id, {}).setdefault(verdict.key, []).append(sample)
    found = []
    for one in questions:
        drawn, answers = own[one.id], right.get(one.id, {})
        found.append(
            FoundAnswers(
                id=one.id,
                prompt=one.example.prompt,
                drawn=len(drawn),
                right=sum(map(len, answers.values())),
                cut=sum(sample.finish != "stop" for sample in drawn),
                answers=tuple(_answer(key, same, len(drawn)) for key, same in answers.items()),
            )
        )
    write_text(path, "".join(json.dumps(asdict(one)) + "\n" for one in found))
    return found


def _answer(key: str, same: Sequence[Sample], drawn: int) -> RightAnswer:
    """Samples with one key as one answer."""
    spellings = {sample.ids if sample.ids is not None else sample.text: sample for sample in same}.values()
    known = [sample.sampler for sample in spellings if sample.sampler is not None]
    q = min(1.0, math.fsum(map(math.exp, known))) if len(known) == len(spellings) else len(same) / drawn
    best = max(spellings, key=lambda one: -math.inf if one.sampler is None else one.sampler)
    return RightAnswer(key=key, completion=best.text, found=len(same), q=q, logq=best.logq)


def scores(found: Sequence[FoundAnswers]) -> dict[str, Measured]:
    """Precision, pass@k, and coverage: the number of distinct right answers per problem; intervals are over problems."""
    least = min(one.drawn for one in found)
    ks = sorted({1, *(k for k in (10, 100) if k < least), least})
    passes = pass_scores([one.drawn for one in found], [one.right for one in found], ks)
    shares = {f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)}
    named = {"precision": (passes.precision, passes.precision_interval), **shares}
    distinct = [len(one.answers) for one in found]
    named["coverage"] = (sum(distinct) / len(distinct), count_interval(distinct, max(one.drawn for one in found)))
    return {name: Measured(value, low, high, len(found)) for name, (value, (low, high)) in named.items()}


def share_measured(bits: Sequence[bool]) -> Measured:
    """A share of problems with its interval."""
    low, high = share_interval([float(bit) for bit in bits])
    return Measured(sum(bits) / len(bits), low, high, len(bits))
