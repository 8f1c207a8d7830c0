"""Colours, dashes and symbols of lines, and the plotly layout: the same in light and dark, and for colour-blind readers.

The colours are the palette of Okabe and Ito (2008), with grey instead of black so that it shows on a dark page.
"""

from __future__ import annotations

from typing import Any

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B8A800")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")


def line_style(index: int) -> tuple[str, str, str]:
    """Colour, dash and symbol of the index-th line; the first 32 differ in colour and dash, and in colour and symbol.

    >>> line_style(0)
    ('#0072B2', 'solid', 'circle')
    """
    n = len(PALETTE)
    return PALETTE[index % n], DASHES[index // n % len(DASHES)], SYMBOLS[(index + index // n) % len(SYMBOLS)]


def look_json(index: int) -> dict[str, str]:
    """The style of the index-th line for a panel's script."""
    return dict(zip(("color", "dash", "symbol"), line_style(index), strict=True))


def layout(title: str, x: str, y: str) -> dict[str, Any]:
    """The part of a plotly layout that `web/page.js` does not set."""
    return {"title": {"text": title}, "xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
