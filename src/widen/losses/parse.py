"""A loss as a string, as on the command line and in a config.

    nll | gold | dft | cdiv:alpha= | tailr:gamma= | lambda_pr:lam=,gamma=
    trunc:drop=,window=,score=,start= | truncr:drop=,window=,score=,start=
    gem:beta= | tofu:gamma=,beta= | focal:gamma= | smooth:eps= | entropy:bonus= | eaft:power= | dco:n=      other people's losses
    anchor:kl= | asft:kl=                            with a reference model: the batch has a column ref_logq
    module:Class(field=value, ...)                   a loss of your own, importable by that name

The named ones also take ``floor=`` and ``cap=``. ``A * B`` is a product; ``nll:steps=1000 then A`` is NLL for 1000 optimizer steps, then A.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from .anchor import ASFT, Anchor
from .cdiv import CDiv, dft, gold
from .compose import Product, Warmup
from .nll import NLL
from .own_class import class_spec, from_class_spec
from .rivals import DCO, EAFT, GEM, TOFU, EntropyBonus, Focal, LabelSmoothing
from .tailr import LambdaPR, TaiLr
from .trunc import Trunc, TruncR
from .weight import Bounded, Weight

LOSSES: dict[str, Callable[..., Weight]] = {
    "nll": NLL,
    "trunc": Trunc,
    "truncr": TruncR,
    "gold": gold,
    "dft": dft,
    "cdiv": CDiv,
    "tailr": TaiLr,
    "lambda_pr": LambdaPR,
    "gem": GEM,
    "tofu": TOFU,
    "focal": Focal,
    "smooth": LabelSmoothing,
    "entropy": EntropyBonus,
    "eaft": EAFT,
    "dco": DCO,
    "asft": ASFT,
    "anchor": Anchor,
}
"""Every loss by its name on the command line."""
for _name, _kind in LOSSES.items():
    if isinstance(_kind, type) and issubclass(_kind, Bounded):
        _kind.spec_name = _name  # so that it prints under that name


def parse(spec: str | Weight) -> Weight:
    """The weight that ``spec`` names; a weight is returned unchanged.

    Examples:
      >>> parse("cdiv:alpha=1.4") == CDiv(alpha=1.4)
      True
      >>> parse("truncr:drop=0.1 * cdiv:alpha=1.4").token_local
      False
      >>> parse("cdiv:alfa=1.4")
      Traceback (most recent call last):
      ...
      ValueError: 'cdiv:alfa=1.4': cdiv takes no 'alfa'; did you mean 'alpha'? It takes alpha, cap, floor
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Weight):
            raise ValueError(
                f"a loss is a spec string or a weight (a class with weigh, or with apply and observe), got {spec!r}"
            )
        return spec
    first, then, rest = spec.partition(" then ")
    if then:
        name, _, arguments = first.strip().partition(":")
        values = _arguments(arguments, spec)
        if name != "nll" or set(values) != {"steps"}:
            raise ValueError(f"{spec!r}: write nll:steps=N before 'then', got {first.strip()!r}")
        return Warmup(steps=values["steps"], then=parse(rest))
    # A star inside parentheses belongs to a field of a class, not to a product.
    parts = [part.strip() for part in re.split(r"\*(?![^()]*\))", spec)]
    return Product(*(_one(part, spec) for part in parts)) if len(parts) > 1 else _one(parts[0], spec)


def spec(loss: str | Weight) -> str:
    """The string of a loss. Equal losses have equal strings, and `parse` gives the loss back.

    A loss of your own becomes ``module:Class(field=value)``. Refused if that cannot be read back: a class of ``__main__`` or inside a
    function, or a field that is neither a number nor a word.

    Examples:
      >>> spec("gold"), spec(CDiv(alpha=0.5))
      ('cdiv:alpha=0.5', 'cdiv:alpha=0.5')
    """
    weight = parse(loss)
    if isinstance(weight, Product):
        return " * ".join(spec(factor) for factor in weight.factors)
    if isinstance(weight, Warmup):
        return f"nll:steps={weight.steps} then {spec(weight.then)}"
    return str(weight) if type(weight) in LOSSES.values() else class_spec(weight)


def _one(part: str, spec: str) -> Weight:
    """One loss: a name of `LOSSES` with its fields, or a class of your own."""
    own: Weight | None = from_class_spec(part)
    if own is not None:
        return own
    name, _, arguments = part.partition(":")
    build = LOSSES.get(name)
    if build is None:
        raise ValueError(f"{spec!r}: no loss is called {name!r}{_nearest(name, LOSSES)} Losses: {', '.join(LOSSES)}")
    taken = inspect.signature(build).parameters
    values = _arguments(arguments, spec)
    for key in values:
        if key not in taken:
            raise ValueError(
                f"{spec!r}: {name} takes no {key!r}{_nearest(key, taken)} It takes {', '.join(sorted(taken))}"
            )
    missing = [key for key, p in taken.items() if p.default is inspect.Parameter.empty and key not in values]
    if missing:
        example = ",".join(f"{key}=..." for key in missing)
        raise ValueError(f"{spec!r}: {name} needs {' and '.join(missing)}: write {name}:{example}")
    try:
        return build(**values)
    except ValueError as error:
        raise ValueError(f"{spec!r}: {error}") from None


def _arguments(text: str, spec: str) -> dict[str, Any]:
    """``a=1,b=2`` as a dict of numbers, each key once; ``score`` takes a word."""
    values: dict[str, Any] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or not key or not value:
            raise ValueError(f"{spec!r}: {pair!r} is not name=value")
        if key in values:
            raise ValueError(f"{spec!r}: {key} is given twice")
        whole = key in ("window", "start", "steps")
        try:
            values[key] = value if key == "score" else int(value) if whole else float(value)
        except ValueError:
            raise ValueError(f"{spec!r}: {key}={value} is not {'a whole number' if whole else 'a number'}") from None
    return values


def _nearest(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."
