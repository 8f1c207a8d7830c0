"""Decoding methods on WritingPrompts (table ``tab:appendix-decoding``): top-p, KL-guided temperature, and temperature sweeps.

The paper samples Olmo-1B, fine-tuned with NLL, at t = 1 and scores 2,000 texts by k-NN precision and recall. `table` holds its rows
with the numbers it prints; `sweep` holds temperatures, which the text compares with and this table leaves out. On a model of your own:

    widen sample MODEL --prompts prompts.jsonl --num 1 --methods plain top_p=0.1 top_p=0.5 top_p=0.8 top_p=0.9
    widen sample MODEL --prompts prompts.jsonl --num 1 --methods kl_sigma=1 kl_sigma=3 kl_sigma=5 kl_sigma=10
"""

from __future__ import annotations

from dataclasses import dataclass, field

from widen.run.experiment import Published
from widen.sample.decoding import Decoding, Settings

WHERE = "tab:appendix-decoding"
TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5, 2.0)
NOT_IN_PAPER = {
    "without": "bos: in open-ended text the whole prompt is the evidence; the paper does not say what its second stream saw",
    "sigma": "a half-life in nats: a KL of sigma halves the temperature, as in the code of Chang et al. (2023)",
    "order": "temperature_first; at t = 1 the order of temperature and top-p does not matter",
    "max_tokens": "512",
    "seed": "0",
    "base": "the paper prints NLL at t = 1 as 84.8/8.6 here and as 81.4/8.9 in its main table",
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row: how samples are drawn, and what the paper prints for it (precision and recall as fractions)."""

    name: str
    settings: Settings
    published: Published | None = None
    not_in_paper: dict[str, str] = field(default_factory=lambda: dict(NOT_IN_PAPER))


def method(name: str, spec: str, precision: float | None = None, recall: float | None = None) -> Method:
    """One row of the table or of a sweep."""
    settings = Settings(decoding=Decoding.parse(spec), max_tokens=512, seed=0)
    values = {} if precision is None or recall is None else {"precision": precision, "recall": recall}
    published = Published(where=WHERE, decoding=settings.decoding.spec, values=values) if values else None
    return Method(name=name, settings=settings, published=published)


def table() -> list[Method]:
    """The nine rows of the table: "for all methods we used a temperature of t = 1"."""
    return [
        method("Base sampling, t = 1", "t=1", 0.848, 0.086),
        method("Top-p, p = 0.1", "t=1,top_p=0.1", 0.997, 0.001),
        method("Top-p, p = 0.5", "t=1,top_p=0.5", 0.996, 0.001),
        method("Top-p, p = 0.8", "t=1,top_p=0.8", 0.886, 0.033),
        method("Top-p, p = 0.9", "t=1,top_p=0.9", 0.805, 0.058),
        method("KL, sigma = 1", "t=1,kl_sigma=1,without=bos", 0.757, 0.061),
        method("KL, sigma = 3", "t=1,kl_sigma=3,without=bos", 0.800, 0.068),
        method("KL, sigma = 5", "t=1,kl_sigma=5,without=bos", 0.831, 0.069),
        method("KL, sigma = 10", "t=1,kl_sigma=10,without=bos", 0.844, 0.086),
    ]


def sweep() -> list[Method]:
    """Temperature alone: what every other method is to be compared with, on one frontier."""
    return [method(f"t = {t:g}", f"t={t:g}") for t in TEMPERATURES]
