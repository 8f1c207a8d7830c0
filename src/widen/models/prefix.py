"""Sequences that begin alike need computing only once: a batch as a table of shared prefixes and what each sequence adds to it.

A causal model's state after a prefix depends on that prefix alone. In the integer task the first four inputs (BOS, two digits, the sign)
take 99 values in all, so 512 sequences of 8 inputs are 99 x 4 + 512 x 4 rows in place of 4,096, forward and backward, with the same result.

Shapes: M models, B sequences, T tokens a sequence, L = T - 1 inputs, K leading inputs that are shared, R distinct prefixes ("roots") of
length K, J = L - K own positions; N = K R + J B rows: the roots position-major, then the sequences position-major.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Prefixes", "SharedBatch"]


@dataclass(frozen=True)
class Prefixes:
    """The distinct prefixes of a set of sequences, and which one each sequence has.

    Examples:
      >>> prefixes = Prefixes.of(np.array([[9, 1, 5, 0], [9, 1, 6, 0], [9, 2, 5, 0], [9, 1, 7, 0]]), batch_size=4)
      >>> prefixes.roots.tolist(), prefixes.index.tolist()
      ([[9, 1], [9, 2]], [0, 0, 1, 0])
    """

    roots: NDArray[np.int64]  # [R, K]
    index: NDArray[np.int64]  # [S]: the root of each sequence

    @classmethod
    def of(cls, tokens_ST: NDArray[np.int64], *, batch_size: int, shared: int | None = None) -> Prefixes:
        """The cut K that makes batches of `batch_size` cheapest, or the one that is given; 1 <= K < L."""
        length = tokens_ST.shape[1] - 1
        if length < 2 or not 1 <= (shared or 1) < length:
            raise ValueError(
                f"shared={shared}, {length} inputs a sequence: need 1 <= shared < inputs, and at least 2 inputs"
            )
        counts = {k: len(np.unique(tokens_ST[:, :k], axis=0)) for k in ([shared] if shared else range(1, length))}
        best = min(counts, key=lambda k: k * counts[k] + (length - k) * batch_size)
        roots, index = np.unique(tokens_ST[:, :best], axis=0, return_inverse=True)
        return cls(roots, index.reshape(-1))

    @property
    def shared(self) -> int:
        """K, how many leading inputs are shared."""
        return int(self.roots.shape[1])


class SharedBatch(NamedTuple):
    """One batch of M models: the roots, each sequence's root, and the sequences."""

    roots_MKR: Int[Tensor, "M K R"]
    index_MB: Int[Tensor, "M B"]
    tokens_MTB: Int[Tensor, "M T B"]

    @classmethod
    def of(cls, tokens_MTB: Int[Tensor, "M T B"]) -> SharedBatch:
        """A batch whose sequences share their first token (BOS), and nothing more that is known."""
        if not bool((tokens_MTB[:, 0] == tokens_MTB[:, :1, :1].squeeze(1)).all()):
            raise ValueError("tokens_MTB: the sequences of a model must begin with the same token (BOS)")
        first = tokens_MTB[:, :1, :1].contiguous()
        return cls(first, torch.zeros_like(tokens_MTB[:, 0]), tokens_MTB)

    @property
    def shared(self) -> int:
        """K."""
        return self.roots_MKR.shape[1]

    def parts(self, count: int) -> list[SharedBatch]:
        """The batch in `count` parts of its sequences, for as many workers.

        The sequences of a single model are first put in the order of their roots: then each part needs its own few roots only. The
        order of sequences in a batch means nothing.
        """
        if count == 1:
            return [self]
        M, B = self.index_MB.shape
        order_MB = self.index_MB.argsort(dim=1) if M == 1 else torch.arange(B, device=self.index_MB.device).expand(M, B)
        index_MB = self.index_MB.gather(1, order_MB)
        tokens_MTB = self.tokens_MTB.gather(2, order_MB[:, None].expand(self.tokens_MTB.shape))
        found = []
        for i in range(count):
            cut = slice(i * B // count, (i + 1) * B // count)
            first, width = self._window(index_MB[0, cut]) if M == 1 else (0, self.roots_MKR.shape[2])
            roots = self.roots_MKR[:, :, first : first + width]
            found.append(SharedBatch(roots, index_MB[:, cut] - first, tokens_MTB[:, :, cut]))
        return found

    def _window(self, sorted_B: Int[Tensor, " B"]) -> tuple[int, int]:
        """Where the roots of these sequences begin, and how many to take: a multiple of 16, so that few sizes occur."""
        R, first = self.roots_MKR.shape[2], int(sorted_B[0])
        width = min(R, -(-(int(sorted_B[-1]) + 1 - first) // 16) * 16)
        return min(first, R - width), width

    def inputs_MN(self) -> Int[Tensor, "M N"]:
        """The input token of every row."""
        return torch.cat([self.roots_MKR.flatten(1), self.tokens_MTB[:, self.shared : -1].flatten(1)], dim=1)

    def rows_MLB(self) -> Int[Tensor, "M L B"]:
        """The row that predicts token 1 + l of sequence b."""
        M, K, R = self.roots_MKR.shape
        own = self.tokens_MTB[:, K:-1]
        device = own.device
        roots_MKB = torch.arange(K, device=device)[:, None] * R + self.index_MB[:, None]
        own_JB = K * R + torch.arange(own[0].numel(), device=device).view(own.shape[1:])
        return torch.cat([roots_MKB, own_JB.expand(M, -1, -1)], dim=1)

    def hot_MBR(self, dtype: torch.dtype) -> Float[Tensor, "M B R"]:
        """1 where a sequence has a root: sums over sequences become products, and so the same on every run."""
        return (self.index_MB[..., None] == torch.arange(self.roots_MKR.shape[2], device=self.index_MB.device)).to(
            dtype
        )
