"""The explorer: a page where the artificial case and the losses move as one drags, computed in the page.

Its formulas are those of :mod:`widen.theory` (``web/theory.js``, ``web/optima.js``); tests hold the two equal to 1e-9 in a browser.
"""

from __future__ import annotations

from .page import Page
from .parts import Panel, Section


def explorer() -> Page:
    """The page; it needs no run."""
    case = Section(
        title="Decoding: the artificial case",
        short="Decoding",
        text=[
            "P is uniform on K of V tokens. At one position the model Q over-represents a share ρ of them, giving them the mass a; "
            "at another it leaks the mass ε to the V − K others. Drag, and see what temperature alone can and cannot do, "
            "and when truncating with min-p before the heat is enough."
        ],
        parts=[Panel(name="artificial", data=None, scripts=["theory.js", "slider.js", "artificial.js"])],
    )
    losses = Section(
        title="Losses: what a token counts, and where that leads",
        short="Losses",
        text=[
            "Every loss is a weight on the log-likelihood of each token, and on one context the weight decides what the model converges to."
        ],
        parts=[Panel(name="losses", data=None, scripts=["theory.js", "slider.js", "optima.js", "losses.js"])],
    )
    return Page(
        title="widen explorer",
        lead="Raising the temperature alone is not the same as covering more. See when it helps, when truncating first is enough, "
        "and what each loss does instead.",
        sections=[case, losses],
        made_by="Made by `widen explore`; everything is computed in this page, and nothing is loaded from outside.",
        tabs=True,
    )
