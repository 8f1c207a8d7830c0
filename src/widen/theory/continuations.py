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
    """The next-token distributions of P, one for each distinct prefix; the empty prefix comes first.

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

    def dense(self, vocab: int, prefixes: NDArray[np.intp] | slice = slice(None)) -> Array:
        """P(token | prefix) of these prefixes as a matrix (N, V); a token is right where it is above 0."""
        check(vocab > self.token.max(), "vocab", vocab, f"above the largest token, {self.token.max()}")
        wanted = np.arange(self.mass.size)[prefixes]
        place = np.full(self.mass.size, -1)
        place[wanted] = np.arange(wanted.size)
        here = place[self.row] >= 0
        out = np.zeros((wanted.size, vocab))
        out[place[self.row[here]], self.token[here]] = self.p[here]
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
    order = np.lexsort(x_SL.T[::-1])
    x_SL, p_S = x_SL[order], p_S[order]
    if (x_SL[1:] == x_SL[:-1]).all(axis=1).any():
        raise ValueError("sequences lists a sequence twice; merge the two and add their p")
    prefix_S = np.zeros(len(x_SL), np.intp)  # a number for the prefix that each sequence has so far
    parts, total = [], 0
    for at in range(x_SL.shape[1]):
        live = np.flatnonzero(x_SL[:, at] >= 0)
        _, first, prefix = np.unique(prefix_S[live], return_index=True, return_inverse=True)
        mass = np.bincount(prefix, weights=p_S[live])
        longer = prefix * (int(x_SL.max()) + 1) + x_SL[live, at]
        _, starts, prefix_S[live] = np.unique(longer, return_index=True, return_inverse=True)
        joint = np.bincount(prefix_S[live], weights=p_S[live])
        row, token = prefix[starts], x_SL[live[starts], at]
        parts.append((order[live[first]], np.full(mass.size, at), mass, row + total, token, joint / mass[row]))
        total += mass.size
    return Continuations(*(np.concatenate(column) for column in zip(*parts, strict=True)))
