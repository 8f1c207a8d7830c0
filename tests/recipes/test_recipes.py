"""Every recipe at tiny size, end to end; and what a recipe must say."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from widen.run import recipe
from widen.run.experiment import Experiment, load, with_changes
from widen.run.scores import read, settings_name
from widen.run.table import best_recall, interval, read_csv, summarise
from widen.run.training import folder_of, is_trained, train_all
from widen.run.value import from_json, to_json
from widen_recipes import demo, mulmod

MULMOD = ["tsallis", "tsallis_stable", "losses", "temperature", "literal"]
RESULTS = Path(mulmod.__file__).parent / "results"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One folder for all: recipes share the models they have in common."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", MULMOD)
def test_every_recipe_runs_at_tiny_size(name, root):
    experiments = recipe.find("widen_recipes", f"mulmod:tiny:{name}")
    rows = recipe.run(f"mulmod:tiny:{name}", experiments, root, command="a test", seeds=1)
    assert {row.name for row in rows} == {experiment.name for experiment in experiments}
    assert all(0 <= row.precision <= 1 and 0 <= row.recall <= 1 for row in rows)
    assert read_csv(root / f"mulmod_tiny_{name}.csv")[0].name == rows[0].name


def test_recipes_share_the_models_they_have_in_common():
    """NLL's seeds, and GOLD as c-Div 1/2, are one model each, whichever recipe asks."""
    tsallis = {e.key for e in mulmod.tsallis()}
    losses = {e.key for e in mulmod.losses()}
    assert len(tsallis & losses) == 8 * 5  # NLL and seven alphas, five seeds each
    gold = Experiment(name="GOLD", model=replace(mulmod.losses()[0].model, loss="gold"))
    half = Experiment(name="half", model=replace(mulmod.losses()[0].model, loss="cdiv:alpha=0.5"))
    assert gold.key == half.key


def test_fewer_seeds_are_the_first_of_each_setting_whatever_their_numbers():
    plain = mulmod.losses()[0]
    seeds = [replace(plain, model=replace(plain.model, seed=seed)) for seed in (7, 5, 9)]
    other = replace(plain, name="other", model=replace(plain.model, loss="gold", seed=9))
    assert recipe._first_seeds([*seeds, other], 2) == [*seeds[:2], other]


def test_a_second_run_trains_and_scores_nothing(root, monkeypatch):
    experiments = mulmod.tiny(mulmod.temperature())[:1]
    recipe.run("x", experiments, root, command="a test")
    monkeypatch.setattr("widen.run.training.train_models", lambda *a, **k: pytest.fail("trained again"))
    monkeypatch.setattr("widen.run.scores.exact_points", lambda *a, **k: pytest.fail("scored again"))
    rows = recipe.run("x", experiments, root, command="a test")
    assert rows[0].seeds == 1


def test_a_run_folder_holds_what_the_architecture_says(root):
    experiment = mulmod.tiny(mulmod.temperature())[0]
    train_all([experiment], root)
    folder = folder_of(root, experiment)
    recipe.run("x", [experiment], root, command="a test")
    assert load(folder.config) == experiment
    assert json.loads((folder.path / "env.json").read_text())["packages"]["torch"]
    lines = folder.log.read_text().splitlines()
    assert {"step", "loss", "nll", "grad_norm"} <= set(json.loads(lines[0]))
    assert is_trained(folder)
    assert folder.scores(settings_name(experiment)).exists()
    assert len(read(folder, experiment)) == len(experiment.score.temperatures)


def test_every_experiment_of_every_recipe_goes_to_json_and_back():
    for experiment in [*mulmod.everything(), *demo.fine_tune()]:
        assert from_json(Experiment, json.loads(json.dumps(to_json(experiment)))) == experiment


def test_every_recipe_names_its_figure_and_its_own_choices():
    for experiment in mulmod.everything():
        assert experiment.not_in_paper
        if "tsallis_stable" not in experiment.name and ", " not in experiment.name:
            assert experiment.published.where


@pytest.mark.parametrize("name", MULMOD)
def test_the_kept_results_are_those_of_the_recipe_with_five_seeds(name):
    """The CSV beside a recipe holds every setting of it at every temperature, five seeds each, with its command."""
    path = RESULTS / f"mulmod_{name}.csv"
    assert path.read_text().startswith(f"# command: widen run mulmod:{name}")
    rows = read_csv(path)
    wanted = {(e.name, str(e.model.loss), t) for e in getattr(mulmod, name)() for t in e.score.temperatures}
    assert {(row.name, row.loss, row.temperature) for row in rows} == wanted
    assert {row.seeds for row in rows} == {5}


def test_the_shipped_checkpoint_is_the_recipes_nll_of_seed_0():
    provenance = json.loads((Path(demo.start()) / "provenance.json").read_text())
    experiment = from_json(Experiment, provenance["experiment"])
    assert experiment.key in {e.key for e in mulmod.temperature()}
    assert (experiment.name, experiment.model.seed) == ("NLL", 0)


def test_an_unknown_recipe_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'mulmod:losses'"):
        recipe.find("widen_recipes", "mulmod:loses")
    with pytest.raises(ValueError, match="no recipe module is called 'multiply'"):
        recipe.find("widen_recipes", "multiply:losses")


def test_intervals_and_best_points_of_a_table():
    assert interval([3.0]) == (3.0, None)
    rows = read_csv(RESULTS / "mulmod_losses.csv")
    best = best_recall(rows, precision=0.9)["NLL"]
    by_hand = max((r for r in rows if r.name == "NLL" and r.precision >= 0.9), key=lambda r: r.recall)
    assert best == by_hand
    assert best_recall(rows, precision=1.1) == dict.fromkeys({r.name for r in rows})


def test_a_table_with_other_columns_is_refused(tmp_path):
    with (tmp_path / "t.csv").open("w") as file:
        csv.writer(file).writerows([["a"], ["1"]])
    with pytest.raises(ValueError, match="columns"):
        read_csv(tmp_path / "t.csv")


def test_flags_change_a_config_and_unknown_ones_are_refused():
    assert with_changes(Experiment(name="x"), {"model.train.optimizer.lr": "0.5"}).model.train.optimizer.lr == 0.5
    with pytest.raises(ValueError, match=r"unknown key .model.train.stepz.; did you mean .steps."):
        with_changes(Experiment(name="x"), {"model.train.stepz": "3"})
    with pytest.raises(ValueError, match="there is no 'modle'"):
        with_changes(Experiment(name="x"), {"modle.seed": "3"})


def test_summarise_counts_seeds_once_each(root):
    experiments = mulmod.tiny(mulmod.temperature())[:2]
    train_all(experiments, root)
    recipe.run("x", experiments, root, command="a test")
    scored = [(e, read(folder_of(root, e), e)) for e in experiments]
    rows = summarise("x", scored)
    assert {row.seeds for row in rows} == {2}
    assert rows[0].precision_half_width is not None
