"""The paper's figures as static files: PDF, SVG and PNG in one style. The docstring of the function that draws a figure is its caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import result_figures, theory_figures
from .look import FORMATS, caption, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Entry:
    """One figure: the name of its files, the function that draws it, and the recipe whose results it needs, if any."""

    name: str
    draw: Callable[..., Figure]
    recipe: str = ""
    read: Callable[[str | Path, str], list[Any]] = result_figures.read

    @property
    def caption(self) -> str:
        """The paper's label and claim, and what we add or correct."""
        return " ".join((self.draw.__doc__ or "").split())

    @property
    def label(self) -> str:
        """The paper's label."""
        return self.caption.partition(". ")[0]

    def figure(self, folder: str | Path | None) -> Figure | None:
        """The figure, or None if its results are missing."""
        if not self.recipe:
            return self.draw()
        rows = [] if folder is None else self.read(folder, self.recipe)
        return self.draw(rows) if rows else None


FIGURES = (
    Entry("PR_examples", theory_figures.pr_examples),
    Entry("examplePQ", theory_figures.example_pq),
    Entry("methods", theory_figures.methods),
    Entry("prcode", result_figures.prcode, "codecontests"),
    Entry("prmulmod", result_figures.prmulmod, "temperature"),
    Entry("tsallis", result_figures.tsallis, "tsallis"),
    Entry("WPPRCurves", result_figures.wp_pr_curves, "writing_prompts"),
    Entry("mulmod_losses", result_figures.mulmod_losses, "losses"),
    Entry("PRcurve1", theory_figures.pr_curve_1),
    Entry("PRcurve2", theory_figures.pr_curve_2),
    Entry("ineq", theory_figures.ineq),
    Entry("support", result_figures.support_sizes, "support_size", result_figures.read_support),
)


class Written(NamedTuple):
    """The files of one figure, or why there are none."""

    entry: Entry
    paths: tuple[Path, ...] = ()
    missing: str = ""


def write_figures(
    out: str | Path, *, folder: str | Path | None = None, only: Sequence[str] = (), formats: Sequence[str] = FORMATS
) -> list[Written]:
    """Draw the paper's figures into ``out``.

    Args:
      folder: where the CSV files of results are; None draws the exact figures alone.
      only: names of figures; empty draws all.
      formats: of pdf, svg, png.
    """
    for kind, given, known in (("figure", only, [entry.name for entry in FIGURES]), ("format", formats, FORMATS)):
        if unknown := sorted(set(given) - set(known)):
            raise ValueError(f"no {kind} is called {', '.join(unknown)}; {kind}s: {', '.join(known)}")
    if folder is not None and not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder of results")
    done = []
    with styled():
        for entry in FIGURES:
            if only and entry.name not in only:
                continue
            figure = entry.figure(folder)
            if figure is None:
                why = f"needs the results of recipe `{entry.recipe}`, which are not there yet"
                done.append(Written(entry, missing=why))
            else:
                caption(figure, entry.caption)
                done.append(Written(entry, tuple(save(figure, Path(out) / entry.name, formats))))
    return done
