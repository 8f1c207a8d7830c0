"""Which samples make up each batch: a function of (seed, step) alone, so that a resumed run, a run on another device and a run side
by side with others see the same data without storing any random state.

Epochs follow each other without a gap: a batch may hold the end of one permutation and the beginning of the next. So every batch is
full, and every sample is seen equally often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of `num_samples` samples in batches of `batch_size`.

    Examples:
      >>> order = Order(num_samples=4, batch_size=3, seed=0)
      >>> sorted(np.concatenate([order.indices(step) for step in range(4)]).tolist())
      [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    """

    num_samples: int
    batch_size: int
    seed: int

    def indices(self, step: int, count: int = 1) -> NDArray[np.int64]:
        """The samples of `count` batches one after the other, from batch number `step` (from 0) on."""
        at, end = step * self.batch_size, (step + count) * self.batch_size
        parts = []
        while at < end:
            epoch, offset = divmod(at, self.num_samples)
            part = _permutation(self.num_samples, self.seed, epoch)[offset : offset + end - at]
            parts.append(part)
            at += len(part)
        return np.concatenate(parts)


@lru_cache(maxsize=256)
def _permutation(num_samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    # Philox is counter-based: (seed, epoch) is its key, and no stream of one epoch depends on another.
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).permutation(num_samples)
