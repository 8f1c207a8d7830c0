"""One grid of decodings for every model of a comparison: a method that was tried with more settings has an advantage."""

from __future__ import annotations

from collections.abc import Iterable

from .decoding import Decoding

__all__ = ["TEMPERATURES", "decoding_grid", "parse_decodings"]

TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
"""Twenty temperatures over the paper's [0.1, 5]: the default for small models."""


def decoding_grid() -> tuple[Decoding, ...]:
    """Four families: temperature alone, min-p before and after the temperature, and top-p before the temperature.

    Examples:
      >>> grid = decoding_grid()
      >>> len(grid), sum(one.temperature_alone for one in grid)
      (77, 20)
    """
    min_p_first = [(m, t) for m in (0.02, 0.05, 0.1, 0.2, 0.3) for t in (1.0, 1.5, 2.0, 3.0, 5.0, 10.0)]
    min_p_last = [(m, t) for m in (0.05, 0.1, 0.2, 0.3) for t in (1.5, 2.0, 3.0)]
    top_p_first = [(p, t) for p in (0.9, 0.95, 0.99) for t in (1.0, 1.5, 2.0, 3.0, 5.0)]
    return (
        *(Decoding(temperature=t) for t in TEMPERATURES),
        *(Decoding.truncate_then_heat(min_p=m, temperature=t) for m, t in min_p_first),
        *(Decoding(min_p=m, temperature=t) for m, t in min_p_last),
        *(Decoding(top_p=p, temperature=t, order="temperature_last") for p, t in top_p_first),
    )


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
