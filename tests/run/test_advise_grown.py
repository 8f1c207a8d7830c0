"""`widen advise` with a judge: growth in the plan, as a candidate, and in the commands."""

import argparse
import json
import shlex
from dataclasses import replace

import pytest
from advising import PROMPTS, TIMING, World

from widen.cli import grow as grow_verb
from widen.run.advise import search as searching
from widen.run.advise.plan import make_plan
from widen.run.advise.request import AdviceRequest
from widen.run.advise.search import Search
from widen.run.grow import Round


def judged_request(tmp_path):
    """A checker finds right answers that the data does not have. Every row is there twice."""
    rows = [{"prompt": f"{n}:", "completion": "x"} for n in range(PROMPTS) for _ in range(2)]
    data, checker = tmp_path / "two of each.jsonl", tmp_path / "own.py"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    checker.write_text("def check(prompt, answer):\n    return True\n")
    wish = "recall at precision >= 0.8"
    return AdviceRequest(model="m", data=str(data), checker=f"{checker}:check", wish=wish, budget=1000.0, lr=0.01)


def growth_of(command):
    """The settings that a printed command asks for."""
    parser = argparse.ArgumentParser()
    grow_verb.add_arguments(parser)
    words = shlex.split(command)
    assert words[:2] == ["widen", "grow"]
    options = parser.parse_args(words[2:])
    return grow_verb.make_growth(options), options.out


def test_repeats_and_growth_are_named_where_they_can_help(tmp_path, monkeypatch):
    """Listed answers are all learnt, so nothing can be grown."""
    world = World(monkeypatch)
    listed = world.advise(tmp_path)
    assert listed.grow == ""
    assert "repeat another row" not in " ".join(listed.reasons)
    slow = replace(TIMING, grow=900.0)
    search = Search(judged_request(tmp_path), tmp_path / "o u t", clock=lambda: world.now, timing=lambda *_: slow)
    advice = search.advise()
    assert any("30 of the 60 training rows repeat another row" in one for one in advice.reasons)
    assert any("no time to look for new right answers" in one for one in advice.reasons)
    made, out = growth_of(advice.grow)
    assert (made.checker, made.start, out) == (search.request.checker, "m", tmp_path / "o u t" / "grown")


@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_new_right_answers_are_recommended_only_if_they_bring_more_and_the_command_finds_them_again(
    tmp_path, monkeypatch, gain
):
    asked, world = [], World(monkeypatch, grown=gain)

    def grown(config, out, **_):
        asked.append((config, out))
        return [Round(round=1, model="round-1/run", new=7, rows=67)]

    monkeypatch.setattr(searching, "grow", grown)
    timing = replace(TIMING, grow=10.0)
    search = Search(judged_request(tmp_path), tmp_path / "out", clock=lambda: world.now, timing=lambda *_: timing)
    advice = search.advise()
    ((config, out),) = asked
    assert (advice.new, search.jobs["grow"]) == (7 if gain else 0, "trained")
    assert config.start == "m"  # as many steps as NLL, from the same model
    assert config.training["max_steps"] == max(steps for loss, steps in world.trained if loss == "nll")
    assert "There was no time" not in " ".join(advice.reasons)
    if gain:
        assert "Keep NLL, train it on 7 new right answers too, decode with" in advice.headline
        assert advice.folder == str(out / "round-1/run")
        assert growth_of(advice.grow) == (config, out)
        assert advice.parts["new answers"].value == pytest.approx(gain, abs=0.01)
    else:
        assert advice.grow == ""


def test_growth_counts_in_the_plan_where_a_judge_exists():
    short, long = (make_plan(replace(TIMING, grow=g), ("nll", "gem"), budget=200.0, longest=500) for g in (50.0, 0.0))
    assert short.steps < long.steps
    assert short.end == pytest.approx(long.end + 50 + short.job("nll", short.steps[-1]))
