"""Experiments on texts as values: JSON and back, what is refused, which names they give to folders, prompts and scores."""

import csv
import json
from dataclasses import dataclass, replace

import pytest

from widen.data import MulMod
from widen.data.tasks import Example
from widen.losses import CDiv, TokenWeight
from widen.metrics.passes import pass_scores
from widen.run.against_nll import gains, matched_temperature
from widen.run.experiment import Experiment, Published, experiment_from, load
from widen.run.finetune import FineTune, Lora, Source
from widen.run.questions import named, prompts_path
from widen.run.score_settings import ExactScore, KnnScore, ProgramScore, SupportScore
from widen.run.scoring.score_files import Measured, records_of, score_name
from widen.run.table import as_text, read_csv, summarise, to_csv
from widen.run.value import to_json
from widen.sample import Decoding
from widen.train.settings import Configuration

SOURCE = Source(task="mathqa_python", path="test.jsonl")
TUNED = FineTune(model="m", train=SOURCE, loss="cdiv:alpha=1.4", after=FineTune(model="m", train=SOURCE))
ONE = Experiment(name="one", model=TUNED, prompts=SOURCE, decoding=("t=1", "t=0.7"))


@pytest.mark.parametrize("model", [TUNED, "gpt2"])
@pytest.mark.parametrize("score", [KnnScore(k=3), ProgramScore(ks=(1,)), SupportScore(masses=(0.9,))])
def test_an_experiment_survives_the_way_through_json(model, score, tmp_path):
    made = replace(ONE, model=model, score=score, published=(Published(where="tab:x", values={"precision": 0.5}),))
    (tmp_path / "config.json").write_text(json.dumps(to_json(made)))
    assert load(tmp_path / "config.json") == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": {"kind": "bleu"}}, "kind is one of exact, knn, programs, checker, slots, support"),
        ({"score": {"kind": "knn", "kk": 3}}, "unknown key 'score.kk'"),
        ({"model": {"model": "m", "train": {}, "losss": "nll"}}, "unknown key 'model.losss'"),
        ({"num_sample": 3}, "did you mean 'num_samples'"),
        ({"prompts": {"task": "mathqa"}}, "did you mean 'mathqa_python'"),
    ],
)
def test_json_that_does_not_fit_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        experiment_from({**to_json(ONE), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoding": ("t=1", "t=1.0")}, "'t=1' and 't=1' draw alike"),
        ({"prompts": None}, "a real model needs prompts"),
        ({"score": ExactScore()}, "the task must be 'answers'"),
        ({"start": "folder"}, "start='folder' is for small models"),
        ({"decoding": ("hot",)}, "no setting is called 'hot'"),
        ({"num_samples": 0}, "at least 1 each"),
        ({"num_prompts": 0}, "at least 1 each"),
        ({"template": "no place"}, "must say where the prompt goes"),
        ({"score": ProgramScore(ks=(1, 10)), "num_samples": 9}, "pass@10 needs as many samples"),
    ],
)
def test_an_experiment_that_cannot_be_run_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ONE, **change)


def test_one_model_is_one_folder_whatever_it_is_asked():
    other = replace(ONE, name="other", prompts=Source(task="writing_prompts"), decoding=("t=2",))
    assert other.folder_name == ONE.folder_name == TUNED.folder_name
    assert replace(ONE, model=replace(TUNED, seed=1)).folder_name != ONE.folder_name
    assert replace(ONE, model="a/b").folder_name != replace(ONE, model="c/b").folder_name


def test_cdiv_is_matched_with_nll_at_alpha_times_its_temperature():
    assert matched_temperature("cdiv:alpha=1.4", 0.5) == 0.7
    assert matched_temperature("nll", 0.5) == matched_temperature("", 0.5) == 0.5
    assert matched_temperature("nll:steps=9 then cdiv:alpha=1.4", 0.5) == 0.7


def test_prompts_are_named_by_their_text_so_that_their_number_and_order_change_nothing():
    examples = [Example("a", "1", {}), Example("b", "2", {}), Example("a", "3", {})]
    ids = [one.id for one in named(examples)]
    assert ids[2] == f"{ids[0]}-2"
    assert [one.id for one in named(examples[1:2])] == ids[1:2]
    assert named(examples, chat=True)[0].id != ids[0]


@pytest.mark.parametrize(
    "change",
    [{"score": KnnScore(k=5)}, {"num_prompts": 7}, {"num_samples": 3}, {"chat": True}, {"template": "Q: {prompt}"}],
)
def test_a_score_has_another_file_when_anything_that_defines_it_changes(change):
    assert score_name(replace(ONE, **change), ONE.settings[0]) != score_name(ONE, ONE.settings[0])
    assert score_name(replace(ONE, name="x"), ONE.settings[0]) == score_name(ONE, ONE.settings[0])


def test_what_is_asked_has_another_file_when_its_source_changes():
    assert prompts_path(replace(ONE, prompts=replace(SOURCE, path="b.jsonl")), "r") != prompts_path(ONE, "r")


def records(decoding, values, **detail):
    """The records of one model at one decoding."""
    about = {"task": "mathqa_python", "model": "m", "loss": "", "seed": 0, "score": {"kind": "programs", "ks": [1, 4]}}
    return records_of(values, decoding=Decoding.parse(decoding), detail={"precision": detail}, **about)


def test_rows_are_means_over_seeds_with_the_papers_number_beside_them(tmp_path):
    def point(value):
        return records("t=1", {"precision": Measured(value, value - 0.1, value + 0.2)})

    published = (Published(where="tab:x", decoding="t=1.0", values={"precision": 0.25}),)
    seeds = [replace(ONE, model=replace(TUNED, seed=s), seed=s, published=published) for s in range(3)]
    rows = summarise("m:f", [*zip(seeds, [point(0.2), point(0.3), point(0.4)], strict=True)])
    (row,) = rows
    assert (row.seeds, row.where, row.matched_temperature) == (3, "tab:x", 1.4)
    mean = row.values["precision"]
    assert (mean.value, mean.low, mean.high) == pytest.approx((0.3, 0.2, 0.5))
    assert mean.half_width == pytest.approx(4.302653 * 0.1 / 3**0.5)  # Student's t with two degrees of freedom
    lines = to_csv([row.cells() for row in rows], command="c", env={}).splitlines()
    header, cells = csv.reader(line for line in lines if not line.startswith("#"))
    assert dict(zip(header, cells, strict=True))["published_precision"] == "0.25"
    assert "0.300 ± 0.248 [0.250]" in as_text(rows)
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (again,) = read_csv(tmp_path / "t.csv")
    assert again.published == {"precision": 0.25}
    assert again.values["precision"].half_width == pytest.approx(mean.half_width, rel=1e-5)


def test_settings_that_differ_in_more_than_their_seed_are_rows_of_their_own():
    point = records("t=1", {"precision": Measured(0.5)})
    other = replace(ONE, model=replace(TUNED, epochs=2))
    assert [row.seeds for row in summarise("m:f", [(ONE, point), (other, point)])] == [1, 1]


def passed(decoding, counts):
    """Records of a model whose problems had so many right of four."""
    scores = pass_scores(4, counts, ks=(1, 4))
    values = {"precision": scores.values[0], "pass@1": scores.values[0], "pass@4": scores.values[1]}
    each = {f"problem {i}": [4, c] for i, c in enumerate(counts)}
    return records(decoding, {k: Measured(v) for k, v in values.items()}, counts=each)


def point_of(found):
    return {record.metric: record for record in found}


def test_a_loss_is_set_against_nll_at_the_matched_temperature_and_nowhere_else():
    nll = replace(ONE, name="NLL", model=replace(TUNED, loss="nll"))
    at = [*passed("t=1", [4, 0]), *passed("t=0.7", [0, 0])]
    rows = summarise("m:f", [(ONE, [*passed("t=0.5", [4, 4]), *passed("t=1", [1, 1])]), (nll, at)])
    cold, hot, *of_nll = rows
    assert cold.versus == "NLL, t=0.7"
    assert cold.gains["pass@1"].value == 1.0
    assert hot.versus == ""  # NLL was not sampled at 1.4
    assert all(not row.gains for row in (hot, *of_nll))
    assert "+1.000 (+1.000 +1.000)" in as_text(rows)
    assert rows[0].cells()["gain_pass@1"] == 1.0
    elsewhere = replace(nll, prompts=Source(task="codecontests", path="test.jsonl"))
    assert not summarise("m:f", [(ONE, passed("t=0.5", [4, 4])), (elsewhere, at)])[0].gains


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 3.0},
        {"lora": Lora()},
        {"lr": 1e-4},
        {"after": None},
        {"train": Source(task="mathqa_python", path="less.jsonl")},
        {"model": "elsewhere/m"},
    ],
)
def test_a_loss_is_set_against_nll_that_was_trained_alike_and_against_no_other(other):
    """Another NLL, first in the table: the one that differs in the loss alone is taken; without that one there is no gain."""
    alike = replace(TUNED, loss="nll", save_steps=7, micro_batch=4, seed=5)
    mine = (ONE, passed("t=0.5", [4, 4]))
    wrong = (replace(ONE, name="other", model=replace(alike, **other)), passed("t=0.7", [0, 0]))
    right = (replace(ONE, name="NLL", model=alike, decoding=("t=0.7",)), passed("t=0.7", [4, 0]))
    assert summarise("m:f", [wrong, mine, right])[1].versus == "NLL, t=0.7"
    assert summarise("m:f", [wrong, mine, right])[1].gains["pass@1"].value == 0.5
    assert not summarise("m:f", [wrong, mine])[1].gains


def test_the_scale_of_the_weights_goes_with_the_loss():
    scaled = replace(ONE, model=replace(TUNED, weight_scale="mean_one"))
    nll = replace(ONE, name="NLL", model=replace(TUNED, loss="nll"))
    points = passed("t=0.5", [4, 4]), passed("t=0.7", [4, 0])
    assert summarise("m:f", [*zip((scaled, nll), points, strict=True)])[0].versus == "NLL, t=0.7"


def test_gains_are_paired_by_problem_and_have_an_interval_over_seeds():
    """One problem is hard for both and one is easy: the difference is the same on each, so that other problems would not move it."""
    mine, theirs = [point_of(passed("t=1", [4, 1]))] * 3, [point_of(passed("t=1", [3, 0]))] * 3
    found = gains(mine, theirs)["pass@1"]
    assert found.value == pytest.approx(0.25)
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))
    assert found.half_width == 0.0
    wide = gains([point_of(passed("t=1", [4, 1])), point_of(passed("t=1", [2, 1]))], theirs)["pass@1"]
    assert wide.half_width > 0.2
    assert gains(mine[:1], theirs[:1])["pass@1"].half_width is None


def test_gains_without_the_same_problems_have_no_interval_over_problems():
    found = gains([point_of(passed("t=1", [4, 1]))], [point_of(passed("t=1", [4, 1, 1]))])
    assert (found["pass@1"].low, found["pass@1"].high) == (None, None)


@dataclass(frozen=True, kw_only=True)
class Power(TokenWeight):
    """A loss of one's own."""

    power: float = 1.0

    def weigh(self, rows):
        return (self.power * rows.logq).exp()


@pytest.mark.parametrize(
    ("loss", "stored"),
    [(CDiv(alpha=0.5), "cdiv:alpha=0.5"), (Power(power=2.0), "test_text_experiment:Power(power=2.0)")],
)
def test_a_loss_object_is_stored_as_its_spec_in_configs_and_folder_names(loss, stored):
    tuned, small = replace(TUNED, loss=loss), Experiment(name="x", model=Configuration(data=MulMod(), loss=loss))
    assert tuned.loss == small.loss == stored
    assert tuned == replace(TUNED, loss=stored)
    for one in (small, replace(ONE, model=tuned)):
        assert experiment_from(json.loads(json.dumps(to_json(one)))) == one
        assert "object_at_0x" not in one.folder_name
        assert one.folder_name == experiment_from(to_json(one)).folder_name


def test_a_loss_object_that_no_config_can_hold_is_refused():
    class Local(TokenWeight):
        pass

    for make in (
        lambda loss: replace(TUNED, loss=loss),
        lambda loss: Experiment(name="x", model=Configuration(loss=loss)),
    ):
        with pytest.raises(ValueError, match="cannot be stored: move the class to the top level of a module"):
            make(Local())
