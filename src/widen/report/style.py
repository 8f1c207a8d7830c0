"""One look for every picture: colours that colour-blind people tell apart, and the same in light and dark.

The eight colours are Okabe and Ito's palette (2008); black gives way to grey so that it shows on a dark page.
"""

from __future__ import annotations

from typing import Any

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B8A800")
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")


def line_style(index: int) -> tuple[str, str, str]:
    """Colour, dash and symbol of the index-th line; no two of the first 32 agree in colour and dash, nor in colour and symbol.

    >>> line_style(0)
    ('#0072B2', 'solid', 'circle')
    """
    n = len(PALETTE)
    return PALETTE[index % n], DASHES[index // n % len(DASHES)], SYMBOLS[(index + index // n) % len(SYMBOLS)]


def layout(title: str, x: str, y: str, **more: Any) -> dict[str, Any]:
    """Plotly layout shared by all figures: transparent, so that the page's light or dark ground shows through."""
    axis = {"zeroline": False, "gridcolor": "rgba(128,128,128,.25)", "linecolor": "rgba(128,128,128,.6)"}
    return {
        "title": {"text": title, "font": {"size": 17}},
        "xaxis": {"title": {"text": x}, **axis},
        "yaxis": {"title": {"text": y}, **axis},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 14, "color": "#7a7a7a"},
        "legend": {"orientation": "h", "y": -0.22, "x": 0},
        "margin": {"l": 60, "r": 20, "t": 50, "b": 60},
        "hovermode": "closest",
        **more,
    }
