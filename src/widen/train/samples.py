"""The training samples of M models on one device, with what their sequences have in common cut out (:mod:`widen.models.prefix`).

Shapes: M models, S samples, T = 1 + L tokens, B sequences of a batch, K shared positions, R distinct prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from widen.models.prefix import Prefixes, SharedBatch

from .settings import Configuration

__all__ = ["Samples", "samples_of"]


class Samples(NamedTuple):
    """The training samples of M models on the device, and their shared prefixes."""

    tokens_MTS: Int[Tensor, "M T S"]
    roots_MKR: Int[Tensor, "M K R"]
    index_MS: Int[Tensor, "M S"]

    def to(self, device: str) -> Samples:
        """The same samples on a device."""
        return Samples(*(tensor.to(device) for tensor in self))

    def batch(self, rows: slice, which_MB: Int[Tensor, "m B"]) -> SharedBatch:
        """The chosen samples of the models `rows`."""
        tokens_MTS = self.tokens_MTS[rows]
        tokens = tokens_MTS.gather(2, which_MB[:, None].expand(-1, tokens_MTS.shape[1], -1))
        return SharedBatch(self.roots_MKR[rows], self.index_MS[rows].gather(1, which_MB), tokens)


def samples_of(configurations: Sequence[Configuration], *, share: bool) -> Samples:
    """Every model's samples, padded to the longest set; one cut of the prefixes for all."""
    sets = [c.data.train_tokens() for c in configurations]
    batch_size = configurations[0].train.batch_size
    shared = Prefixes.of(sets[0], batch_size=batch_size).shared if share else 1
    tables = [Prefixes.of(tokens, batch_size=batch_size, shared=shared) for tokens in sets]
    most_samples = max(map(len, sets))
    most_roots = (
        -(-max(len(table.roots) for table in tables) // 8) * 8
    )  # a multiple of 8: rows start at aligned addresses

    def stack(arrays: list[NDArray[np.int64]], size: int) -> Tensor:
        padded = [np.pad(a, [(0, size - len(a))] + [(0, 0)] * (a.ndim - 1), mode="edge") for a in arrays]
        return torch.from_numpy(np.stack([a.T for a in padded]))

    return Samples(
        stack(sets, most_samples).contiguous(),
        stack([table.roots for table in tables], most_roots).contiguous(),
        stack([table.index for table in tables], most_samples).contiguous(),
    )
