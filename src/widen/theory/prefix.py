"""Running sums of many positive masses that stay exact to a few units in the last place.

A plain cumulative sum of n terms may be wrong by n roundings: 1e-9 at ten million atoms in the worst case, 1e-14 on random ones.
Here the sums restart every 128 atoms, the block totals are summed pairwise and accumulated in extended precision where the
machine has it: an entry is wrong by at most 128 roundings of the mass of its own block plus about 20 of the whole (2e-16 measured
on ten million random atoms, for 52 ms instead of 41).
"""

from __future__ import annotations

import numpy as np

from .checks import Array

BLOCK = 128


def prefix_sums(x: Array) -> Array:
    """``out[k] = x[0] + ... + x[k-1]``, k = 0..n.

    ``x`` may be a reversed view: then these are the suffix sums, reversed.

    Examples:
      >>> prefix_sums(np.array([1.0, 2.0, 3.0])).tolist()
      [0.0, 1.0, 3.0, 6.0]
    """
    whole = x.size // BLOCK * BLOCK
    out = np.empty(x.size + 1)
    out[0] = 0.0
    blocks, sums = x[:whole].reshape(-1, BLOCK), out[1 : whole + 1].reshape(-1, BLOCK)
    np.cumsum(blocks, axis=1, out=sums)
    before = np.concatenate([[0], np.cumsum(blocks.sum(axis=1), dtype=np.longdouble)]).astype(np.float64)
    sums += before[:-1, None]
    np.cumsum(x[whole:], out=out[whole + 1 :])
    out[whole + 1 :] += before[-1]
    return out
