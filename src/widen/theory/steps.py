r"""Decoding as a sequence of steps, and the next-token distribution that it samples from.

A decoding is a sequence of steps ``(name, value)``, applied to the logits from left to right:
``(("min_p", 0.1), ("temperature", 2.0))`` drops tokens, then heats the rest. A number t means ``(("temperature", t),)``,
and ``()`` changes nothing. :mod:`widen.sample` draws with the same steps and the same rules for ties:

    temperature t   divide the logits by t in [0, inf]; 0 is uniform on the most probable tokens, inf on all tokens left
    top_k k         keep the k most probable tokens, and ties with the last of them
    top_p p         drop the least probable tokens while their total mass is at most 1 - p; smaller indices first
    min_p m         keep tokens with q ≥ m max q
    epsilon e       keep tokens with q ≥ e, and always the most probable ones
    top_n_sigma n   keep logits within n standard deviations of the largest, over the tokens left

Each step reads the distribution that the previous step leaves. All are computed in float64; a sampler in float32 can differ on
tokens within rounding of a threshold.

Shapes: V tokens, N rows, T temperatures.
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
    """One decoding, a temperature or a sequence of steps, as a checked tuple of steps."""
    if isinstance(decoding, (int, float, np.integer, np.floating)):
        decoding = (("temperature", float(decoding)),)
    for step in decoding:
        if not _is_step(step):
            raise ValueError(
                f"decoding {decoding!r}: must be a temperature or a sequence of steps (name, value), such as "
                f"(('min_p', 0.1), ('temperature', 2.0)); {step!r} is not a step"
            )
        name, value = step
        if name not in LEGAL:
            raise ValueError(f"step {name!r}: must be one of {', '.join(LEGAL)}")
        legal, text = LEGAL[name]
        check(legal(float(value)), name, value, text)
    return tuple((name, float(value)) for name, value in decoding)


def as_decodings(decodings: Decodings) -> tuple[tuple[int, ...], list[tuple[tuple[str, float], ...]]]:
    """Many decodings: the shape of the argument, and a flat list of steps.

    Temperatures may be a number or an array of any shape; other decodings come in a sequence.
    """
    if isinstance(decodings, (list, tuple)):
        if any(isinstance(d, (list, tuple)) and all(map(_is_step, d)) for d in decodings):
            return (len(decodings),), [as_steps(d) for d in decodings]
        if any(map(_is_step, decodings)):
            raise ValueError(
                f"decodings = {decodings!r}: this is one decoding; write [{decodings!r}] for a sequence of one"
            )
    t = as_non_negative(np.asarray(decodings, float), "decodings")
    return t.shape, [as_steps(float(x)) for x in t.flat]


def _is_step(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and len(x) == 2 and isinstance(x[0], str)


def decoded_log(logits: ArrayLike, decoding: float | int | Steps) -> Array:
    """Log-probabilities of the distribution that a decoding samples from; -inf for tokens that it drops.

    Args:
      logits: logits or log-probabilities, (..., V); -inf is a token off the support. Each row needs a finite entry.
      decoding: a temperature, or steps.

    Examples:
      >>> q = np.log([0.5, 0.3, 0.15, 0.05])
      >>> np.exp(decoded_log(q, [("min_p", 0.2), ("temperature", np.inf)])).round(4).tolist()
      [0.3333, 0.3333, 0.3333, 0.0]
    """
    z = as_floats(logits, "logits")
    top = z.max(axis=-1, keepdims=True)
    check(np.isfinite(top).all(), "logits", logits, "below inf, with a finite entry in each row")
    lead = z - top  # 0 at the top of each row, here and after every step
    for name, value in as_steps(decoding):
        if name != "temperature":
            lead = np.where(_kept(lead, name, value), lead, -np.inf)
        elif value == 0:
            lead = np.where(lead == 0, 0.0, -np.inf)
        elif value == math.inf:
            lead = np.where(lead > -np.inf, 0.0, -np.inf)
        else:
            with np.errstate(over="ignore"):  # a lead over a tiny t is -inf: probability 0
                lead = lead / value
    return np.asarray(lead - np.log(np.exp(lead).sum(axis=-1, keepdims=True)))


def tempered_log(logits: ArrayLike, temperature: ArrayLike) -> Array:
    """log Q^t, (T..., ..., V), from logits or log-probabilities (..., V) and t in [0, inf] of any shape (T...)."""
    t = as_non_negative(temperature, "temperature")
    return np.array([decoded_log(logits, float(x)) for x in t.flat]).reshape(t.shape + np.shape(logits))


def tempered(q: ArrayLike, temperature: ArrayLike) -> Array:
    r"""The tempered distribution :math:`Q^t(x) = Q(x)^{1/t} / \sum_{i \in V} Q(x_i)^{1/t}` (section 2.2 of the paper).

    ``q`` is (..., V), t in [0, inf] has any shape (T...), the result is (T..., ..., V). t = inf is uniform on Supp(Q), t = 0
    on the most probable tokens.

    Examples:
      >>> tempered([0.5, 0.25, 0.25, 0.0], [0.0, 0.5, np.inf]).round(4).tolist()
      [[1.0, 0.0, 0.0, 0.0], [0.6667, 0.1667, 0.1667, 0.0], [0.3333, 0.3333, 0.3333, 0.0]]
    """
    mass = as_non_negative(q, "q")
    check((mass <= 1 + 1e-9).all(), "q", float(mass.max()), "probabilities, at most 1")
    with np.errstate(divide="ignore"):
        return np.exp(tempered_log(np.log(mass), temperature))


def _kept(lead: Array, name: str, value: float) -> NDArray[np.bool_]:
    """Which tokens a filter keeps, given logits minus the largest of each row."""
    if name == "top_k":
        k = min(int(value), lead.shape[-1])
        return np.asarray(lead >= -np.partition(-lead, k - 1, axis=-1)[..., k - 1 : k])
    if name == "min_p":
        return np.asarray(np.exp(lead) >= value)
    if name == "top_n_sigma":
        sigma = np.sqrt(lead.var(axis=-1, keepdims=True, where=lead > -np.inf))
        return np.asarray(lead >= -value * sigma)
    weight = np.exp(lead)
    q = weight / weight.sum(axis=-1, keepdims=True)
    if name == "epsilon":
        return np.asarray((q >= value) | (lead == 0))
    # top_p. The last token in the order is the most probable one and always stays.
    order = np.argsort(lead, axis=-1, kind="stable")
    dropped = np.cumsum(np.take_along_axis(q, order, axis=-1), axis=-1) <= 1 - value
    dropped[..., -1] = False
    kept = np.empty(lead.shape, bool)
    np.put_along_axis(kept, order, ~dropped, axis=-1)
    return kept
