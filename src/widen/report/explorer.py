"""The explorer: a page with sliders for the artificial case and the losses, computed in the page.

Its formulas are those of :mod:`widen.theory` (``web/theory.js``, ``web/optima.js``); tests hold the two equal to 1e-9 in a browser.
"""

from __future__ import annotations

from .page import Page
from .parts import Panel, Section


def explorer() -> Page:
    """The page; it needs no run."""
    case = Section(
        title="Decoding: temperature and min-p on a small model",
        short="Decoding",
        text=[
            "A small model with two faults: K of V tokens are right, and at one position the model prefers some of them to the others. "
            "At a second position it gives some probability to wrong tokens. Move the sliders to see what temperature can do, "
            "and when removing unlikely tokens first (min-p) is enough."
        ],
        parts=[Panel(name="artificial", data=None, scripts=["theory.js", "slider.js", "artificial.js"])],
    )
    losses = Section(
        title="Losses: how much each token counts, and what training ends at",
        short="Losses",
        text=[
            "Every loss multiplies the log-likelihood of each token by a weight. The weight decides which distribution training ends at."
        ],
        parts=[Panel(name="losses", data=None, scripts=["theory.js", "slider.js", "optima.js", "losses.js"])],
    )
    return Page(
        title="widen explorer",
        lead="A higher temperature gives more varied answers, but often not more right ones. See when heat helps, when it is enough to "
        "remove unlikely tokens first, and what each loss does instead.",
        sections=[case, losses],
        made_by="Made by `widen explore`; the page computes everything itself and loads nothing.",
        tabs=True,
    )
