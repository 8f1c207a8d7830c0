"""Which next tokens are right after every prefix of a support that can be listed.

Shapes: S sequences, L positions, N distinct prefixes, V tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Array, as_masses, check


@dataclass(frozen=True, eq=False)
class Continuations:
    """The next-token laws of P, one for each distinct prefix; the empty prefix comes first.

    ``logits[sequence, position]`` picks the row of each prefix from teacher-forced logits (S, L, V).

    Attributes:
      sequence: (N,), a row of the support that has the prefix.
      position: (N,), the length of the prefix.
      mass: (N,), the probability that a sequence of P begins with the prefix.
      row, token, p: for each right continuation, the index of its prefix, the token, and P(token | prefix).
    """

    sequence: NDArray[np.intp]
    position: NDArray[np.intp]
    mass: Array
    row: NDArray[np.intp]
    token: NDArray[np.intp]
    p: Array

    def dense(self, vocab: int) -> Array:
        """P(token | prefix) as a matrix (N, V); a token is right where it is above 0."""
        check(vocab > self.token.max(), "vocab", vocab, f"above the largest token, {self.token.max()}")
        out = np.zeros((self.mass.size, vocab))
        out[self.row, self.token] = self.p
        return out


def valid_continuations(sequences: ArrayLike, p: ArrayLike | None = None) -> Continuations:
    """List every prefix of a support, and the tokens that P allows after it.

    Args:
      sequences: token ids of the distinct sequences of Supp(P), (S, L). Shorter sequences end in negative ids, which are
        not tokens; their last token should be the end token.
      p: probability of each sequence, (S,), above 0; None is uniform.

    Examples:
      >>> found = valid_continuations([[0, 1], [0, 2], [1, 1]])
      >>> found.position.tolist(), found.mass.round(3).tolist()
      ([0, 1, 1], [1.0, 0.667, 0.333])
      >>> found.dense(3).round(3).tolist()
      [[0.667, 0.333, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0]]
    """
    x_SL = np.asarray(sequences)
    if x_SL.ndim != 2 or x_SL.size == 0 or not np.issubdtype(x_SL.dtype, np.integer):
        raise ValueError(f"sequences must be integers (S, L), not empty; got {x_SL.dtype} of shape {x_SL.shape}")
    p_S = np.full(len(x_SL), 1.0 / len(x_SL)) if p is None else as_masses(p, "p")
    check(p_S.shape == x_SL.shape[:1], "p", f"shape {p_S.shape}", f"one mass for each of {len(x_SL)}")
    check(bool((p_S > 0).all()), "p", 0.0, "above 0: list only sequences that P can produce")
    ended = x_SL < 0
    broken = (ended[:, :-1] & ~ended[:, 1:]).any() or ended[:, 0].any()
    check(not broken, "sequences", "a token after a negative id, or no token", "tokens first, then negative ids")
    order = np.lexsort(x_SL.T[::-1])  # equal prefixes become neighbours
    x_SL, p_S, ended = x_SL[order], p_S[order], ended[order]
    same_SL = np.logical_and.accumulate(x_SL[1:] == x_SL[:-1], axis=1)
    if same_SL.size and same_SL[:, -1].any():
        raise ValueError("sequences lists a sequence twice; merge the two and add their p")
    new_SL = np.ones(x_SL.shape, bool)  # whether the prefix up to and including this token is new
    new_SL[1:] = ~same_SL
    of_S = np.zeros(len(x_SL), np.intp)  # index of the prefix that each sequence has so far
    parts, total = [], 0
    for at in range(x_SL.shape[1]):
        live = ~ended[:, at]
        first, of_S[live] = _groups(of_S[live])
        rows = np.flatnonzero(live)
        mass = np.bincount(of_S[live], weights=p_S[live])
        starts = rows[new_SL[rows, at]]
        child = np.cumsum(new_SL[rows, at]) - 1
        joint = np.bincount(child, weights=p_S[live])
        row = of_S[starts]
        parts.append(
            (order[rows[first]], np.full(mass.size, at), mass, row + total, x_SL[starts, at], joint / mass[row])
        )
        total += mass.size
        of_S[live] = child
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Continuations(*columns)


def _groups(label: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Neighbours with equal labels: where each group begins, and the group of each entry."""
    begins = np.ones(label.size, bool)
    begins[1:] = label[1:] != label[:-1]
    return np.flatnonzero(begins), np.cumsum(begins) - 1
