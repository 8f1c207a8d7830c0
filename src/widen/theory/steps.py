r"""Decoding as a sequence of steps, and the next-token law that it samples from.

A decoding is a sequence of steps ``(name, value)``, applied to the logits from left to right, such as
``(("min_p", 0.1), ("temperature", 2.0))``: drop the tokens below a tenth of the largest probability, then heat what is
left. A plain number t stands for ``(("temperature", t),)``, and ``()`` changes nothing. The steps, ties included, are
those that :mod:`widen.sample` draws with:

    temperature t   divide the logits by t in [0, inf]; 0 and inf are the limits, uniform on the most probable tokens
                    and on all that are left
    top_k k         keep the k most probable tokens, and what ties with the last of them
    top_p p         drop tokens from the least probable up, while the dropped mass is at most 1 - p; of tokens that tie,
                    those with the smaller index go first
    min_p m         keep tokens with q ≥ m max q
    epsilon e       keep tokens with q ≥ e, and the most probable ones in any case
    top_n_sigma n   keep logits within n standard deviations of the largest, over the tokens that are left

Each step reads the law that the step before it leaves. All are computed in float64; a sampler that works in float32 can
differ on tokens within rounding of a threshold.

Shapes: V tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Array, as_floats, as_non_negative, check

Steps = Sequence[tuple[str, float | int]]
Decodings = ArrayLike | Sequence[Any]  # temperatures of any shape, or a sequence whose items are temperatures and Steps

LEGAL: dict[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda x: x >= 0, "in [0, inf]"),
    "top_k": (lambda x: x >= 1 and x == math.floor(x), "a whole number, at least 1"),
    "top_p": (lambda x: 0 < x <= 1, "in (0, 1]"),
    "min_p": (lambda x: 0 < x <= 1, "in (0, 1]"),
    "epsilon": (lambda x: 0 < x < 1, "in (0, 1)"),
    "top_n_sigma": (lambda x: 0 < x < math.inf, "in (0, inf)"),
}
"""Every step with its range."""


def as_steps(decoding: Any) -> tuple[tuple[str, float], ...]:
    """One decoding as a tuple of steps; unknown names and values out of range are refused.

    Args:
      decoding: a temperature, or a sequence of steps.

    Examples:
      >>> as_steps(2.0), as_steps([("min_p", 0.1), ("temperature", 2)])
      ((('temperature', 2.0),), (('min_p', 0.1), ('temperature', 2.0)))
    """
    if isinstance(decoding, (int, float, np.integer, np.floating)):
        decoding = (("temperature", float(decoding)),)
    steps = []
    for step in decoding:
        if isinstance(step, str) or not isinstance(step, Sequence) or len(step) != 2 or not isinstance(step[0], str):
            raise ValueError(
                f"decoding {decoding!r}: must be a temperature or a sequence of steps (name, value), such as "
                f"(('min_p', 0.1), ('temperature', 2.0)); {step!r} is not a step"
            )
        name, value = step[0], float(step[1])
        if name not in LEGAL:
            raise ValueError(f"step {name!r}: must be one of {', '.join(LEGAL)}")
        legal, text = LEGAL[name]
        check(legal(value), name=name, value=step[1], legal=text)
        steps.append((name, value))
    return tuple(steps)


def as_decodings(decodings: Decodings) -> tuple[tuple[int, ...], list[tuple[tuple[str, float], ...]]]:
    """Many decodings: the shape of the argument, and a flat list of steps.

    Temperatures may come as a number or as an array of any shape, other decodings in a sequence.

    Examples:
      >>> as_decodings([1.0, (("top_k", 2),)])
      ((2,), [(('temperature', 1.0),), (('top_k', 2.0),)])
      >>> as_decodings(0.5)
      ((), [(('temperature', 0.5),)])
    """
    if isinstance(decodings, (list, tuple)) and any(_is_steps(d) for d in decodings):
        return (len(decodings),), [as_steps(d) for d in decodings]
    if isinstance(decodings, (list, tuple)) and any(_is_step(d) for d in decodings):
        raise ValueError(
            f"decodings = {decodings!r}: this is one decoding; write [{decodings!r}] for a sequence of one"
        )
    t = as_non_negative(decodings, name="decodings")
    return t.shape, [as_steps(float(x)) for x in t.flat]


def _is_step(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and len(x) == 2 and isinstance(x[0], str)


def _is_steps(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and all(map(_is_step, x))


def decoded_log(logits: ArrayLike, decoding: float | int | Steps) -> Array:
    """Log-probabilities of the law that a decoding samples from, -inf for tokens that it drops.

    Args:
      logits: logits or log-probabilities, (..., V); -inf is a token off the support. Each row needs a finite entry.
      decoding: a temperature, or steps.

    Examples:
      >>> q = np.log([0.5, 0.3, 0.15, 0.05])
      >>> np.exp(decoded_log(q, [("min_p", 0.2), ("temperature", np.inf)])).round(4).tolist()
      [0.3333, 0.3333, 0.3333, 0.0]
      >>> np.exp(decoded_log(q, [("temperature", np.inf), ("min_p", 0.2)])).round(4).tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    z = as_floats(logits, name="logits")
    top = z.max(axis=-1, keepdims=True)
    check(np.isfinite(top).all(), name="logits", value="a row", legal="below inf, with a finite entry in each row")
    lead = decoded_leads((z - top).reshape(-1, z.shape[-1]), as_steps(decoding)).reshape(z.shape)
    return np.asarray(lead - np.log(np.exp(lead).sum(axis=-1, keepdims=True)))


def decoded_leads(lead_NV: Array, steps: Steps) -> Array:
    """Logits after the steps, minus their largest: 0 at the top of each row, -inf where a token is dropped.

    Args:
      lead_NV: logits minus the largest of each row. Not changed.
      steps: from :func:`as_steps`.
    """
    for name, value in steps:
        lead_NV = (
            _tempered(lead_NV, value)
            if name == "temperature"
            else np.where(_kept(lead_NV, name, value), lead_NV, -np.inf)
        )
    return lead_NV


def _tempered(lead_NV: Array, t: float) -> Array:
    if t == 0:
        return np.where(lead_NV == 0, 0.0, -np.inf)
    if math.isinf(t):
        return np.where(lead_NV > -np.inf, 0.0, -np.inf)
    with np.errstate(over="ignore"):  # a lead over a tiny t is -inf: probability 0
        return np.asarray(lead_NV / t)


def _kept(lead_NV: Array, name: str, value: float) -> NDArray[np.bool_]:
    """Which tokens a filter keeps."""
    if name == "top_k":
        k = min(int(value), lead_NV.shape[-1])
        return np.asarray(lead_NV >= -np.partition(-lead_NV, k - 1, axis=-1)[:, k - 1 : k])
    if name == "min_p":
        return np.asarray(np.exp(lead_NV) >= value)
    if name == "top_n_sigma":
        left = lead_NV > -np.inf
        count = left.sum(axis=-1, keepdims=True)
        mean = lead_NV.sum(axis=-1, keepdims=True, where=left) / count
        spread = np.where(left, lead_NV - mean, 0.0)
        return np.asarray(lead_NV >= -value * np.sqrt((spread**2).sum(axis=-1, keepdims=True) / count))
    weight = np.exp(lead_NV)
    q = weight / weight.sum(axis=-1, keepdims=True)
    if name == "epsilon":
        return np.asarray((q >= value) | (lead_NV == 0))
    # top_p. The last token in the order is the most probable one and always stays.
    order = np.argsort(lead_NV, axis=-1, kind="stable")
    dropped = np.cumsum(np.take_along_axis(q, order, axis=-1), axis=-1) <= 1 - value
    dropped[:, -1] = False
    kept = np.empty(lead_NV.shape, bool)
    np.put_along_axis(kept, order, ~dropped, axis=-1)
    return kept
