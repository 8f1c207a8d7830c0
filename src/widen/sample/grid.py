"""One grid of decodings for every model of a comparison: a method that was tried with more settings has an advantage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .decoding import Decoding

TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
"""Twenty temperatures over the paper's [0.1, 5]: the default for small models."""


def decoding_grid(
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    min_p: Sequence[float] = (0.02, 0.05, 0.1, 0.2, 0.3),
    heats: Sequence[float] = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
    min_p_after: Sequence[float] = (0.05, 0.1, 0.2, 0.3),
    heats_before: Sequence[float] = (1.5, 2.0, 3.0),
    top_p: Sequence[float] = (0.9, 0.95, 0.99),
    top_p_heats: Sequence[float] = (1.0, 1.5, 2.0, 3.0, 5.0),
) -> tuple[Decoding, ...]:
    """Four families of decodings; of two that draw alike, the first is kept.

    Args:
      temperatures: temperature alone.
      min_p, heats: min-p on the model's own distribution, then each temperature (:meth:`Decoding.truncate_then_heat`).
      min_p_after, heats_before: each temperature, then min-p: the order of Transformers and vLLM.
      top_p, top_p_heats: top-p on the model's own distribution, then each temperature.

    Examples:
      >>> len(decoding_grid()), sum(one.temperature_alone for one in decoding_grid())
      (77, 20)
    """
    families = [
        *(Decoding(temperature=t) for t in temperatures),
        *(Decoding.truncate_then_heat(min_p=m, temperature=t) for m in min_p for t in heats),
        *(Decoding(min_p=m, temperature=t) for m in min_p_after for t in heats_before),
        *(Decoding(top_p=p, temperature=t, order="temperature_last") for p in top_p for t in top_p_heats),
    ]
    found: dict[str, Decoding] = {}
    for one in families:
        found.setdefault(one.name, one)
    return tuple(found.values())


def parse_decodings(specs: Iterable[str | Decoding]) -> tuple[Decoding, ...]:
    """The decodings that specs name, in order; the word ``grid`` stands for `decoding_grid`. Two that draw alike are refused.

    Examples:
      >>> [one.name for one in parse_decodings(["t=0.5", "min_p=0.1,t=2,order=temperature_last"])]
      ['t0.5', 'min_p0.1_t2']
    """
    found: dict[str, Decoding] = {}
    for spec in specs:
        for one in decoding_grid() if spec == "grid" else (Decoding.parse(spec),):
            if one.name in found:
                raise ValueError(f"decodings: {found[one.name].spec!r} and {one.spec!r} draw alike; give one of them")
            found[one.name] = one
    return tuple(found.values())
