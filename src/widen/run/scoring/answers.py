"""Answers that are right or wrong, whoever judges them: their marks, and precision, pass@k and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.metrics.interval import count_interval
from widen.metrics.passes import PassScores, pass_scores
from widen.sample import Sample

from .marks import write_marks
from .score_files import Measured


class JudgedAnswer(NamedTuple):
    """One judged answer.

    Args:
      key: right answers to one problem with the same key count as one.
      status: how judging ended, in a word.
      failure: why the answer could not be checked.
    """

    right: bool
    key: str
    status: str = ""
    failure: str = ""


class AnswerScores(NamedTuple):
    """The scores of one samples file.

    Args:
      counts: answers and right answers of each problem.
      statuses: how many answers ended in which way.
      coverage: the mean number of distinct right answers of a problem; None if they are not counted.
      distinct: that number for each problem.
      failures: why answers could not be checked; they count as wrong.
      cut: answers that max-tokens ended.
    """

    passes: PassScores
    counts: dict[str, tuple[int, int]]
    statuses: dict[str, int]
    coverage: Measured | None
    distinct: list[int]
    failures: list[str]
    cut: int

    @property
    def measured(self) -> dict[str, Measured]:
        """Every score with its interval."""
        return pass_measures(self.passes) | ({"coverage": self.coverage} if self.coverage else {})

    @property
    def detail(self) -> dict[str, dict[str, Any]]:
        """What is stored with precision and coverage."""
        found: dict[str, dict[str, Any]] = {
            "precision": {"counts": self.counts, "statuses": self.statuses, "cut": self.cut}
        }
        return found | ({"coverage": {"by_problem": self.distinct}} if self.coverage else {})


def coverage_of(distinct: Mapping[str, int]) -> tuple[list[int], Measured]:
    """The distinct right answers of each problem, in the order of `against_nll.values_by_problem`, and their mean."""
    values = [distinct[problem] for problem in sorted(distinct)]
    return values, Measured(sum(values) / len(values), *count_interval(values), len(values))


def score_answers(
    path: Path,
    samples: Sequence[Sample],
    judged: Sequence[JudgedAnswer],
    ks: Sequence[int],
    *,
    coverage: bool = True,
    problems: Sequence[str] | None = None,
) -> AnswerScores:
    """The scores of the samples at ``path``; right and wrong ones are marked beside the file.

    Args:
      coverage: count the distinct right answers of each problem.
      problems: of each sample; by default the id of its prompt.
    """
    write_marks(path, ((sample, one.right) for sample, one in zip(samples, judged, strict=True)))
    of_problem: dict[str, list[JudgedAnswer]] = {}
    for problem, one in zip(problems or [sample.prompt for sample in samples], judged, strict=True):
        of_problem.setdefault(problem, []).append(one)
    counts = {problem: (len(own), sum(one.right for one in own)) for problem, own in of_problem.items()}
    n, c = zip(*counts.values(), strict=True)
    distinct = {problem: len({one.key for one in own if one.right}) for problem, own in of_problem.items()}
    by_problem, mean = coverage_of(distinct) if coverage else ([], None)
    return AnswerScores(
        passes=pass_scores(n, c, ks),
        counts=counts,
        statuses=dict(Counter(one.status for one in judged).most_common()),
        coverage=mean,
        distinct=by_problem,
        failures=[one.failure for one in judged if one.failure],
        cut=sum(sample.finish == "length" for sample in samples),
    )


def pass_measures(passes: PassScores) -> dict[str, Measured]:
    """pass@k, and the paper's precision and recall; pass@1 alone gives no recall."""
    named = {"precision": (passes.precision, passes.precision_interval)}
    if len(passes.ks) > 1:
        named["recall"] = (passes.recall, passes.recall_interval)
        named["recall_normalised"] = (passes.recall_normalised, passes.recall_normalised_interval)
    named |= {f"pass@{k}": (v, i) for k, v, i in zip(passes.ks, passes.values, passes.intervals, strict=True)}
    return {name: Measured(value, found.low, found.high, passes.problems) for name, (value, found) in named.items()}
