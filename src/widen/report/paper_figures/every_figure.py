"""Every figure of the paper: its label, the paper's claim, how it is drawn, and which results it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import result_figures, theory_figures
from .look import FORMATS, caption, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One figure: the name of its files, the paper's label and claim, and what we add or correct.

    ``draw`` makes it; if it names a ``recipe``, from the rows that ``read`` finds in a folder of results.
    """

    name: str
    label: str
    claim: str
    draw: Callable[..., Figure]
    ours: str = ""
    recipe: str = ""
    read: Callable[[str | Path, str], list[Any]] = result_figures.read

    @property
    def caption(self) -> str:
        """The text under the figure."""
        return f"{self.label}. The paper: “{self.claim}”" + (f" {self.ours}" if self.ours else "")

    def figure(self, folder: str | Path | None) -> Figure | None:
        """The figure, or None if its results are missing."""
        if not self.recipe:
            return self.draw()
        rows = [] if folder is None else self.read(folder, self.recipe)
        return self.draw(rows) if rows else None


INTERVALS = "Bars: 95 % intervals over seeds, or over problems for a single seed."
FIGURES = (
    Entry(
        name="PR_examples",
        label="fig:PR_examples",
        claim="Examples of PR-Curves. Q1 has a higher Precision than Q2 but a lower Recall.",
        ours="Marked: λ = 0.1, 1, 10. The laws are ours: forty right atoms; Q1 falls off steeply over them, Q2 hardly, but "
        "has 30 % elsewhere.",
        draw=theory_figures.pr_examples,
    ),
    Entry(
        name="examplePQ",
        label="fig:examplePQ",
        claim="Example P and Q for V = 100, K = 20, a/ρ = 1.45 and ε = 0.15. ρ is the proportion of tokens underrepresented "
        "at the level b/ρ.",
        ours="Corrected: ρ is the over-represented share, at level a/ρ. The paper does not give ρ here; ½ is assumed.",
        draw=theory_figures.example_pq,
    ),
    Entry(
        name="methods",
        label="fig:methods",
        claim="Illustration of trade-offs targeted by each method over the model's PR curve (black).",
        ours="The bands show where c-Div weights λ more (vermilion) or less (blue) than NLL: by α λ^(1−α).",
        draw=theory_figures.methods,
    ),
    Entry(
        name="prcode",
        label="fig:prcode",
        claim="Effect of tuning t between 0.2 (smaller dots) and 2 (larger dots) on P&R for Llama3.1 models on the CodeContests dataset.",
        ours=f"Precision is pass@1, recall pass@100 − pass@1. {INTERVALS}",
        recipe="codecontests",
        draw=result_figures.frontiers,
    ),
    Entry(
        name="prmulmod",
        label="fig:prmulmod",
        claim="Effect of the temperature on P&R for integer multiplication, at different levels of underrepresentation b. "
        "Recall increases with the temperature, then drops.",
        ours=INTERVALS,
        recipe="temperature",
        draw=result_figures.frontiers_by_b,
    ),
    Entry(
        name="tsallis",
        label="fig:tsallis",
        claim="P&R for t in [0.1, 5] for models trained with c-Div for different α. The PR-Curves for high α dominate the "
        "curves for lower α.",
        ours="In our runs of five seeds they did not with plain Adam, and did up to α = 1.75 with gradients shortened to norm 1. "
        f"Small marks are cold, large ones hot. {INTERVALS}",
        recipe="tsallis",
        draw=result_figures.frontiers,
    ),
    Entry(
        name="WPPRCurves",
        label="fig:WPPRCurves",
        claim="P&R trade-off for t in [0.1, 1.8] on WritingPrompts. Trunc, GOLD and TaiLr tend to favor Precision over Recall; "
        "our proposed losses improve Recall while maintaining comparable Precision when adjusting the temperature.",
        ours=INTERVALS,
        recipe="writing_prompts",
        draw=result_figures.frontiers_by_family,
    ),
    Entry(
        name="mulmod_losses",
        label="fig:mulmod_losses",
        claim="P&R trade-off at t = 1 on integer multiplication. Trunc, GOLD and TaiLr improve Precision; our proposed losses "
        "improve Recall.",
        ours=f"Within a family the marks grow with its parameter. {INTERVALS}",
        recipe="losses",
        draw=result_figures.losses_at_one,
    ),
    Entry(
        name="PRcurve1",
        label="app:fig:PRcurve1",
        claim="PR-Curve for different temperatures t with V = 100, K = 50, a/ρ = 1.45, ε = 0.15 and ρ = 0.5. t = 1 is dashed.",
        ours="t₀ = 2.497: up to it the stretch of full recall grows, beyond it it shrinks.",
        draw=partial(theory_figures.three_temperatures, theory_figures.PR_CURVE_1),
    ),
    Entry(
        name="PRcurve2",
        label="app:fig:PRcurve2",
        claim="PR-Curve for different temperatures t with V = 100, K = 10, a/ρ = 1.05, ε = 0.05 and ρ = 0.5.",
        ours="t₀ = 0.761: already t = 1 is too hot.",
        draw=partial(theory_figures.three_temperatures, theory_figures.PR_CURVE_2),
    ),
    Entry(
        name="ineq",
        label="fig:ineq",
        claim="Even for small values of V/K, when b is low and ρ is high, ε₀ remains relatively large, often above 0.1.",
        ours="Corrected: ε₀ falls with lower b and with higher ρ (V/K = 2, b = .05, ρ = .9: .0046). Below ε₀, recall peaks at a "
        "finite temperature.",
        draw=theory_figures.noise_levels,
    ),
    Entry(
        name="support",
        label="histo",
        claim="Support size of the conditional distribution, estimated using Llama3-8B-Instruct on the CodeContests dataset.",
        ours="Tokens needed for a share p of the next-token mass, over positions.",
        recipe="support_size",
        draw=result_figures.support_sizes,
        read=result_figures.read_support,
    ),
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
