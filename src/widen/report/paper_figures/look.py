"""The style of static figures (``figures.mplstyle``), and how they are saved: the same input gives the same bytes."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widen.disk.atomic import write_bytes
from widen.run.against_nll import Mean

from ..style import DASHES, SYMBOLS, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONG = 60
"""Letters of a name that a figure shows."""
FORMATS = ("pdf", "svg", "png")
LINES = dict(zip(DASHES, ("-", "--", ":", "-."), strict=True))
MARKS = dict(zip(SYMBOLS, "osD^PX*h", strict=True))


@contextmanager
def styled() -> Iterator[None]:
    """The style, for the length of a block."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("static figures need matplotlib: pip install 'widen[report]'") from error
    with matplotlib.rc_context(fname=Path(__file__).with_name("figures.mplstyle")):
        yield


def panels(count: int = 1, *, width: float = 3.4, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` panels in a row, without any global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(width * count, 4.6), height), layout="constrained")
    return figure, [figure.add_subplot(1, count, i + 1) for i in range(count)]


def look(index: int) -> dict[str, Any]:
    """Colour, dash and mark of the index-th line, the same as on the page."""
    colour, dash, symbol = line_style(index)
    return {"color": colour, "linestyle": LINES[dash], "marker": MARKS[symbol]}


def plain(index: int) -> dict[str, Any]:
    """Colour and dash for lines without marks, where the dash alone must tell neighbours apart."""
    return {"color": line_style(index)[0], "linestyle": list(LINES.values())[index % len(LINES)]}


def unit_square(ax: Axes) -> None:
    """Recall against precision, both from 0 to 1."""
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="recall", ylabel="precision", aspect="equal")


def error_bars(ax: Axes, x: Sequence[Mean], y: Sequence[Mean], **style: Any) -> None:
    """A line of means with error bars."""
    at = [mean.value for mean in x], [mean.value for mean in y]
    ax.errorbar(*at, xerr=_arms(x), yerr=_arms(y), elinewidth=0.6, **style)


def _arms(means: Sequence[Mean]) -> list[list[float]] | None:
    """Lengths of the error bars down and up; they end at 0 and 1."""
    if not any(mean.bar for mean in means):
        return None
    down = [min(mean.bar or 0.0, max(0.0, mean.value)) for mean in means]
    return [down, [min(mean.bar or 0.0, max(0.0, 1 - mean.value)) for mean in means]]


def shown(text: str, *, longest: int = LONG) -> str:
    """A text from outside, safe for matplotlib and cut at ``longest`` letters.

    Matplotlib reads text between dollar signs as a formula, hides labels that begin with an underscore, and cannot write control
    characters or halves of surrogate pairs.

    >>> shown("_a"), shown("")
    (' _a', '(no name)')
    """
    line = " ".join(text.splitlines()) or "(no name)"
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
    line = line if len(line) <= longest else line[: longest - 1] + "…"
    return (" " if line.startswith("_") else "") + line.replace("$", r"\$")


def caption(figure: Figure, text: str) -> None:
    """Wrapped text under the panels; the figure grows by what it needs."""
    width, height = figure.get_size_inches()
    letters = int(width * 15.5)
    lines = [shown(line, longest=letters) for line in textwrap.wrap(text, letters, break_on_hyphens=False)]
    room = 0.16 * len(lines) + 0.12
    figure.set_size_inches(width, height + room)
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, room / (height + room), 1, height / (height + room)))  # type: ignore[call-arg]
    style: dict[str, Any] = {"va": "top", "fontsize": 8, "color": "#44444c", "linespacing": 1.35}
    figure.text(0.012, (room - 0.08) / (height + room), "\n".join(lines), **style)


def save(figure: Figure, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write ``stem.pdf``, ``stem.svg``, ``stem.png``, each in one move."""
    written = []
    for kind in formats:
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
        drawn = io.BytesIO()
        with warnings.catch_warnings():
            # A letter that no font here has is drawn as a box.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(drawn, format=kind, metadata=metadata)
        written.append(write_bytes(stem.with_name(f"{stem.name}.{kind}"), drawn.getvalue()))
    return written
