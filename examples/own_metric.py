"""A metric of your own on a page: a number becomes a `Record`, the run folder keeps it, and the report shows it."""

import json
from pathlib import Path

from widen.report.run_report import write_report
from widen.run.folder import RunFolder
from widen.run.record import Record, write_records
from widen.sample import Decoding

SAMPLES = {"t=0.7": ["a cat sat", "a cat ran", "a cat sat"], "t=1.5": ["a cat sat", "the dog ran", "one bird flew"]}


def first_words(texts: list[str]) -> float:
    """Share of texts that begin with a word of their own: a metric is a function from texts (or arrays) to a number."""
    return len({text.split()[0] for text in texts}) / len(texts)


run = Path("my_run")
run.mkdir()
(run / "config.json").write_text(
    json.dumps({"schema": 1, "experiment": {"name": "my model", "model": {"loss": "nll"}}})
)
records = [
    Record(
        task="stories", model="my model", loss="nll", decoding=Decoding.parse(spec), seed=0,
        metric="first words", value=first_words(texts), n=len(texts),
    )
    for spec, texts in SAMPLES.items()
]  # fmt: skip
write_records(RunFolder(run), "first-words", records)
page = write_report([run], "report.html", figures=False)[0]
assert "first words" in page.read_text()
print(f"{[round(record.value, 2) for record in records]} on {page}")
