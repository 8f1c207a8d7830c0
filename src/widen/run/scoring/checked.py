"""Scores by a checker of the user's own: precision, pass@k and coverage of a samples file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.disk.inside import inside
from widen.judge import Checked, Count, Sandbox, run_checker
from widen.metrics.interval import mean_interval
from widen.metrics.passes import PassScores, pass_scores
from widen.sample import Decoding, Sample, Samples, read_samples

from ..folder import RunFolder
from .programs import measured
from .score_files import Measured

RIGHT = 0.5
"""An answer with at least this score is right."""


class Checker(NamedTuple):
    """A function `check(prompt, answer)` of a Python file, and the files that it may read."""

    file: Path
    function: str
    files: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, spec: str, files: Sequence[Path] = ()) -> Checker:
        """Read ``FILE.py:FUNCTION``.

        >>> Checker.parse("gsm8k.py:check").function
        'check'
        """
        file, _, function = spec.rpartition(":")
        if not file or not function.isidentifier():
            raise ValueError(f"--checker {spec}: legal is FILE.py:FUNCTION, such as gsm8k_checker.py:check")
        return cls(Path(file), function, tuple(files))


class CheckedSamples(NamedTuple):
    """The answers of one samples file, checked.

    ``coverage`` is the number of distinct right answers per prompt, by the checker's ``key``.
    """

    path: Path
    decoding: Decoding
    passes: PassScores
    counts: list[Count]
    statuses: dict[str, int]
    coverage: Measured
    failures: list[str]

    def measured(self) -> dict[str, Measured]:
        """Precision, recall and pass@k as for programs, and coverage."""
        return {**measured(self.passes), "coverage": self.coverage}

    def detail(self) -> dict[str, dict[str, Any]]:
        """Answers checked and right per prompt, and how many checks ended in which way."""
        return {"precision": {"counts": {c.problem: [c.n, c.c] for c in self.counts}, "statuses": self.statuses}}


def check_samples(
    path: Path,
    checker: Checker,
    ks: Sequence[int],
    *,
    sandbox: Sandbox,
    run: RunFolder | None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckedSamples:
    """Check every answer of a samples file; an answer that cannot be checked counts as wrong.

    Args:
      path: what `widen sample` wrote.
      checker: which function to call.
      ks: of pass@k; every prompt needs as many samples as the largest.
      sandbox: open.
      run: the run of the samples. Results are kept there, or beside the file; what was checked is not checked again.
      progress: called with (answers checked, all answers).
    """
    samples = read_samples(path)
    if not len(samples):
        raise ValueError(f"{path}: holds no sample yet")
    kept = run.path / "verdicts" / f"{checker.file.stem}.jsonl" if run else path.with_name(f"{path.name}.checked.jsonl")
    inside(run.path if run else path.parent, kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    pairs = [(samples.prompts[sample.prompt].text, sample.text) for sample in samples]
    found = run_checker(
        checker.file,
        checker.function,
        pairs,
        sandbox=sandbox,
        files=checker.files,
        verdicts_path=kept,
        progress=progress,
    )
    return summary(path, samples, found, ks)


def summary(path: Path, samples: Samples, found: Sequence[Checked], ks: Sequence[int]) -> CheckedSamples:
    """The scores of a samples file from one result per sample."""
    answers: dict[str, list[tuple[Sample, Checked]]] = {}
    for sample, one in zip(samples, found, strict=True):
        answers.setdefault(sample.prompt, []).append((sample, one))
    counts = [Count(prompt, len(own), sum(_right(one) for _, one in own)) for prompt, own in answers.items()]
    distinct = [len({_key(sample, one) for sample, one in own if _right(one)}) for own in answers.values()]
    interval = mean_interval(distinct)
    return CheckedSamples(
        path=path,
        decoding=samples.settings.decoding,
        passes=pass_scores([c.n for c in counts], [c.c for c in counts], ks),
        counts=counts,
        statuses=dict(Counter(_word(one) for one in found).most_common()),
        coverage=Measured(sum(distinct) / len(distinct), interval.low, interval.high, len(distinct)),
        failures=[f"{one.status}: {one.detail}" for one in found if one.status != "scored"],
    )


def _right(one: Checked) -> bool:
    return one.score is not None and one.score >= RIGHT


def _key(sample: Sample, one: Checked) -> str:
    return sample.text.strip() if one.key is None else one.key


def _word(one: Checked) -> str:
    return one.status if one.score is None else "right" if _right(one) else "wrong"
