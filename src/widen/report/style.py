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


def trace(
    name: str, x: Any, y: Any, style: tuple[str, ...], *, width: float = 2.0, hover: str = "", **more: Any
) -> dict[str, Any]:
    """A plotly line in a style of `line_style`, with further fields of the trace."""
    colour, dash, *symbol = style
    look = {"mode": "lines", "line": {"color": colour, "dash": dash, "width": width}}
    if symbol:
        look |= {"mode": "lines+markers", "marker": {"symbol": symbol[0], "color": colour, "size": 7}}
    shown = {"hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"} if hover else {"hoverinfo": "name"}
    return {"name": name, "x": x, "y": y, **look, **shown, **more}


def layout(title: str, x: str, y: str) -> dict[str, Any]:
    """The part of a plotly layout that `web/page.js` does not set."""
    return {"title": {"text": title}, "xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}
