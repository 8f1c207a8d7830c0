"""A decoding method as a value: temperature, filters, KL guidance, and their order.

A filter before the temperature sees the model's own probabilities, a filter after it sees the tempered ones; the two keep different tokens.
Transformers and vLLM apply the temperature first, llama.cpp last.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any

FILTERS = ("top_n_sigma", "top_k", "top_p", "min_p", "typical", "epsilon", "eta")
"""Every filter, in the order of Hugging Face; top-n-sigma comes first because it reads the whole distribution."""

ORDERS = {
    "temperature_first": ("temperature", *FILTERS),
    "temperature_last": (*FILTERS, "temperature"),
    "vllm": ("temperature", "min_p", "top_n_sigma", "top_k", "top_p", "typical", "epsilon", "eta"),
}
"""Orders by name: `temperature_first` is Hugging Face's, `temperature_last` llama.cpp's."""

WITHOUT = ("bos", "field")  # what the second stream of KL guidance starts from

_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "temperature": (lambda x: 0 <= x < math.inf, "a number >= 0, where 0 is greedy"),
    "top_n_sigma": (lambda x: 0 < x < math.inf, "a number above 0"),
    "top_k": (lambda x: type(x) is int and x >= 1, "a whole number >= 1"),
    "top_p": (lambda x: 0 < x <= 1, "above 0, at most 1"),
    "min_p": (lambda x: 0 < x <= 1, "above 0, at most 1"),
    "typical": (lambda x: 0 < x < 1, "strictly between 0 and 1"),
    "epsilon": (lambda x: 0 < x < 1, "strictly between 0 and 1"),
    "eta": (lambda x: 0 < x < 1, "strictly between 0 and 1"),
    "kl_sigma": (lambda x: x > 0, "above 0; inf is plain sampling, leave it out to switch it off"),
    "without": (lambda x: x in WITHOUT, " or ".join(WITHOUT)),
}


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """One decoding method. ``None`` switches a filter off.

    Args:
      temperature: divides the logits; 0 takes the likeliest token, and then no filter may be set.
      top_n_sigma: keep logits within n standard deviations of the largest (:mod:`widen.sample.processors`).
      top_k, top_p, min_p, typical, epsilon, eta: as in Hugging Face transformers, by its own processors.
      kl_sigma: KL-guided temperature (:mod:`widen.sample.kl_guided`); inf is plain sampling.
      without: what the second stream of KL guidance sees instead of the prompt: ``bos``, the model's first token, or ``field``, each
        prompt's own ``without`` text.
      order: a name of `ORDERS`, or the steps joined by ``>``, such as ``top_k>temperature>top_p``.

    Examples:
      >>> Decoding.parse("t=0.7,top_p=0.9,order=temperature_last").steps
      (('top_p', 0.9), ('temperature', 0.7))
      >>> Decoding(temperature=0.7, top_p=0.9).spec
      't=0.7,top_p=0.9'
      >>> Decoding.parse("min_p=0.1 then t=3").spec
      't=3,min_p=0.1,order=temperature_last'
    """

    temperature: float = 1.0
    top_n_sigma: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical: float | None = None
    epsilon: float | None = None
    eta: float | None = None
    kl_sigma: float | None = None
    without: str = "bos"
    order: str = "temperature_first"

    def __post_init__(self) -> None:
        for name, (legal, text) in _RANGES.items():
            value = getattr(self, name)
            if hasattr(value, "item"):  # a number of numpy, whose repr is no number
                value = value.item()
                object.__setattr__(self, name, value)
            if value is not None and not legal(value):
                raise ValueError(f"{name}={value!r}: must be {text}")
        extra = [*self._filters(), *(["kl_sigma"] if self.kl_sigma is not None else [])]
        if self.temperature == 0 and extra:
            raise ValueError(f"temperature=0 is greedy and leaves nothing to {', '.join(extra)}: drop one of them")
        self._order()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @cached_property
    def steps(self) -> tuple[tuple[str, float], ...]:
        """What is done to the logits, in order, each with its value; a temperature of 1 and a top-p of 1 are left out."""
        if self.greedy:
            return ()
        active = set(self._filters())
        if self.temperature != 1 or self.kl_sigma is not None:
            active.add("temperature")
        return tuple((name, getattr(self, name)) for name in self._order() if name in active)

    @property
    def exact_steps(self) -> tuple[tuple[str, float], ...]:
        """The steps for :func:`widen.theory.exact_log_likelihood`: like `steps`, but greedy is temperature 0.

        KL guidance is refused: its temperature changes from token to token.
        """
        if self.kl_sigma is not None:
            raise ValueError(f"kl_sigma={self.kl_sigma!r}: a KL-guided decoding has no fixed steps to score exactly")
        return (("temperature", 0.0),) if self.greedy else self.steps

    @classmethod
    def truncate_then_heat(cls, *, min_p: float = 0.1, temperature: float = 2.0) -> Decoding:
        """Drop tokens below ``min_p`` times the model's largest probability, then apply the temperature to the others.

        Examples:
          >>> Decoding.truncate_then_heat().spec
          't=2,min_p=0.1,order=temperature_last'
        """
        return cls(min_p=min_p, temperature=temperature, order="temperature_last")

    @property
    def temperature_alone(self) -> bool:
        """Whether there is no filter and no guidance."""
        return not self._filters() and self.kl_sigma is None

    @property
    def in_words(self) -> str:
        """The steps in their order, such as ``min_p=0.1 then t=2``."""
        if not self.steps or self.kl_sigma is not None:
            return self.spec
        return " then ".join(f"{'t' if name == 'temperature' else name}={as_text(value)}" for name, value in self.steps)

    @property
    def spec(self) -> str:
        """The shortest spec string of this value; `parse` gives the value back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)[1:] if getattr(self, f.name) != f.default}
        return ",".join([f"t={as_text(self.temperature)}", *(f"{name}={as_text(v)}" for name, v in values.items())])

    @cached_property
    def name(self) -> str:
        """The steps in their order, for file names. Methods that draw alike have one name.

        Examples:
          >>> Decoding(temperature=0.7, top_p=0.9).name, Decoding(temperature=0).name, Decoding(kl_sigma=3.0).name
          ('t0.7_top_p0.9', 'greedy', 't1_kl3_bos')
        """
        if self.greedy:
            return "greedy"
        guided = f"_kl{as_text(self.kl_sigma)}_{self.without}" if self.kl_sigma is not None else ""
        parts = [f"t{as_text(v)}{guided}" if k == "temperature" else f"{k}{as_text(v)}" for k, v in self.steps]
        return "_".join(parts if any(k == "temperature" for k, _ in self.steps) else ["t1", *parts])

    @classmethod
    def parse(cls, spec: str | Decoding) -> Decoding:
        """The decoding that a spec string names; a `Decoding` is returned as it is.

        ``min_p=0.1 then t=3`` applies the settings in the order written. With commas alone, ``order=`` sets the order.
        """
        if isinstance(spec, Decoding):
            return spec
        stages = spec.split(" then ")
        known = ["t" if f.name == "temperature" else f.name for f in fields(cls)]
        values: dict[str, Any] = {}
        for pair in filter(None, (piece.strip() for stage in stages for piece in stage.split(","))):
            key, equals, text = (piece.strip() for piece in pair.partition("="))
            if key not in (*known, "temperature"):
                close = get_close_matches(key, [*known, "temperature"], n=1, cutoff=0.5)
                hint = f"; did you mean {close[0]!r}?" if close else "."
                raise ValueError(f"{spec!r}: no setting is called {key!r}{hint} Settings: {', '.join(known)}")
            if not equals or not text:
                raise ValueError(f"{spec!r}: {pair!r} is not name=value")
            name = "temperature" if key == "t" else key
            if name in values:
                raise ValueError(f"{spec!r}: {key} is given twice")
            try:
                values[name] = text if name in ("without", "order") else int(text) if name == "top_k" else float(text)
            except ValueError:
                kind = "whole number" if name == "top_k" else "number"
                raise ValueError(f"{spec!r}: {name}={text} is not a {kind}") from None
        if len(stages) > 1:
            if "order" in values:
                raise ValueError(f"{spec!r}: 'then' already gives the order; leave out order={values['order']}")
            heat = "temperature" if "temperature" in values else "kl_sigma"  # KL guidance sets the temperature
            steps_at = {heat: "temperature"} | {name: name for name in FILTERS}
            written = [steps_at[name] for name in values if name in steps_at]
            named = (order for order, steps in ORDERS.items() if [step for step in steps if step in written] == written)
            values["order"] = next(named, ">".join(dict.fromkeys([*written, "temperature"])))
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{spec!r}: {error}") from None

    def _filters(self) -> tuple[str, ...]:
        """The filters that do something."""
        return tuple(f for f in FILTERS if getattr(self, f) is not None and not (f == "top_p" and self.top_p == 1))

    def _order(self) -> tuple[str, ...]:
        """The order as a tuple of steps; an explicit one must name each active step once."""
        if self.order in ORDERS:
            return ORDERS[self.order]
        steps = tuple(step.strip() for step in self.order.split(">"))
        legal = ("temperature", *FILTERS)
        if wrong := [s for s in steps if s not in legal]:
            known = f"{', '.join(ORDERS)}, or steps joined by '>': {', '.join(legal)}"
            raise ValueError(f"order={self.order!r}: {wrong[0]!r} is no step; write one of {known}")
        needed = {"temperature", *self._filters()}
        if len(set(steps)) != len(steps) or not needed <= set(steps):
            raise ValueError(f"order={self.order!r}: must name each of {', '.join(sorted(needed))} once")
        return steps


def as_text(value: Any) -> str:
    """A number as people write it: 0.7, 3, 1e-05, inf."""
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything besides model and prompt that decides the samples; each has a file of its own.

    Examples:
      >>> Settings(decoding=Decoding(temperature=0.7), max_tokens=160).name
      't0.7-40723d3c'
    """

    decoding: Decoding
    max_tokens: int = 256  # the end token included
    seed: int = 0
    stop: str | tuple[str, ...] = ()  # a sample ends before the first of these strings
    chat: bool = False  # prompts go through the model's chat template
    system: str = ""  # the system message of every prompt

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if not all(self.stop):
            raise ValueError(f"stop={self.stop!r}: a stop string must not be empty")
        if self.system and not self.chat:
            raise ValueError(f"system={self.system!r} is part of a chat template: set chat too")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}: must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed={self.seed}: must be at least 0 and below 2**63")

    @cached_property
    def hash(self) -> str:
        """Eight hex digits of the settings."""
        chat = self._chat()
        text = f"{self.decoding.name}|{self.max_tokens}|{self.seed}{json.dumps(chat, sort_keys=True) if chat else ''}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @cached_property
    def name(self) -> str:
        """The stem of the samples file."""
        return f"{self.decoding.name}-{self.hash}"

    def to_json(self) -> dict[str, Any]:
        """As in the header of a samples file."""
        steps = [[name, value if math.isfinite(value) else str(value)] for name, value in self.decoding.steps]
        numbers = {"max_tokens": self.max_tokens, "seed": self.seed, "hash": self.hash}
        return {"decoding": self.decoding.spec, "steps": steps} | numbers | self._chat()

    @property
    def asked(self) -> dict[str, Any]:
        """How the model was asked, the decoding aside: samples that differ in it are not two values of one point."""
        return {"max_tokens": self.max_tokens, "seed": self.seed} | self._chat()

    def _chat(self) -> dict[str, Any]:
        """Stop strings, chat and system message, as far as they are set."""
        found = {"stop": list(self.stop), "chat": self.chat, "system": self.system}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        """The settings that a header holds."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**known | {"decoding": Decoding.parse(data["decoding"]), "stop": tuple(data.get("stop", ()))})
