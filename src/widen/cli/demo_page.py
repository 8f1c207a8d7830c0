"""The page that `widen demo` leaves: one frontier plot, one table, and what to see in them."""

from __future__ import annotations

from collections.abc import Sequence

from widen.report.curves import FrontierPoint, frontier
from widen.report.page import Figure, Page, Section, Table
from widen.run.table import Row, best_recall


def page(rows: Sequence[Row], *, steps: int) -> Page:
    """Frontiers and the best recall at three precisions."""
    points = [
        FrontierPoint(model=row.name, temperature=row.temperature, precision=row.precision, recall=row.recall)
        for row in rows
    ]
    n = rows[0].num_samples
    figure = Figure(
        figure=frontier(
            points,
            title="Precision against recall, t = 0.1 to 5",
            recall_name=f"recall (share of all answers in {n:,} samples)",
        ),
        caption="One line a loss, one dot a temperature, larger dots hotter. Higher and further right is better.",
    )
    wishes = (0.95, 0.9, 0.8)
    best = {wish: best_recall(rows, precision=wish) for wish in wishes}
    table = Table(
        headers=[
            "loss",
            *(f"recall at precision ≥ {wish:g}" for wish in wishes),
            *(f"t for {wish:g}" for wish in wishes),
        ],
        rows=[
            [name]
            + [row.recall if (row := best[wish][name]) else None for wish in wishes]
            + [row.temperature if (row := best[wish][name]) else None for wish in wishes]
            for name in dict.fromkeys(row.name for row in rows)
        ],
        caption="The best temperature for each wish, out of twenty. A dash: no temperature reaches that precision.",
    )
    text = [
        "The task: write a1a2 x b1b2 = c1c2 with c = ab mod 97. A right sequence counts for precision; recall is the share of all 9,801 "
        "right sequences that turn up. In training, a's leading digits 0 to 4 were rare (one in five).",
        "Every line starts from the same NLL model. Heating it (follow the NLL line) covers more at first and then loses both. A loss "
        "that trains for recall starts further right; cooling it buys precision back.",
        f"One seed, {steps} steps of fine-tuning: it shows the mechanism and proves little.",
    ]
    lead = "Raising the temperature is not the way to coverage. Train for recall, then let temperature choose the precision."
    section = Section(title="The trade-off, exactly", text=text, parts=[figure, table])
    return Page(
        title="widen: train for coverage",
        lead=lead,
        sections=[section],
        made_by="made by `widen demo`; every number is exact, none is sampled",
    )
