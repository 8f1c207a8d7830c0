"""A section of your own in the report: a function from runs to a `Section`. Inside widen it is one line in report/run_report.py."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from widen.report.load import load
from widen.report.parts import Section, Table
from widen.report.run_data import RunData
from widen.report.run_report import report


def slowest_steps(runs: Sequence[RunData]) -> Section:
    """The steps with the largest gradients, from each run's log."""
    rows = [(run.name, line["step"], line["grad_norm"]) for run in runs for line in run.log]
    rows.sort(key=lambda row: -row[2])
    table = Table(headers=["run", "step", "gradient norm"], rows=rows[:5], caption="The five largest gradients.")
    return Section(title="Largest gradients", text=["Where training was least steady."], parts=[table])


run = Path("my_run")
run.mkdir()
(run / "config.json").write_text(
    json.dumps({"schema": 1, "experiment": {"name": "NLL", "model": {"loss": "nll", "seed": 0}}})
)
log = [
    {"step": step, "loss": 2.0 - step / 10, "nll": 2.0 - step / 10, "grad_norm": 1 / (1 + step)} for step in range(9)
]
(run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))

runs = [load(run)]
page = report(runs)
page = replace(page, sections=[*page.sections, slowest_steps(runs)])
written = page.write(Path("report.html"))
assert "Largest gradients" in written.read_text()
print(f"{len(page.sections)} sections on {written}")
