"""Every recipe at tiny size, end to end; and what a recipe must say."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from widen.run import recipe, runner
from widen.run.experiment import Experiment, experiment_from, load, with_changes
from widen.run.folder import folder_of
from widen.run.record import read_records
from widen.run.scoring.score_files import score_name
from widen.run.table import read_csv, summarise
from widen.run.value import to_json
from widen.sample import Decoding, decoding_grid
from widen_recipes import demo, mulmod

MULMOD = ["tsallis", "tsallis_stable", "losses", "temperature", "literal"]
RESULTS = Path(mulmod.__file__).parent / "results"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One folder for all: recipes share the models they have in common."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def first_seed():
    """The models of the task at seed 0, each once per recipe that has it."""
    return [one for one in mulmod.everything() if one.model.seed == 0]


def run_tiny(experiments, root):
    rows = runner.run("mulmod:tiny:everything", experiments, root, command="a test", seeds=1)
    assert all(0 <= row.precision <= 1 and 0 <= row.recall <= 1 for row in rows)
    assert read_csv(root / "mulmod_tiny_everything.csv")[0].name == rows[0].name
    return {row.name for row in rows}


def test_each_recipe_runs_at_tiny_size(root):
    """In one call: two models of each are trained and scored, and their names are in the table."""
    wanted = {one.name for name in MULMOD for one in (getattr(mulmod, name)()[0], getattr(mulmod, name)()[-1])}
    experiments = recipe.find("widen_recipes", "mulmod:tiny:everything")
    assert run_tiny([one for one in experiments if one.name in wanted], root) == wanted


@pytest.mark.slow
def test_every_model_of_every_recipe_runs_at_tiny_size(tmp_path):
    experiments = recipe.find("widen_recipes", "mulmod:tiny:everything")
    assert run_tiny(experiments, tmp_path) == {one.name for name in MULMOD for one in getattr(mulmod, name)()}


def test_the_joint_recipe_scores_every_loss_under_one_grid_and_leaves_its_best_settings(root):
    experiments = recipe.find("widen_recipes", "mulmod:tiny:joint")
    experiments = [one for one in experiments if one.name in ("NLL, norm 1", "c-Div 2, norm 1")]
    rows = runner.run("mulmod:tiny:joint", experiments, root, command="a test", seeds=2)
    assert {row.seeds for row in rows} == {2}
    assert {row.decoding for row in rows} >= {"t=1", "t=2,min_p=0.1,order=temperature_last", "t=2,min_p=0.1"}
    best = runner.best_settings("mulmod:tiny:joint", experiments, root)
    assert {(row.name, row.tried_alone, row.tried) for row in best} == {(one.name, 3, 5) for one in experiments}
    text = runner.table_path(root, "mulmod:tiny:joint", "best").read_text()
    assert text.startswith("# command: a test")
    assert text.count(",any decoding,5") == len(best) == 2 * 3


def test_the_joint_recipe_gives_every_loss_the_same_77_decodings_and_trains_no_model_of_its_own(first_seed):
    runs = mulmod.joint()
    assert len(runs) == 6 * 5
    assert {run.decoding for run in runs} == {tuple(one.spec for one in decoding_grid())}
    assert {one.key for one in runs if one.model.seed == 0} <= {one.key for one in first_seed}


def test_recipes_share_the_models_they_have_in_common():
    """NLL's seeds, and GOLD as c-Div 1/2, are one model each, whichever recipe asks."""
    tsallis, losses = mulmod.tsallis(), mulmod.losses()
    assert len({e.key for e in tsallis if e.model.seed == 3} & {e.key for e in losses if e.model.seed == 3}) == 8
    gold = Experiment(name="GOLD", model=replace(losses[0].model, loss="gold"))
    half = Experiment(name="half", model=replace(losses[0].model, loss="cdiv:alpha=0.5"))
    assert gold.key == half.key


def test_fewer_seeds_are_the_first_of_each_setting_whatever_their_numbers():
    plain = mulmod.losses()[0]
    seeds = [replace(plain, model=replace(plain.model, seed=seed)) for seed in (7, 5, 9)]
    other = replace(plain, name="other", model=replace(plain.model, loss="gold", seed=9))
    assert runner.first_seeds("x", [*seeds, other], 2) == [*seeds[:2], other]


def test_a_second_run_trains_and_scores_nothing(root, monkeypatch):
    experiments = mulmod.tiny(mulmod.temperature())[:1]
    runner.run("x", experiments, root, command="a test")
    monkeypatch.setattr("widen.run.train_small.train_models", lambda *a, **k: pytest.fail("trained again"))
    monkeypatch.setattr("widen.run.scoring.listed_answers.exact_points", lambda *a, **k: pytest.fail("scored again"))
    rows = runner.run("x", experiments, root, command="a test")
    assert rows[0].seeds == 1


def test_a_run_folder_holds_what_the_architecture_says(root):
    experiment = mulmod.tiny(mulmod.temperature())[0]
    folder = folder_of(root, experiment)
    runner.run("x", [experiment], root, command="a test")
    assert load(folder.config) == experiment
    assert json.loads((folder.path / "env.json").read_text())["packages"]["torch"]
    lines = folder.log.read_text().splitlines()
    assert {"step", "loss", "nll", "grad_norm"} <= set(json.loads(lines[0]))
    assert folder.is_trained
    records = read_records(folder, score_name(experiment))
    assert {r.decoding for r in records} == {None, *map(Decoding.parse, experiment.decoding)}
    assert {r.metric for r in records} >= {"precision", "recall", "auc", "recall@lam=1"}


def test_every_experiment_of_every_recipe_goes_to_json_and_back(first_seed):
    for experiment in [*{one.name: one for one in first_seed}.values(), *demo.fine_tune()]:
        assert experiment_from(json.loads(json.dumps(to_json(experiment)))) == experiment


def test_every_recipe_names_its_figure_and_its_own_choices(first_seed):
    for experiment in first_seed:
        assert experiment.not_in_paper
        if "tsallis_stable" not in experiment.name and ", " not in experiment.name:
            assert experiment.published[0].where


@pytest.mark.parametrize("name", MULMOD)
def test_the_kept_results_are_those_of_the_recipe_with_five_seeds(name):
    """The CSV beside a recipe holds every setting of it at every temperature, five seeds each, with its command."""
    path = RESULTS / f"mulmod_{name}.csv"
    assert path.read_text().startswith(f"# command: widen run mulmod:{name}")
    rows = read_csv(path)
    wanted = {(e.name, e.loss, s.decoding.temperature) for e in getattr(mulmod, name)() for s in e.settings}
    assert {(row.name, row.loss, row.temperature) for row in rows} == wanted
    assert {row.seeds for row in rows} == {5}


def test_the_shipped_checkpoint_is_the_recipes_nll_of_seed_0():
    provenance = json.loads((Path(demo.start()) / "provenance.json").read_text())
    experiment = experiment_from(provenance["experiment"])
    assert experiment.key in {e.key for e in mulmod.temperature() if e.name == "NLL"}
    assert (experiment.name, experiment.model.seed) == ("NLL", 0)


def test_an_unknown_recipe_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'mulmod:losses'"):
        recipe.find("widen_recipes", "mulmod:loses")
    with pytest.raises(ValueError, match="no recipe module is called 'multiply'"):
        recipe.find("widen_recipes", "multiply:losses")


def test_a_table_with_other_columns_is_refused(tmp_path):
    with (tmp_path / "t.csv").open("w") as file:
        csv.writer(file).writerows([["a"], ["1"]])
    with pytest.raises(ValueError, match="columns"):
        read_csv(tmp_path / "t.csv")


def test_flags_change_a_config_and_unknown_ones_are_refused():
    assert with_changes(Experiment(name="x"), {"model.train.optimizer.lr": "0.5"}).model.train.optimizer.lr == 0.5
    with pytest.raises(ValueError, match=r"unknown key .model.train.stepz.; did you mean .steps."):
        with_changes(Experiment(name="x"), {"model.train.stepz": "3"})
    with pytest.raises(ValueError, match="unknown key 'modle'; did you mean 'model'"):
        with_changes(Experiment(name="x"), {"modle.seed": "3"})


def test_summarise_counts_seeds_once_each(root):
    experiments = mulmod.tiny(mulmod.temperature())[:2]
    runner.run("x", experiments, root, command="a test")
    scored = [(e, read_records(folder_of(root, e), score_name(e))) for e in experiments]
    rows = summarise("x", scored)
    assert {row.seeds for row in rows} == {2}
    assert rows[0].values["precision"].half_width is not None


def test_exact_numbers_are_those_of_the_reference_mathematics(root):
    """One likelihood per right answer and temperature, by `widen.theory`'s own pass over the logits."""
    import torch

    from widen.metrics.exact_points import exact_points
    from widen.models.convert import load_pretrained
    from widen.theory import exact_log_likelihood

    experiment = mulmod.tiny(mulmod.temperature())[0]
    runner.run("x", [experiment], root, command="a test")
    task, folder = experiment.model.data, folder_of(root, experiment)
    tokens = task.support()
    with torch.no_grad():
        logits = load_pretrained(folder.checkpoint).double().logits(torch.from_numpy(tokens[:, :-1]))
    temperatures = [setting.decoding.temperature for setting in experiment.settings]
    log_q = exact_log_likelihood(logits.numpy(), tokens[:, 1:], temperatures)
    points = exact_points(task.log_p(), log_q, temperatures=temperatures, num_samples=500)
    records = [r for r in read_records(folder, score_name(experiment)) if r.decoding is not None]
    found = {(r.decoding.temperature, r.metric): r.value for r in records}
    for point in points:
        for metric in ("precision", "recall", "auc"):
            assert found[point.temperature, metric] == pytest.approx(getattr(point, metric), rel=1e-9)
