"""WritingPrompts: table ``tab:pr-wp``, figure ``fig:WPPRCurves``, a column of ``tab:pr-wp-mathqa``, and ``tab:appendix-decoding``.

    widen run writing_prompts:table --stages train,sample --device cuda --out runs
    widen run writing_prompts:table --stages score --device cuda --out runs
    widen run writing_prompts:writing_prompts --out runs; widen figures --results runs       the figure, from its CSV

Olmo-1B unless said otherwise, trained as in `paper_texts`. Recipes share models: the figure samples those of the table.
"""

from __future__ import annotations

from widen.run.experiment import Experiment, Published
from widen.run.finetune import Source

from . import decoding as methods
from .paper_texts import LLAMA_3B, OLMO_1B, SEEDS, printed, stories, temperatures, tuned
from .tiny_texts import shrink

TRAIN = Source(task="writing_prompts", split="train")
TEMPERATURES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8)
"""Twelve over the figure's "t in [0.1, 1.8]"; which ones, the paper does not say."""

LOSSES = {
    "NLL": "nll",
    "Trunc 0.25": "trunc:drop=0.25",
    "TruncR 0.25": "truncr:drop=0.25",
    "GOLD": "gold",
    "c-Div 1.4": "cdiv:alpha=1.4,cap=1e4",
    "TaiLr 1e-5": "tailr:gamma=1e-5",
    "lambda-PR 0.1, 1e-5": "lambda_pr:lam=0.1,gamma=1e-5",
}
PRINTED = {
    "NLL": (0.814, 0.089, 0.104),
    "Trunc 0.25": (0.855, 0.089, 0.074),
    "TruncR 0.25": (0.855, 0.093, 0.073),
    "GOLD": (0.993, 0.002, 0.005),
    "c-Div 1.4": (0.542, 0.119, 0.068),
    "TaiLr 1e-5": (0.839, 0.093, 0.087),
    "lambda-PR 0.1, 1e-5": (0.813, 0.126, 0.096),
}
"""Precision, recall and MAUVE of table ``tab:pr-wp``."""
CLAIM = Published(
    where="fig:WPPRCurves",
    claim="Trunc, GOLD and TaiLr tend to favor Precision over Recall; our proposed losses improve Recall while maintaining "
    "comparable Precision when adjusting the temperature",
)


def table() -> list[Experiment]:
    """Table ``tab:pr-wp``: seven losses at t = 1."""
    return [
        stories(
            name,
            tuned(OLMO_1B, TRAIN, loss, seed=seed),
            published=(printed("tab:pr-wp", *PRINTED[name][:2], mauve=PRINTED[name][2]),),
        )
        for name, loss in LOSSES.items()
        for seed in SEEDS
    ]


def writing_prompts() -> list[Experiment]:
    """Figure ``fig:WPPRCurves``: the same models over temperature; NLL also at 1.4 t, where it has the population optimum of c-Div 1.4."""
    matched = dict.fromkeys(temperatures(TEMPERATURES) + temperatures(TEMPERATURES, times=1.4))
    return [
        stories(
            name,
            tuned(OLMO_1B, TRAIN, loss, seed=seed),
            decoding=tuple(matched) if loss == "nll" else temperatures(TEMPERATURES),
            published=(CLAIM,),
            choices={"temperatures": "twelve between .1 and 1.8; the paper shows points without saying which"},
        )
        for name, loss in LOSSES.items()
        for seed in SEEDS
    ]


def llama3b() -> list[Experiment]:
    """Column Llama3.2-3B of table ``tab:pr-wp-mathqa``."""
    rows = {
        "NLL": ("nll", 0.774, 0.081),
        "c-Div 1.3": ("cdiv:alpha=1.3,cap=1e4", 0.725, 0.175),
        "lambda-PR 0.9, 1e-5": ("lambda_pr:lam=0.9,gamma=1e-5", 0.599, 0.190),
    }
    return [
        stories(
            name, tuned(LLAMA_3B, TRAIN, loss, seed=seed), published=(printed("tab:pr-wp-mathqa", precision, recall),)
        )
        for name, (loss, precision, recall) in rows.items()
        for seed in SEEDS
    ]


def decoding() -> list[Experiment]:
    """Table ``tab:appendix-decoding``: the NLL model under the methods of `widen_recipes.decoding`."""
    rows = methods.table()
    published = tuple(row.published for row in rows if row.published is not None)
    return [
        stories(
            "NLL",
            tuned(OLMO_1B, TRAIN, "nll", seed=seed),
            decoding=tuple(row.settings.decoding.spec for row in rows),
            published=published,
            choices=methods.NOT_IN_PAPER,
        )
        for seed in SEEDS
    ]


def tiny(recipe: list[Experiment]) -> list[Experiment]:
    """The same shape in seconds on a CPU: a random model, six prompts, one seed, NLL and one loss of each family."""
    kept = {"NLL", "TruncR 0.25", "c-Div 1.4", "c-Div 1.3", "lambda-PR 0.1, 1e-5"}
    return [shrink(one) for one in recipe if one.seed == 0 and one.name in kept]
