"""Scores by a checker of the user's own: precision, pass@k and coverage, of a samples file or of an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.disk.digest import file_digest
from widen.disk.inside import inside
from widen.judge import Checked, Count, Sandbox, run_checker
from widen.metrics.interval import count_interval
from widen.metrics.passes import PassScores, pass_scores
from widen.sample import Decoding, Sample, read_samples

from ..experiment import Experiment
from ..folder import RunFolder, StageProgress, silent
from ..questions import Question
from ..record import Record
from ..sampling import samples_of
from ..score_settings import CheckerScore
from .marks import write_marks
from .programs import Judges, measured
from .score_files import Measured, Sampled

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

    ``coverage`` is the mean number of distinct right answers, by the checker's ``key``; ``distinct`` has that number for each prompt.
    ``cut`` counts answers that max-tokens cut.
    """

    path: Path
    decoding: Decoding
    passes: PassScores
    counts: list[Count]
    statuses: dict[str, int]
    coverage: Measured
    distinct: list[int]
    failures: list[str]
    cut: int

    def measured(self) -> dict[str, Measured]:
        """Precision, recall and pass@k as for programs, and coverage."""
        return {**measured(self.passes), "coverage": self.coverage}

    def detail(self) -> dict[str, dict[str, Any]]:
        """Answers checked and right per prompt, distinct right answers, how checks ended, and how many answers were cut."""
        counts = {c.problem: [c.n, c.c] for c in self.counts}
        return {
            "precision": {"counts": counts, "statuses": self.statuses, "cut": self.cut},
            "coverage": {"by_problem": self.distinct},
        }


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
    prompts = {name: prompt.text for name, prompt in samples.prompts.items()}
    return _check(samples.samples, prompts, checker, ks, path, samples.settings.decoding, kept, sandbox, progress)


def score_checked(
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question],
    *,
    judges: Judges,
    progress: StageProgress = silent,
) -> list[Record]:
    """Records at every decoding of one experiment. Results of checks are kept in ``root/verdicts``."""
    score = experiment.score
    assert isinstance(score, CheckerScore)
    checker = Checker.parse(score.checker)
    if file_digest(checker.file) != score.digest:
        raise ValueError(f"{checker.file} has changed since this score was defined: restore it, or take another --out")
    kept = judges.root / "verdicts" / f"{checker.file.stem}.jsonl"
    kept.parent.mkdir(parents=True, exist_ok=True)
    prompts, records = {one.id: one.example.prompt for one in questions}, []
    for number, setting in enumerate(experiment.settings):
        samples = samples_of(folder, setting, experiment, questions)
        path, sandbox = folder.samples(setting.name), judges.sandbox(score)
        found = _check(samples, prompts, checker, score.ks, path, setting.decoding, kept, sandbox, None)
        records += Sampled(experiment).keep(folder, setting, found.measured(), found.detail())
        progress(f"check {experiment.name}, seed {experiment.seed}", number + 1, len(experiment.settings))
    return records


def _check(
    samples: Sequence[Sample],
    prompts: Mapping[str, str],
    checker: Checker,
    ks: Sequence[int],
    path: Path,
    decoding: Decoding,
    kept: Path,
    sandbox: Sandbox,
    progress: Callable[[int, int], None] | None,
) -> CheckedSamples:
    found = run_checker(
        checker.file,
        checker.function,
        [(prompts[one.prompt], one.text) for one in samples],
        sandbox=sandbox,
        files=checker.files,
        verdicts_path=kept,
        progress=progress,
    )
    return summary(samples, found, ks, path, decoding)


def summary(
    samples: Sequence[Sample], found: Sequence[Checked], ks: Sequence[int], path: Path, decoding: Decoding
) -> CheckedSamples:
    """The scores of a samples file from one result per sample; right and wrong samples are marked beside the file."""
    write_marks(path, ((sample, _right(one)) for sample, one in zip(samples, found, strict=True)))
    of_prompt: dict[str, list[tuple[Sample, Checked]]] = {}
    for sample, one in zip(samples, found, strict=True):
        of_prompt.setdefault(sample.prompt, []).append((sample, one))
    counts = [Count(prompt, len(own), sum(_right(one) for _, one in own)) for prompt, own in of_prompt.items()]
    distinct = [len({_key(sample, one) for sample, one in own if _right(one)}) for own in of_prompt.values()]
    interval = count_interval(distinct, max(c.n for c in counts))
    return CheckedSamples(
        path=path,
        decoding=decoding,
        passes=pass_scores([c.n for c in counts], [c.c for c in counts], ks),
        counts=counts,
        statuses=dict(Counter(_word(one) for one in found).most_common()),
        distinct=distinct,
        coverage=Measured(sum(distinct) / len(distinct), interval.low, interval.high, len(distinct)),
        failures=[f"{one.status}: {one.detail}" for one in found if one.status != "scored"],
        cut=sum(one.finish == "length" for one in samples),
    )


def _right(one: Checked) -> bool:
    return one.score is not None and one.score >= RIGHT


def _key(sample: Sample, one: Checked) -> str:
    return sample.text.strip() if one.key is None else one.key


def _word(one: Checked) -> str:
    return one.status if one.score is None else "right" if _right(one) else "wrong"
