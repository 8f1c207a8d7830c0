"""Settings of each kind of score: exact, nearest neighbours, programs, a checker, slots, support size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from .value import NEWER


@dataclass(frozen=True, kw_only=True)
class ExactScore:
    """Exact precision and recall over the listed right answers, averaged over problems. Nothing is sampled.

    Args:
      lams: points of the PR curve to report besides its ends.
      num_samples: n of the expected recall, the share of right answers seen in n samples. The paper does not state its n; the number is
        near the point lambda = (number of right answers) / n of the curve.
    """

    kind: str = "exact"
    lams: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0)
    num_samples: int = 20_000

    def __post_init__(self) -> None:
        if any(not lam >= 0 for lam in self.lams):
            raise ValueError(f"lams={self.lams}: each must be at least 0")
        if self.num_samples < 1:
            raise ValueError(f"num_samples={self.num_samples}: must be at least 1")


@dataclass(frozen=True, kw_only=True)
class KnnScore:
    """k-NN precision and recall of texts against the examples' completions (paper, App., "... for the WritingPrompts Task").

    Args:
      embedder: model whose features are averaged over tokens, scaled to length 1 and reduced by joint PCA to 90 % of the variance.
      samples: texts of each set; None takes all.
      k: neighbours.
      mauve: also MAUVE in the same space.
    """

    kind: str = "knn"
    embedder: str = "gpt2-large"
    samples: int | None = 2000
    k: int = 4
    mauve: bool = False


@dataclass(frozen=True, kw_only=True)
class ProgramScore:
    """pass@k of programs that run in a sandbox. Precision is pass@1; recall is what the largest k adds to it.

    Args:
      ks: numbers of tries; every problem needs as many samples as the largest.
      fenced: the program is the first block between ``` marks, if there is one.
      wall_seconds, cpu_seconds, memory_mib: limits for one program with all its tests.
      distinct: also count the distinct right programs of a problem, as `scoring.same_program.program_form` tells them apart.
    """

    kind: str = "programs"
    ks: tuple[int, ...] = (1, 10, 100)
    fenced: bool = False
    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_mib: int = 512
    distinct: bool = field(default=False, metadata=NEWER)


@dataclass(frozen=True, kw_only=True)
class CheckerScore:
    """Precision, pass@k and coverage of answers that a user's function checks in a sandbox.

    Args:
      checker: ``FILE.py:FUNCTION``.
      digest: of the file, so that an edited checker scores again.
      ks: numbers of tries; every prompt needs as many samples as the largest.
      wall_seconds, cpu_seconds, memory_mib: limits for one answer.
    """

    checker: str
    digest: str
    kind: str = "checker"
    ks: tuple[int, ...] = (1, 10)
    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_mib: int = 512


@dataclass(frozen=True, kw_only=True)
class SlotScore:
    """Texts about a meaning (task ``e2e``): are they right, do they differ, and are they like the texts that people wrote?

    Args:
      embedder: model of the sentence features for k-NN scores and Vendi; "" leaves these scores out.
      references: texts that people wrote, at most this many per meaning.
      k: neighbours.
    """

    kind: str = "slots"
    embedder: str = "sentence-transformers/all-mpnet-base-v2"
    references: int = 8
    k: int = 4


@dataclass(frozen=True, kw_only=True)
class SupportScore:
    """How many tokens hold a share of the model's next-token distribution, along the examples' completions. Nothing is sampled.

    Args:
      masses: shares of the distribution.
      quantiles: over all positions of all examples: the lines of figure ``histo``.
    """

    kind: str = "support"
    masses: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    quantiles: tuple[float, ...] = (0.01, *(i / 20 for i in range(1, 20)), 0.99)
    max_length: int = 2048


Score = ExactScore | KnnScore | ProgramScore | CheckerScore | SlotScore | SupportScore
SCORES: dict[str, type[Any]] = {one.kind: one for one in get_args(Score)}


def goals_of(score: Score) -> list[str]:
    """The metrics for which the best settings are chosen on halves of the problems."""
    if isinstance(score, ProgramScore):
        return [f"pass@{max(score.ks)}", *(["coverage"] if score.distinct else [])]
    if isinstance(score, SlotScore):
        return ["distinct_right", *(["recall"] if score.embedder else [])]
    return ["recall"] if isinstance(score, ExactScore) else []


def may_mix(score: Score, goal: str) -> bool:
    """Whether a mixture of two decodings has at least the weighted mean of their goals. This does not hold for k-NN recall."""
    return goal != "recall" or isinstance(score, ExactScore)
