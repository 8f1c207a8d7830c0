"""The rounds of `widen grow`: what they keep, when they stop, and that a kill at any stage repeats nothing."""

import json
from pathlib import Path

import pytest
from growing import HELD_OUT, PROBLEMS, Counts, Stop, install, lines, save

from widen.run.finetune import Source
from widen.run.grow import Growth, grow, reweighed, rounds
from widen.run.grow.training_rows import DataRow, Judgement, rows_to_train
from widen.run.grow.verify import FoundAnswers, RightAnswer

CONFIG = {
    "model": "base",
    "prompts": Source(path="train.jsonl"),
    "held_out": Source(path="test.jsonl"),
    "checker": "own.py:check",
    "num": 12,
    "held_out_num": 5,
    "rounds": 2,
    "weights": "uniform",
}


def run(place, monkeypatch, counts, said=None, **changes):
    place.mkdir(exist_ok=True)
    monkeypatch.chdir(place)
    save(place)
    install(monkeypatch, counts)
    return grow(Growth(**(CONFIG | changes)), "out", say=(said if said is not None else []).append)


def tree(place):
    files = (path for path in Path(place).rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted growth: its rounds, its folder and its counts."""
    place, counts = tmp_path_factory.mktemp("whole"), Counts()
    with pytest.MonkeyPatch.context() as monkeypatch:
        said: list[str] = []
        return run(place, monkeypatch, counts, said), place / "out", counts, said


def test_grown_answers_are_right_new_distinct_and_carry_weight_and_origin(whole):
    found, out, *_ = whole
    data = {(row["prompt"], "+".join(sorted(row["completion"].split("+")))) for row in lines(out / "data.jsonl")}
    seen = set()
    for number in (1, 2):
        for row in lines(out / f"round-{number}" / "grown.jsonl"):
            a, b = (int(part) for part in row["completion"].split("+"))
            assert a + b == int(row["prompt"][:-1])
            assert (row["prompt"], "+".join(sorted(row["completion"].replace(" ", "").split("+")))) not in data | seen
            seen.add((row["prompt"], "+".join(sorted(row["completion"].replace(" ", "").split("+")))))
            origin = row["origin"]
            assert origin["round"] == number
            assert origin["decoding"] == "t=1.5,min_p=0.05,order=temperature_last"
            assert (origin["model"] == "base") == (number == 1)
            assert 0 < origin["q"] <= 1
            assert origin["logq"] == -1.5
            assert origin["found"] >= 1
    assert [one.new for one in found] == [0, *(len(lines(out / f"round-{k}" / "grown.jsonl")) for k in (1, 2))]


def test_a_round_trains_on_the_data_and_everything_grown_with_mean_weight_one_per_prompt(whole):
    found, out, *_ = whole
    rows = lines(out / "round-2" / "train.jsonl")
    assert len(rows) == found[2].rows == len(PROBLEMS) + found[1].new + found[2].new
    for prompt in PROBLEMS:
        own = [row["loss_weights"] for row in rows if row["prompt"] == prompt]
        assert sum(own) / len(own) == pytest.approx(1, abs=1e-5)
    assert Growth(**CONFIG).fine_tuning(str(out / "round-2" / "train.jsonl"), start="base").train.task == "jsonl"


def test_each_round_has_a_sentence_records_and_an_entry_in_grow_json(whole):
    found, out, _, said = whole
    assert [one.split(":")[0].split(";")[0] for one in said if "max_tokens" not in one] == [
        "beginning",
        "round 1",
        "round 2",
    ]
    assert "round 1: 4 of 48 answers were cut off at max_tokens=256" in said
    kept = json.loads((out / "grow.json").read_text())
    assert [one["round"] for one in kept["rounds"]] == [0, 1, 2]
    names = {record.metric for record in found[1].records if not record.score["held_out"]}
    assert names == {"new", "several", "precision", "coverage"}
    held = {record.metric: record for record in found[1].records if record.score["held_out"]}
    assert set(held) == {"precision", "coverage", "pass@1", "pass@5"}
    assert held["pass@5"].n == len(HELD_OUT)
    assert held["precision"].value == held["pass@1"].value
    problems = lines(out / "round-1" / "judged.jsonl")
    assert found[1].value("precision", held_out=False) == pytest.approx(
        sum(one["right"] for one in problems) / (12 * 4)
    )
    distinct = sum(len(one["answers"]) for one in problems)
    assert found[1].value("coverage", held_out=False) == pytest.approx(distinct / 4)


def test_no_answer_is_judged_twice(whole):
    _, out, counts, _ = whole
    keys = [row["key"] for row in lines(out / "verdicts" / "own.jsonl")]
    assert len(keys) == len(set(keys)) == counts["judge"]


KILLS = [
    ("draw", 0),
    ("draw", 5),
    ("judge", 0),
    ("judge", 1),
    ("judge", 4),
    ("train", 0),
    ("train", 1),
    ("write_records", 0),
]
KILLS += [("write_lines", 0), ("write_lines", 1), ("write_lines", 3), ("_keep", 1), ("_keep", 3)]


@pytest.mark.parametrize(("what", "at"), KILLS)
def test_a_growth_that_was_killed_at_any_stage_continues_without_repeating_anything(whole, tmp_path, what, at):
    _, out, once, _ = whole
    counts = Counts(what, at)
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((rounds, "write_lines"), (rounds, "_keep"), (rounds, "write_records")):
            real = getattr(module, name)

            def counted(*args, real=real, name=name, **kwargs):
                counts(name)
                return real(*args, **kwargs)

            patch.setattr(module, name, counted)
        with pytest.raises(Stop):
            run(tmp_path / "killed", patch, counts)
        counts.what = None
        run(tmp_path / "killed", patch, counts)
    done = {key: counts[key] for key in ("draw", "judge", "train")}
    assert done == {key: once[key] for key in done}
    left, right = tree(out), tree(tmp_path / "killed" / "out")
    assert left.keys() == right.keys()
    assert all(left[name] == right[name] for name in left if "verdicts" not in name)  # verdicts come in another order


def test_more_rounds_can_be_asked_for_later_and_finished_ones_are_not_touched(whole, tmp_path, monkeypatch):
    _, out, once, _ = whole
    counts = Counts()
    run(tmp_path / "more", monkeypatch, counts, rounds=1)
    run(tmp_path / "more", monkeypatch, counts, rounds=2)
    assert tree(out).keys() == tree(tmp_path / "more" / "out").keys()
    assert {key: counts[key] for key in ("draw", "train")} == {key: once[key] for key in ("draw", "train")}


def test_growth_stops_when_nothing_new_comes_and_trains_no_model_then(tmp_path, monkeypatch):
    counts, said = Counts(), []
    found = run(tmp_path / "a", monkeypatch, counts, said, rounds=9, num=40, held_out=None)
    assert len(found) < 9
    assert found[-1].new == 0
    assert found[-1].model == ""
    assert counts["train"] == len(found) - 1
    assert said[-1] == f"stopped: round {found[-1].round} found nothing new"
    assert not (tmp_path / "a" / "out" / f"round-{found[-1].round}" / "train.jsonl").exists()


def test_to_find_only_writes_the_rows_and_trains_nothing_so_every_round_samples_the_same_model(tmp_path, monkeypatch):
    counts, seen, real = Counts(), [], rounds.Stages.found
    monkeypatch.setattr(
        rounds.Stages, "found", lambda self, k, model, **more: seen.append(model) or real(self, k, model, **more)
    )
    first, second = run(tmp_path / "a", monkeypatch, counts, find_only=True, held_out=None)
    assert not counts["train"]
    assert (first.model, second.model) == ("", "")
    assert set(seen) == {"base"}
    assert first.new > 0
    assert first.rows == len(lines(tmp_path / "a" / "out" / "round-1" / "train.jsonl")) == len(PROBLEMS) + first.new


@pytest.mark.parametrize(
    ("start", "models"), [("base", ["base", "base"]), ("last", ["base", "out/round-1/model-base"])]
)
def test_training_starts_from_the_base_or_from_the_last_model(tmp_path, monkeypatch, start, models):
    seen = []
    monkeypatch.setattr(Growth, "fine_tuning", note(Growth.fine_tuning, seen))
    run(tmp_path / "a", monkeypatch, Counts(), start=start, held_out=None)
    assert seen == models


def note(real, seen):
    def fine_tuning(self, path, *, start):
        if path.startswith("out"):
            seen.append(start)
        return real(self, path, start=start)

    return fine_tuning


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num": 13}, "begun with another num"),
        ({"weights": "plain"}, "begun with another weights"),
        ({"training": {"lr": 0.1}}, r"begun with another training\.lr: restore it"),
        ({"prompts": Source(path="train.jsonl", limit=4)}, r"begun with another prompts\.limit: restore it"),
        ({"held_out": Source(path="train.jsonl")}, "4 held-out problems are also in --prompts, such as '4='"),
        ({"checker": ""}, "--checker FILE.py:FUNCTION judges any answer"),
    ],
)
def test_other_settings_in_the_same_folder_and_problems_that_cannot_be_judged_are_refused(
    whole, tmp_path, monkeypatch, changes, sentence
):
    counts = Counts()
    run(tmp_path / "a", monkeypatch, counts, rounds=1, held_out=None)
    with pytest.raises(ValueError, match=sentence):
        run(tmp_path / "a", monkeypatch, counts, **({"rounds": 1, "held_out": None} | changes))


def test_before_anything_is_drawn_settings_may_change(whole, tmp_path, monkeypatch):
    """A mistake is mended and the command given again."""
    with pytest.raises(Stop):
        run(tmp_path / "a", monkeypatch, Counts("judge", 0), num=13)
    run(tmp_path / "a", monkeypatch, Counts())
    assert tree(whole[1]).keys() == tree(tmp_path / "a" / "out").keys()


@pytest.mark.parametrize("changes", [{"model": "no"}, {"start": "no"}])
def test_a_model_that_is_not_there_is_found_out_before_anything_is_judged(tmp_path, monkeypatch, changes):
    counts = Counts()
    with pytest.raises(KeyError):
        run(tmp_path / "a", monkeypatch, counts, **changes)
    assert not counts


def test_a_checker_that_fails_on_every_answer_of_the_data_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    counts = Counts()
    monkeypatch.setattr("growing.CHECKER", "def check(prompt, answer):\n    return prompt / answer\nkey = str\n")
    with pytest.raises(
        ValueError, match=r"own\.py: it fails on every answer .* check\('4=', '1\+3'\): error: unsupported"
    ):
        run(tmp_path / "a", monkeypatch, counts)
    assert not counts["draw"]


def test_a_changed_file_is_refused(tmp_path, monkeypatch):
    run(tmp_path / "a", monkeypatch, Counts(), rounds=1, held_out=None)
    monkeypatch.setattr("growing.PROBLEMS", [*PROBLEMS, "3="])
    with pytest.raises(ValueError, match=r"begun with another train\.jsonl"):
        run(tmp_path / "a", monkeypatch, Counts(), rounds=1, held_out=None)


@pytest.mark.parametrize("name", ["train.jsonl", "own.py"])
def test_a_file_that_changes_while_it_grows_is_refused_and_so_is_the_continuation(tmp_path, monkeypatch, name):
    """The rounds before were made with the old file, so grow.json keeps its digest."""
    real = rounds.Stages.train

    def train(self, number, start):
        path = Path(name)
        path.write_text(path.read_text() + "\n")
        return real(self, number, start)

    with monkeypatch.context() as patch:
        patch.setattr(rounds.Stages, "train", train)
        if name == "own.py":
            with pytest.raises(ValueError, match=r"own\.py has changed since the growth began: restore it"):
                run(tmp_path / "a", patch, Counts(), held_out=None)
        else:
            run(tmp_path / "a", patch, Counts(), held_out=None)
    install(monkeypatch, Counts())
    monkeypatch.chdir(tmp_path / "a")
    with pytest.raises(ValueError, match=rf"begun with another {name}: restore it"):
        grow(Growth(**(CONFIG | {"held_out": None, "rounds": 3})), "out")


def test_an_answer_that_the_data_repeats_counts_once_and_one_of_two_rounds_counts_half():
    """Two rows of one answer, an answer that both rounds found, and one of the second round only; all are certain."""
    data = [DataRow("p", "1", None, "1"), DataRow("p", " 1", None, "1")]
    answers = [RightAnswer(key=key, completion=key, found=1, q=1.0) for key in ("2", "3")]
    both, last = (
        FoundAnswers(id="x", prompt="p", drawn=4, right=1, cut=0, answers=tuple(a)) for a in (answers[:1], answers)
    )
    judgements = [Judgement(1, "m", "t=1", [both]), Judgement(2, "m", "t=1", [last])]
    rows, new, several = rows_to_train(data, judgements, weights="uniform", cap=10)
    assert [row["loss_weights"] for row in rows] == pytest.approx([0.8, 0.8, 1.6, 0.8], abs=1e-6)
    assert ([row["completion"] for row in new], several) == (["3"], [True])


def test_two_problems_with_one_prompt_are_draws_of_one_round():
    """Prompts may repeat with other facts. An answer that is right for both was drawn twice as often."""
    answer = RightAnswer(key="2", completion="2", found=1, q=0.1)
    found = [FoundAnswers(id=id, prompt="p", drawn=4, right=1, cut=0, answers=(answer,)) for id in ("x", "x-2")]
    rows, *_ = rows_to_train(
        [DataRow("p", "1", None, "1")], [Judgement(1, "m", "t=1", found)], weights="uniform", cap=10
    )
    given, grown = (row["loss_weights"] for row in rows)
    assert grown / given == pytest.approx(1 / (1 - 0.9**8), abs=1e-4)


def test_other_weights_of_a_finished_growth_give_the_same_rows_without_judging_again(whole, monkeypatch):
    _, out, *_ = whole
    monkeypatch.chdir(out.parent)
    trained = lines(out / "round-2" / "train.jsonl")
    assert reweighed("out", "uniform") == trained
    plain = reweighed("out", "plain")
    assert {row["loss_weights"] for row in plain} == {1.0}
    assert [row | {"loss_weights": 0} for row in plain] == [row | {"loss_weights": 0} for row in trained]
