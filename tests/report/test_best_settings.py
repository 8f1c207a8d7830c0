"""The best setting for a target: chosen as `widen.run.best_setting` chooses, with what came from decoding, data and loss."""

import pytest

from widen.report.best_settings import methods, target, verdict
from widen.report.lines import group
from widen.report.run_data import RunData
from widen.run.record import Record
from widen.sample import Decoding

CUT = "min_p=0.1 then t=2"
KIND = "mulmod"


def line_runs(name, loss, *seeds, data=()):
    """One run per seed; a seed is {spec: (precision, recall)}."""
    model = {"loss": loss, "data": dict(data), "model": {}}
    return [
        RunData(
            name=f"{name}-{seed}",
            experiment={"name": name, "model": {**model, "seed": seed}},
            records=[
                Record(
                    task=KIND,
                    model="m",
                    loss=loss,
                    decoding=Decoding.parse(spec),
                    seed=seed,
                    metric=metric,
                    value=value,
                )
                for spec, scores in points.items()
                for metric, value in zip(("precision", "recall"), scores, strict=True)
            ],
        )
        for seed, points in enumerate(seeds)
    ]


def answer(lines, *, least, want="recall", among=None):
    return target(methods(lines, KIND, want=want, among=among), want=want, least=least)


def cells(lines, **target_of):
    return {row[0]: row[1:] for row in answer(lines, **target_of).rows}


NLL = [
    {"t=1": (0.95, 0.5), "t=2": (0.7, 0.7), CUT: (0.93, 0.6)},
    {"t=1": (0.97, 0.52), "t=2": (0.7, 0.7), CUT: (0.94, 0.64)},
]
GOLD = [
    {"t=1": (0.96, 0.66), "t=2": (0.5, 0.7), CUT: (0.95, 0.68)},
    {"t=1": (0.96, 0.66), "t=2": (0.5, 0.7), CUT: (0.95, 0.70)},
]


@pytest.fixture(scope="module")
def lines():
    return group([*line_runs("NLL", "nll", *NLL), *line_runs("GOLD", "gold", *GOLD)])


def test_gains_are_split_between_decoding_and_loss(lines):
    found = cells(lines, least=0.9)
    assert [cell.split("\u00a0")[0] for cell in found["GOLD"]] == [
        CUT,
        "0.950",
        "0.690",
        "+0.110",
        "–",
        "+0.070",
        "3",
        "2",
    ]
    assert [cell.split("\u00a0")[0] for cell in found["NLL"]] == [CUT, "0.935", "0.620", "+0.110", "–", "–", "3", "2"]
    assert "±" in found["GOLD"][5]


def test_nll_on_other_data_is_compared_with_the_first_nll_and_its_losses_with_itself(lines):
    runs = [run for line in lines for run in line.runs]
    once = {"data": {"distinct": True}}
    runs += [*line_runs("each once", "nll", *GOLD, **once), *line_runs("GOLD, once", "gold", *GOLD, **once)]
    found = cells(group(runs), least=0.9)
    assert [cell.split("\u00a0")[0] for cell in found["each once"]][3:6] == ["+0.110", "+0.070", "–"]
    assert [cell.split("\u00a0")[0] for cell in found["GOLD, once"]][3:6] == ["+0.110", "+0.070", "+0.000"]
    said = answer(group([*line_runs("NLL", "nll", *NLL), *line_runs("each once", "nll", *GOLD, **once)]), least=0.9)
    assert "Over NLL at temperature alone (`t=1`" in said.sentences[1]
    assert ", the data +0.070" in said.sentences[1]


def test_with_several_seeds_the_choice_is_held_out():
    lucky = [{"t=1": (0.95, 0.5), "t=0.5": (0.95, 0.9)}, {"t=1": (0.95, 0.5), "t=0.5": (0.95, 0.1)}]
    (line,) = group(line_runs("NLL", "nll", *lucky))
    # On the first seed alone t = 0.5 is best, on the second alone t = 1: each is scored where the other chose.
    assert cells([line], least=0.9)["NLL"][2].startswith("0.300")
    assert "Held-out over 2 seeds" in answer([line], least=0.9).sentences[-1]


def test_with_one_seed_the_page_says_that_the_choice_is_in_sample():
    (line,) = group(line_runs("NLL", "nll", NLL[0]))
    assert cells([line], least=0.9)["NLL"][-1] == "1 (in-sample)"
    assert "in-sample" in answer([line], least=0.9).sentences[-1]


def test_the_most_precision_for_a_recall_is_the_same_search_the_other_way_round(lines):
    found = cells(lines, want="precision", least=0.65)
    assert found["GOLD"][:3] == ["t=1", "0.960\u00a0±\u00a00.000", "0.660\u00a0±\u00a00.000"]


def test_a_target_that_nothing_reaches_and_a_model_that_leads_by_too_little_are_said(lines):
    assert answer(lines, least=0.99).sentences == ["No model reaches precision 0.99 at any measured decoding."]
    noisy = [{"t=1": (0.95, 0.5)}, {"t=1": (0.95, 0.7)}]
    better = [{"t=1": (0.95, 0.52)}, {"t=1": (0.95, 0.72)}]
    two = group([*line_runs("NLL", "nll", *noisy), *line_runs("GOLD", "gold", *better)])
    assert "no clear winner" in " ".join(answer(two, least=0.9).sentences)


def test_a_limited_grid_counts_only_its_own_settings(lines):
    found = cells(lines, least=0.9, among={Decoding.parse("t=1"), Decoding.parse("t=2")})
    assert {row[6] for row in found.values()} == {"2"}


def test_the_verdict_takes_the_highest_target_up_to_90_percent():
    low = [{"t=1": (0.3, 0.5), "t=2": (0.2, 0.6)}]
    assert "precision at least 0.30" in verdict(group(line_runs("NLL", "nll", *low)))[0].text[0]
    assert verdict([])[0].text == [
        "No model has a score with precision and recall, so there is nothing to compare yet."
    ]
