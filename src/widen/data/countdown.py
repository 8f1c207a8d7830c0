"""Countdown: combine all of the given numbers with + - * / into the target; every right answer is listed.

    3 4 8>20:8-3=5,5*4=20        prompt: the numbers in rising order and the target; answer: one step per operation

A step replaces two of the numbers left by its result. Every number is used once, results are positive whole numbers, and division has no
remainder. Answers have one canonical form, so that each calculation counts once: the larger operand comes first, and the steps that make
it come before those that make the smaller one.

Problems are split by their numbers: a model is scored on numbers that it was not trained on.

Tokens are single characters; `^` begins a sequence and `$` ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from typing import TYPE_CHECKING, Any

import numpy as np

from .listed import Problem

if TYPE_CHECKING:
    from .batch import Batch

CHARACTERS = "0123456789+-*/=, >:^$"
"""The vocabulary: a token is the index of its character."""
Problems = list[tuple[str, tuple[str, ...]]]
"""Pairs of a prompt and all its answers."""


@dataclass(frozen=True, kw_only=True)
class Countdown:
    """The task as a value.

    Args:
      task: its name in a config.
      numbers: how many numbers a problem gives.
      high: largest number.
      max_target: largest target.
      fewest: least number of right answers of a problem.
      num_test: problems kept for scoring, each with numbers of its own, which no training problem has.
      num_samples: training sequences, drawn once with replacement: a training problem, then one of its answers.
      skew: the i-th answer of a problem, in alphabetical order, is drawn with weight i^-skew; 0 draws all alike.
      split_seed: decides which problems are for testing.
      seed: of the training sample.

    Examples:
      >>> task = Countdown(numbers=3, high=4, num_test=2, num_samples=4)
      >>> problem = task.problems()[0]
      >>> problem.prompt, task.text(problem.answers.tokens_BL[:1])
      ('1 2 4>5:', ['1 2 4>5:2-1=1,4+1=5$'])
    """

    task: str = "countdown"
    numbers: int = 4
    high: int = 9
    max_target: int = 99
    fewest: int = 2
    num_test: int = 200
    num_samples: int = 25_000
    skew: float = 0.0
    split_seed: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task != "countdown":
            raise ValueError(f"task={self.task!r}: must be 'countdown'")
        least = dict.fromkeys(("high", "max_target", "fewest", "num_test", "num_samples"), 1)
        for name, bound in {"numbers": 2, "skew": 0, "split_seed": 0, "seed": 0, **least}.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {bound}")

    @property
    def vocab(self) -> int:
        """21 characters."""
        return len(CHARACTERS)

    def train_batch(self) -> Batch:
        """The training sequences."""
        _, train = self._split()
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        drawn, uniform = rng.integers(len(train), size=self.num_samples), rng.random(self.num_samples)
        pairs = []
        for (prompt, answers), u in zip((train[i] for i in drawn), uniform, strict=True):
            weight = np.arange(1, len(answers) + 1) ** -float(self.skew)
            pairs.append((prompt, answers[int(np.searchsorted(np.cumsum(weight / weight.sum()), u))]))
        return _batch(pairs)

    def problems(self) -> list[Problem]:
        """The test problems, each with all its answers."""
        test, _ = self._split()
        return [Problem(prompt, _batch([(prompt, answer) for answer in answers])) for prompt, answers in test]

    def train_records(self) -> list[dict[str, str]]:
        """The training sequences as records of the task ``jsonl``, for a model with a tokenizer of its own."""
        rows = (text.removesuffix("$").partition(":") for text in self.text(self.train_batch().tokens_BL))
        return [{"prompt": f"{problem}:", "completion": answer} for problem, _, answer in rows]

    def test_records(self) -> list[dict[str, Any]]:
        """The test problems as records of the task ``answers``, in an order that `split_seed` decides."""
        return self._answers(self._split()[0])

    def train_problems(self) -> list[dict[str, Any]]:
        """The training problems in the same form."""
        return self._answers(self._split()[1])

    def _answers(self, problems: Problems) -> list[dict[str, Any]]:
        order = np.random.Generator(np.random.Philox(key=self.split_seed + 1)).permutation(len(problems))
        return [
            {"prompt": problems[i][0], "answers": [answer.removesuffix("$") for answer in problems[i][1]]}
            for i in order
        ]

    def text(self, tokens: object) -> list[str]:
        """Rows of tokens as characters, without `^` and padding."""
        rows = np.asarray(tokens)
        return ["".join(CHARACTERS[token] for token in row[1:]).partition("$")[0] + "$" for row in rows]

    def _split(self) -> tuple[Problems, Problems]:
        """Test and training problems."""
        groups: dict[str, Problems] = {}
        for prompt, answers in _every_problem(self.numbers, self.high, self.max_target, self.fewest):
            groups.setdefault(prompt.partition(">")[0], []).append((prompt, answers))
        if len(groups) <= self.num_test:
            raise ValueError(
                f"num_test={self.num_test}: there are only {len(groups)} sets of numbers; leave some for training"
            )
        rng = np.random.Generator(np.random.Philox(key=self.split_seed))
        mixed = [list(groups.values())[i] for i in rng.permutation(len(groups))]
        test = [problems[rng.integers(len(problems))] for problems in mixed[: self.num_test]]
        return sorted(test), [problem for problems in mixed[self.num_test :] for problem in problems]


@lru_cache(maxsize=8)
def _every_problem(numbers: int, high: int, max_target: int, fewest: int) -> Problems:
    found = []
    for chosen in combinations_with_replacement(range(1, high + 1), numbers):
        for target, answers in sorted(answers_of(chosen).items()):
            if target <= max_target and len(answers) >= fewest:
                found.append((f"{' '.join(map(str, chosen))}>{target}:", tuple(f"{a}$" for a in sorted(answers))))
    return found


def answers_of(numbers: tuple[int, ...]) -> dict[int, set[str]]:
    """Every target that the numbers reach, with all canonical chains of steps that reach it.

    >>> sorted(answers_of((2, 3))[6]), sorted(answers_of((1, 1))[1])
    (['3*2=6'], ['1*1=1', '1/1=1'])
    """
    found: dict[int, set[str]] = {}
    for value, chain in _trees(tuple(sorted(numbers))):
        found.setdefault(value, set()).add(chain)
    return found


@lru_cache(maxsize=200_000)
def _trees(numbers: tuple[int, ...]) -> frozenset[tuple[int, str]]:
    """(result, chain) of every way to combine all of the numbers, given in rising order."""
    if len(numbers) == 1:
        return frozenset({(numbers[0], "")})
    found = set()
    indices = range(len(numbers))
    for size in range(1, len(numbers) // 2 + 1):
        for part in combinations(indices, size):
            left = _trees(tuple(numbers[i] for i in part))
            right = _trees(tuple(numbers[i] for i in indices if i not in part))
            for pair in product(left, right):
                # The larger result first; ties in alphabetical order of the chains.
                (a, first), (b, second) = sorted(pair, key=lambda tree: (-tree[0], tree[1]))
                results = {"+": a + b, "*": a * b, "-": a - b, "/": a // b if a % b == 0 else 0}
                for sign, value in results.items():
                    if value > 0:
                        steps = filter(None, (first, second, f"{a}{sign}{b}={value}"))
                        found.add((value, ",".join(steps)))
    return frozenset(found)


def _batch(pairs: list[tuple[str, str]]) -> Batch:
    """Prompts, each with one answer."""
    from .batch import pad

    tokens = [[CHARACTERS.index(c) for c in f"^{prompt}{answer}"] for prompt, answer in pairs]
    return pad(tokens, prompt_lengths=[1 + len(prompt) for prompt, _ in pairs], pad_id=CHARACTERS.index("$"))
