"""Samples of the page: packed as they were drawn, within a budget, prompt by prompt."""

import base64
import gzip
import json
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import PROMPTS, STRANGE, plain_run

from widen.report import sample_panel as samples
from widen.report.lines import group
from widen.report.run_data import SampleCell
from widen.report.run_data import SampleText as Sample


def opened(section):
    """What the page would see: one list of cells a run."""
    return [json.loads(gzip.decompress(base64.b64decode(blob))) for blob in section.parts[0].blobs.values()]


def test_the_panel_opens_on_a_decoding_of_every_model_that_it_shows():
    def drawn(name, loss, *temperatures):
        cells = [
            SampleCell(label=f"t={t:g}", temperature=t, drawn=1, distinct=1, samples=[Sample("p", "x")])
            for t in temperatures
        ]
        return plain_run(name, loss=loss, cells=cells, folder=name)

    lines = group([drawn("NLL", "nll", 0.56, 0.98), drawn("c-Div", "cdiv:alpha=1.4", 0.4, 0.7)])
    data = samples.samples(lines)[0].parts[0].data
    assert [data["labels"][i] for i in data["chosen_labels"]] == ["t=0.7", "t=0.98"]


def test_packed_samples_come_back_as_they_were(lines):
    (packed,) = samples.samples(list(lines.values()))
    run = opened(packed)[[r["label"] for r in packed.parts[0].data["runs"]].index("NLL, seed 0")]
    texts = {text for _, text, *_ in run[0]}
    assert set(STRANGE) <= texts
    assert set(packed.parts[0].data["prompts"]) == set(PROMPTS)
    assert "480 of 480 samples are kept" in packed.text[1]


def cell(prompts, each, length=20, label="t=1"):
    held = [Sample(f"prompt {i % prompts}", f"{i} " + "w" * length) for i in range(prompts * each)]
    return SampleCell(label=label, temperature=1.0, drawn=len(held), distinct=len(held), samples=held)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(prompts=st.integers(1, 40), each=st.integers(1, 40), keep=st.integers(1, 80))
def test_kept_samples_are_as_many_as_asked_and_go_prompt_by_prompt(prompts, each, keep):
    one = cell(prompts, each)
    order = {f"prompt {i}": i for i in range(prompts)}
    kept = samples.chosen(one, order, keep)
    assert len(kept) == len(set(kept)) == min(keep, prompts * each)
    counts = [sum(s.prompt == p for s in kept) for p in order]
    assert all(b <= a for a, b in pairwise(counts))
    assert max(counts) - min(counts) <= samples.TOGETHER or keep >= prompts * each


def test_at_least_fifty_a_cell_stay_within_any_budget_and_the_rest_is_said():
    rng = np.random.default_rng(0)
    noise = ["".join(map(chr, rng.integers(33, 126, 3000))) for _ in range(90)]
    held = [Sample("p", text) for text in noise]
    cells = [SampleCell(label="t=1", temperature=1.0, drawn=2000, distinct=2000, samples=held)]
    (packed,) = samples.samples(group([plain_run(cells=cells)]), budget=40_000)
    (run,) = opened(packed)
    assert len(run[0]) == samples.FEWEST
    assert sum(map(len, packed.parts[0].blobs.values())) <= 40_000
    assert all(whole == 3000 for *_, whole in run[0])
    assert "50 of 2,000 samples are kept" in packed.text[1]
    assert "are cut, and say so" in packed.text[1]
