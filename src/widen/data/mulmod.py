"""Integer multiplication (paper, Sec. 6): ``a1a2 x b1b2 = c1c2`` with c = a b mod 97, and its exact distribution.

One sequence is BOS and L = 8 target tokens, without EOS. The 13 tokens are the digits 0-9, 10 for ``x``, 11 for ``=`` and 12 for BOS.

The reference P is uniform over the pairs (a, b); with the integers 01..99 that is 9,801 sequences, the paper's 99 x 99.
The *training* distribution draws the leading digit of a from 0-4 with proportion b (`under_representation`) and from 5-9 with 1 - b.

Chosen here, not in the paper: the range 01..99, and that integers are uniform inside each half.

Shapes: S sequences of the support, T = 1 + L tokens with BOS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .listed import Problem

if TYPE_CHECKING:
    from .batch import Batch

TIMES, EQUALS, BOS, VOCAB = 10, 11, 12, 13
"""Token ids beside the digits 0-9, and the size of the vocabulary."""

_CHARACTERS = "0123456789x=^"


@dataclass(frozen=True, kw_only=True)
class MulMod:
    """The task as a value: its support, its reference distribution, its training sample and its rule.

    Args:
      modulus: c = a b mod `modulus`.
      low, high: the integers a and b run over low..high, both included, written with the digits of `high`.
      under_representation: the paper's b, the training proportion of leading digits 0-4; None trains on P itself.
      num_samples: size of the training sample, drawn once with replacement.
      seed: of the training sample.
      distinct: train on each sequence of the sample once, however often it was drawn.

    Examples:
      >>> task = MulMod()
      >>> task.support().shape, task.length
      ((9801, 9), 8)
      >>> task.text(task.support()[-1:])
      ['99x99=04']
      >>> task.is_correct(task.support()).all()
      np.True_
    """

    modulus: int = 97
    low: int = 1
    high: int = 99
    under_representation: float | None = 0.2
    num_samples: int = 25_000
    seed: int = 0
    distinct: bool = field(
        default=False, metadata={"newer": True}
    )  # False is left out of hashes: older runs keep their names

    def __post_init__(self) -> None:
        for name, least in (("modulus", 2), ("num_samples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {least}")
        if not 0 <= self.low <= self.high:
            raise ValueError(f"low={self.low}, high={self.high}: need 0 <= low <= high")
        b = self.under_representation
        if b is None:
            return
        if not 0 <= b <= 1:
            raise ValueError(f"under_representation={b}: a proportion, between 0 and 1, or None")
        if self._rare().all() or not self._rare().any():
            raise ValueError(
                f"under_representation={b}: all leading digits of {self.low}..{self.high} fall in one half; use None"
            )

    @property
    def task(self) -> str:
        """Its name in a config. Configs without a task mean this one."""
        return "mulmod"

    @property
    def vocab(self) -> int:
        """13 tokens."""
        return VOCAB

    def train_batch(self) -> Batch:
        """The training sample; every token but BOS is a target."""
        return _batch(self.train_tokens())

    def problems(self) -> list[Problem]:
        """One problem with an empty prompt, whose right answers are the whole support."""
        return [Problem("", _batch(self.support()))]

    @property
    def length(self) -> int:
        """L, the number of target tokens: 8 for the paper's task."""
        return 2 * self._digits + len(str(self.modulus - 1)) + 2

    def support(self) -> NDArray[np.int64]:
        """Every sequence of Supp(P), a-major: shape [S, 1 + L]."""
        integers = self._integers
        return self._encode(np.repeat(integers, len(integers)), np.tile(integers, len(integers)))

    def log_p(self) -> NDArray[np.float64]:
        """log P over `support()`: uniform."""
        size = len(self._integers) ** 2
        return np.full(size, -np.log(size))

    def log_p_train(self) -> NDArray[np.float64]:
        """The log-probabilities over `support()` that the training sample is drawn from."""
        rare, b = self._rare(), self.under_representation
        if b is None:
            return self.log_p()
        with np.errstate(divide="ignore"):  # b = 0 and b = 1 are legal: log 0 = -inf is the answer
            log_a = np.where(rare, np.log(b) - np.log(rare.sum()), np.log1p(-b) - np.log((~rare).sum()))
        return np.asarray(np.repeat(log_a, len(rare)) - np.log(len(rare)))

    def train_tokens(self) -> NDArray[np.int64]:
        """The training sample, shape [num_samples, 1 + L]; with `distinct`, its different rows."""
        rng = np.random.Generator(np.random.Philox(key=self.seed))
        integers, rare, count = self._integers, self._rare(), self.num_samples
        if self.under_representation is None:
            a = rng.choice(integers, count)
        else:
            in_rare = rng.random(count) < self.under_representation
            a = np.where(in_rare, rng.choice(integers[rare], count), rng.choice(integers[~rare], count))
        tokens = self._encode(a, rng.choice(integers, count))
        return np.unique(tokens, axis=0) if self.distinct else tokens

    def is_correct(self, tokens: ArrayLike) -> NDArray[np.bool_]:
        """Which rows [n, 1 + L] have the right format, operands in range and the right product."""
        return self.unique_index(tokens) >= 0

    def unique_index(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """The row of `support()` that each sequence [n, 1 + L] is, or -1 off the support."""
        rows = np.asarray(tokens)
        if rows.ndim != 2 or rows.shape[1] != 1 + self.length:
            raise ValueError(f"tokens has shape {rows.shape}: need [n, {1 + self.length}], BOS first")
        w, integers = self._digits, self._integers
        a, b = (_number(rows[:, start : start + w]) for start in (1, 2 + w))
        in_range = np.isin(a, integers) & np.isin(b, integers)
        a, b = np.where(in_range, a, self.low), np.where(in_range, b, self.low)
        right = in_range & (rows == self._encode(a, b)).all(axis=1)
        return np.where(right, (a - self.low) * len(integers) + (b - self.low), -1)

    def text(self, tokens: ArrayLike) -> list[str]:
        """Rows [n, 1 + L] as people write them, without BOS."""
        return ["".join(_CHARACTERS[token] for token in row[1:]) for row in np.asarray(tokens)]

    @property
    def _digits(self) -> int:
        """Digits of a and of b."""
        return len(str(self.high))

    @property
    def _integers(self) -> NDArray[np.int64]:
        return np.arange(self.low, self.high + 1)

    def _rare(self) -> NDArray[np.bool_]:
        """Which integers have a leading digit 0-4."""
        return np.asarray(self._integers // 10 ** (self._digits - 1) < 5)

    def _encode(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        bos, times, equals = (np.full((len(a), 1), token) for token in (BOS, TIMES, EQUALS))
        c = _spelled(a * b % self.modulus, len(str(self.modulus - 1)))
        return np.hstack([bos, _spelled(a, self._digits), times, _spelled(b, self._digits), equals, c])


def _batch(tokens: NDArray[np.int64]) -> Batch:
    import torch

    from .batch import Batch

    mask = np.ones(tokens.shape, dtype=bool)
    mask[:, 0] = False
    return Batch(torch.from_numpy(tokens), torch.from_numpy(mask))


def _spelled(number: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    return np.asarray(number[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10, dtype=np.int64)


def _number(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number that digit tokens spell, or -1 if one of them is not a digit."""
    value = digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1)
    return np.where((digits >= 0).all(axis=1) & (digits <= 9).all(axis=1), value, -1)
