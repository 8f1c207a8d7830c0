"""Many decodings at once: one grid that every model of a comparison is scored on.

A comparison is fair if every method gets the same decodings. `decoding_grid` is the default set; `parse_decodings` reads lists of specs,
in which the word ``grid`` stands for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .decoding import Decoding

__all__ = ["TEMPERATURES", "decoding_grid", "parse_decodings"]

TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
"""Twenty temperatures over the paper's [0.1, 5]: where small models are scored unless an experiment says otherwise."""


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
      min_p, heats: min-p on the model's own law, then each heat (:meth:`Decoding.truncate_then_heat`). A heat of 1 is min-p alone.
      min_p_after, heats_before: each heat, then min-p on the heated law: the order of Transformers and vLLM.
      top_p, top_p_heats: top-p on the model's own law, then each heat.

    Examples:
      >>> grid = decoding_grid()
      >>> len(grid), sum(one.temperature_alone for one in grid)
      (77, 20)
      >>> Decoding.truncate_then_heat(min_p=0.1, temperature=2) in grid
      True
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
      >>> len(parse_decodings(["grid", "t=7"]))
      78
    """
    found: dict[str, Decoding] = {}
    given = list(specs)
    for spec in given:
        for one in decoding_grid() if spec == "grid" else (Decoding.parse(spec),):
            if one.name in found:
                raise ValueError(f"decodings: {found[one.name].spec!r} and {one.spec!r} draw alike; give one of them")
            found[one.name] = one
    return tuple(found.values())
