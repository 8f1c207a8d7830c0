"""The search of `widen advise`: the plan, successive halving within the budget, kills, and the commands that it prints."""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from advising import TIMING, WISH, World, answers_file
from transformers import LlamaConfig, LlamaForCausalLM

from widen.cli import advise as advise_verb
from widen.cli import merge as merge_verb
from widen.disk.json_file import read_json
from widen.report import run_report
from widen.report.page import Page
from widen.run.advise import search as searching
from widen.run.advise.plan import FEWEST_STEPS, _training_seconds, make_plan
from widen.run.advise.request import AdviceRequest
from widen.run.advise.split import split


def test_the_plan_fits_into_the_budget_and_leaves_out_losses_before_it_is_too_short():
    losses = ("nll", "a", "b", "c")
    for budget in (100.0, 250.0, 400.0, 3000.0):
        plan = make_plan(TIMING, losses, budget=budget, longest=10_000)
        assert plan.seconds <= budget
        assert plan.losses[0] == "nll"
        assert plan.steps[0] >= FEWEST_STEPS
    assert make_plan(TIMING, losses, budget=100.0, longest=10_000).rivals == (1,)
    assert make_plan(TIMING, losses, budget=3000.0, longest=10_000).rivals == (3, 2, 1)
    assert make_plan(TIMING, losses, budget=3000.0, longest=64).steps == (16, 32, 64)
    with pytest.raises(ValueError, match="is too short; this model and data need at least"):
        make_plan(TIMING, losses, budget=20.0, longest=100)


def test_the_plan_counts_the_evaluations_and_checkpoints_of_nll(tmp_path):
    slow = replace(TIMING, check=4.0)
    plan = make_plan(slow, ("nll", "a"), budget=1000.0, longest=22)
    request = AdviceRequest(
        model="m", data=answers_file(tmp_path / "a.jsonl"), task="answers", wish=str(WISH), budget=60.0
    )
    made = split("answers", request.data, tmp_path, seed=0, once=True)
    every = request.fine_tune("nll", 22, made).eval_steps
    checks = sum(step % every == 0 or step == 22 for step in range(1, 23))  # as the trainer: the last step, too
    assert plan.job("nll", 22) - plan.job("a", 22) == 4.0 * checks
    assert plan.seconds == make_plan(TIMING, ("nll", "a"), budget=1000.0, longest=22).seconds + 4.0 * checks
    assert make_plan(slow, ("nll", "a"), budget=100.0, longest=22).seconds <= 100.0


def test_a_forward_pass_a_step_and_a_checkpoint_are_measured_and_leave_no_file(tmp_path):
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    model, ids = LlamaForCausalLM(config), torch.ones(2, 3, dtype=torch.long)
    batch = {"input_ids": ids, "labels": ids}
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    (tmp_path / "measured-before" / "a").mkdir(parents=True)  # a call that was killed
    step, forward, save, checkpoint = _training_seconds(model, list(model.parameters()), batch, tmp_path)
    assert min(step, forward, save) > 0
    assert checkpoint > save
    assert list(tmp_path.iterdir()) == []
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_the_average_is_of_nll_and_the_model_as_it_is_and_the_printed_command_makes_it_again(tmp_path, monkeypatch):
    made = []
    world = World(monkeypatch)
    monkeypatch.setattr(searching, "average_models", lambda models, weights, out: made.append((models, weights)))
    found = world.advise(tmp_path)
    (((trained, before), weights),) = made
    assert before == "m"  # a name on the hub
    assert weights == pytest.approx([0.9, 0.1])
    monkeypatch.setattr(searching, "advise_from", lambda *_: replace(found, loss="nll", steps=found.steps, share=0.9))
    advice = world.advise(tmp_path)
    assert len(made) == 1  # the folder is there
    parser = __import__("argparse").ArgumentParser()
    merge_verb.add_arguments(parser)
    options = parser.parse_args(__import__("shlex").split(advice.average)[2:])
    assert ([f"{options.models[0]}/checkpoint", options.models[1]], options.weights) == ([trained, before], [0.9, 0.1])


def test_without_plotly_the_advice_is_whole_and_a_note_says_how_to_get_the_page(tmp_path, monkeypatch, capsys):
    world = World(monkeypatch)
    made_up = partial(searching.Search, clock=lambda: world.now, timing=lambda *_: TIMING)
    monkeypatch.setattr(searching, "Search", made_up)
    monkeypatch.setattr(advise_verb, "plan_lines", lambda search: [])
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setattr(
        run_report, "write_report", lambda *_, **__: Page(title="", lead="", sections=(), made_by="").html()
    )
    parser, out = argparse.ArgumentParser(), tmp_path / "my advice"
    advise_verb.add_arguments(parser)
    asked = ["--model", "m", "--data", answers_file(tmp_path / "all.jsonl"), "--task", "answers", "--budget", "50m"]
    assert advise_verb.main(parser.parse_args([*asked, "--wish", str(WISH), "--out", str(out)])) == 0
    assert (out / "advice.json").is_file()
    said = capsys.readouterr().out
    assert f"advice: {out / 'advice.json'}" in said
    assert (
        f"no page: the page needs plotly and jinja2: pip install 'widen[report]'; then `widen report '{out}'`" in said
    )


def test_the_cards_of_all_trained_models_are_completed(tmp_path, monkeypatch):
    cards = []
    monkeypatch.setattr(searching, "complete_card", lambda folder: cards.append(folder.path))
    advice = World(monkeypatch).advise(tmp_path)
    assert Path(advice.folder) in cards
    assert advice.test_prompts == 18
    assert len(cards) == len(set(cards)) == 1 + 4 + 3 + 2 + 1  # the model as it is, every rung, and the average


def test_nll_is_trained_in_every_rung_and_the_better_half_of_the_others(tmp_path, monkeypatch):
    world = World(monkeypatch)
    advice = world.advise(tmp_path)
    by_steps = {}
    for loss, steps in world.trained:
        by_steps.setdefault(steps, []).append(loss)
    first, second, last = sorted(by_steps)
    assert (second, last) == (2 * first, 4 * first)
    assert all(losses[0] == "nll" for losses in by_steps.values())
    assert [len(by_steps[steps]) for steps in (first, second, last)] == [4, 3, 2]
    assert by_steps[last] == ["nll", "gem"]
    assert json.loads((tmp_path / "out" / "advice.json").read_text())["advice"]["decoding"] == advice.decoding


@pytest.mark.parametrize("slow", [1.0, 1.6, 2.5, 6.0])
def test_slow_jobs_keep_the_budget_and_leave_no_nll_that_is_trained_longer_than_every_loss(tmp_path, monkeypatch, slow):
    world = World(monkeypatch, slow=slow)
    world.advise(tmp_path, budget=700.0)
    assert ("nll", min(steps for _, steps in world.trained)) == world.trained[0]
    assert world.now <= 700.0
    longest = max(steps for _, steps in world.trained)
    assert len([loss for loss, steps in world.trained if steps == longest]) > 1 or len(world.trained) == 1


def test_a_search_that_was_killed_again_and_again_gives_the_same_advice_in_the_end(tmp_path, monkeypatch):
    found = []
    for name, deaths in (("whole", ()), ("killed", (1, 6, 13))):
        (tmp_path / name).mkdir()
        for die_at in deaths:
            with pytest.raises(KeyboardInterrupt):
                World(monkeypatch, die_at=die_at).advise(tmp_path / name)
        advice = World(monkeypatch).advise(tmp_path / name)
        found.append(replace(advice, train="", folder="", use={}))  # these hold paths
    assert found[0] == found[1]


def test_the_state_holds_the_time_of_a_job_that_still_runs(tmp_path, monkeypatch):
    behind = []

    class Watched(World):
        def run(self, name, experiments, root, *, progress, **more):
            super().run(name, experiments, root, **more)
            progress("train", 1, 2)
            behind.append(self.now - read_json(root / "state.json")["spent"])

    Watched(monkeypatch).advise(tmp_path)
    assert len(behind) > 10
    assert max(behind) < searching.SAVE_EVERY


def test_a_folder_with_another_request_is_refused_unless_it_holds_only_a_plan(tmp_path, monkeypatch):
    World(monkeypatch).advise(tmp_path, budget=1000.0, dry=True)
    World(monkeypatch).advise(tmp_path)
    with pytest.raises(ValueError, match=r"another request \(they differ in budget\)"):
        World(monkeypatch).advise(tmp_path, budget=2000.0)


def test_the_command_trains_the_recommended_model(tmp_path, monkeypatch):
    import shlex

    from widen.cli import train

    advice = World(monkeypatch).advise(tmp_path)
    parser = __import__("argparse").ArgumentParser()
    train.add_arguments(parser)
    words = shlex.split(advice.train)
    assert words[:2] == ["widen", "train"]
    options = parser.parse_args(words[2:])
    assert options.out / train.make_config(options).folder_name == Path(advice.folder)
