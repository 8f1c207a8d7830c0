r"""Exact likelihoods and PR-curves of an autoregressive model on a support that can be listed, under any decoding.

One teacher-forced pass gives the logits of every sequence of Supp(P). The likelihood under every decoding
(:mod:`widen.theory.steps`) follows without a further pass. At a temperature it is :math:`\log Q^t(x) =
\sum_l (z_{l,x_l}/t - \log\sum_v e^{z_{l,v}/t})`; a sequence that uses a dropped token has -inf. The sequences must hold
their end token: a model that does not stop is off the support.

Shapes: S sequences, L target positions, V tokens, N rows of logits, T decodings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .checks import Array, as_masses, check
from .curve import PRCurve, pr_curve_from_logs
from .steps import Decodings, as_decodings, decoded_log

SLICE = 1 << 20
"""Logits converted to float64 at a time (8 MB): larger slices leave the cache."""


def exact_log_likelihood(
    logits: ArrayLike, targets: ArrayLike, decodings: Decodings, *, mask: ArrayLike | None = None
) -> Array:
    """log Q(x), (T..., S), of every listed sequence under every decoding; -inf where a decoding drops a token of x.

    ``logits`` may be a memory map larger than memory. Positions outside the mask are not read.

    Args:
      logits: (S, L, V), any float type.
      targets: token ids, (S, L).
      decodings: temperatures in [0, inf], a number or any shape (T...); or a sequence of T decodings, each a
        temperature or steps such as ``(("min_p", 0.1), ("temperature", 2.0))``.
      mask: True at target positions, (S, L); all positions when None.

    Examples:
      >>> logits = np.log([[[0.5, 0.5], [0.9, 0.1]]])
      >>> np.exp(exact_log_likelihood(logits, [[0, 1]], [1.0, np.inf, 0.0])).round(6).tolist()
      [[0.05], [0.25], [0.0]]
      >>> exact_log_likelihood(logits, [[0, 1]], [(("min_p", 0.2),), (("min_p", 0.1), ("temperature", 2.0))]).round(6).tolist()
      [[-inf], [-2.079442]]
    """
    z_SLV = np.asarray(logits)
    x_SL = np.asarray(targets)
    if z_SLV.ndim != 3 or x_SL.shape != z_SLV.shape[:2]:
        raise ValueError(f"logits must be (S, L, V) and targets (S, L), got shapes {z_SLV.shape} and {x_SL.shape}")
    keep_SL = np.ones(x_SL.shape, bool) if mask is None else np.asarray(mask, bool)
    if keep_SL.shape != x_SL.shape:
        raise ValueError(f"mask must have the shape of targets {x_SL.shape}, got {keep_SL.shape}")
    shape, steps = as_decodings(decodings)
    total_TS = np.zeros((len(steps), x_SL.shape[0]))
    step = max(1, SLICE // max(1, z_SLV.shape[2]))
    for position in range(x_SL.shape[1]):
        rows = np.flatnonzero(keep_SL[:, position])
        for start in range(0, rows.size, step):
            part = rows[start : start + step]
            total_TS[:, part] += token_log_likelihood(z_SLV[part, position], x_SL[part, position], steps)
    return total_TS.reshape(*shape, x_SL.shape[0])


def token_log_likelihood(logits: ArrayLike, targets: ArrayLike, decodings: Decodings) -> Array:
    """log Q, (T..., N), of one target token per row of logits (N, V): the terms that :func:`exact_log_likelihood` sums."""
    z_NV, x_N = np.asarray(logits, dtype=np.float64), np.asarray(targets)
    if z_NV.ndim != 2 or x_N.shape != z_NV.shape[:1]:
        raise ValueError(f"logits must be (N, V) and targets (N,), got shapes {z_NV.shape} and {x_N.shape}")
    if not np.issubdtype(x_N.dtype, np.integer) or (x_N.size and not (x_N.min() >= 0 and x_N.max() < z_NV.shape[1])):
        raise ValueError(f"targets must be token ids in 0..{z_NV.shape[1] - 1}, got {x_N.dtype} {x_N}")
    shape, all_steps = as_decodings(decodings)
    logs = [np.take_along_axis(decoded_log(z_NV, steps), x_N[:, None], axis=1) for steps in all_steps]
    return np.array(logs).reshape(*shape, x_N.size)


def exact_curves(
    p: ArrayLike, logits: ArrayLike, targets: ArrayLike, decodings: Decodings, *, mask: ArrayLike | None = None
) -> tuple[PRCurve, ...]:
    """The exact PR-curve of an autoregressive model under each decoding.

    ``p`` is the probability of each listed sequence, (S,); the other arguments are those of :func:`exact_log_likelihood`. The
    sequences must differ.

    Examples:
      >>> logits = np.log([[[0.5, 0.5]], [[0.5, 0.5]]])
      >>> exact_curves([0.9, 0.1], logits, [[0], [1]], 1.0)[0].precision(1.0)
      0.6
    """
    p_S = as_masses(p, "p")
    x_SL = np.asarray(targets)
    shown_SL = x_SL if mask is None else np.where(np.asarray(mask, bool), x_SL, -1)
    if len(np.unique(shown_SL, axis=0)) < len(shown_SL):
        raise ValueError("targets lists a sequence twice; merge the two and add their p")
    check(len(p_S) == len(x_SL), "p", f"shape {p_S.shape}", f"one mass for each of the {len(x_SL)} sequences")
    with np.errstate(divide="ignore"):
        logp_S = np.log(p_S)
    log_q_TS = exact_log_likelihood(logits, x_SL, as_decodings(decodings)[1], mask=mask)
    return tuple(pr_curve_from_logs(logp_S, log_q_S) for log_q_S in log_q_TS)
