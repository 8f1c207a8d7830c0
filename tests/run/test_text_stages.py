"""Stages of experiments on texts: on one machine or on two, stopped and gone on with, and the numbers that come out of known samples."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from text_runs import answer_with, experiment, run

from widen.run import runner, sampling
from widen.run.finetune import FineTune, Source
from widen.run.folder import folder_of
from widen.run.questions import questions_of
from widen.run.sampling import missing, samples_of
from widen.run.score_settings import KnnScore, ProgramScore, SupportScore
from widen.run.scoring.job import ScoreTools
from widen.run.scoring.programs import judge_of, judged, program_in
from widen.run.scoring.support import size_quantiles
from widen_recipes import tiny_texts


@pytest.fixture(scope="module")
def place():
    return tiny_texts.folder()


@pytest.mark.sandbox
def test_samples_are_drawn_on_one_machine_and_scored_on_another_that_has_neither_model_nor_data(place, tmp_path):
    """The folder travels without checkpoints, and what it was made from is gone."""
    data = tmp_path / "data"
    shutil.copytree(place, data)
    one = experiment(data)
    assert run(tmp_path / "there", one, stages=("train", "sample")) == []
    assert not list((tmp_path / "there").glob("*.csv"))
    shutil.copytree(tmp_path / "there", tmp_path / "here", ignore=shutil.ignore_patterns("checkpoint"))
    shutil.rmtree(data)
    rows = run(tmp_path / "here", one, stages=("score",))
    assert [row.decoding for row in rows] == ["t=0.5", "t=1"]
    assert all(row.values["precision"].value == 0 for row in rows)


def test_without_a_sandbox_everything_is_sampled_and_the_message_says_how_to_go_on(place, tmp_path, monkeypatch):
    monkeypatch.setattr("widen.judge.profile.shutil.which", lambda name: None)
    one = experiment(place)
    with pytest.raises(ValueError, match=r"bwrap.* is not installed.* with --stages score there"):
        run(tmp_path, one)
    assert not missing(folder_of(tmp_path, one), one, questions_of(one, tmp_path))


def test_models_whose_samples_are_there_are_not_made_side_by_side(place, tmp_path, monkeypatch):
    one = experiment(place)
    run(tmp_path, one, stages=("sample",))
    monkeypatch.setattr("widen.run.side_by_side._one_model", lambda *a, **k: pytest.fail("it was made again"))
    monkeypatch.setattr("widen.run.side_by_side.fine_tune", lambda *a, **k: pytest.fail("its start was trained"))
    assert run(tmp_path, one, stages=("train", "sample"), jobs=2) == []


def test_what_is_on_disk_is_never_made_again(place, tmp_path, monkeypatch):
    stories = Source(task="writing_prompts", path=str(place / "writing_prompts.jsonl"))
    score = KnnScore(embedder=str(place / "model"), samples=None, k=2)
    one = experiment(place, prompts=stories, num_prompts=None, num_samples=1, score=score)
    rows = run(tmp_path, one)
    monkeypatch.setattr(runner, "sample", lambda *a, **k: pytest.fail("it was made again"))
    monkeypatch.setitem(runner.SCORERS, KnnScore, lambda *a, **k: pytest.fail("it was made again"))
    monkeypatch.setattr("widen.run.questions.read", lambda *a, **k: pytest.fail("the data was read again"))
    assert run(tmp_path, one) == rows


def test_sampling_that_was_stopped_goes_on_and_draws_what_an_undisturbed_one_draws(place, tmp_path):
    one = experiment(place, num_samples=4)

    def stop(what, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", one, stages=("sample",), rows=4, progress=stop)
    folder = folder_of(tmp_path / "stopped", one)
    asked = questions_of(one, tmp_path / "stopped")
    assert missing(folder, one, asked)
    for where in ("stopped", "whole"):
        run(tmp_path / where, one, stages=("sample",), rows=4)
    for setting in one.settings:
        both = [samples_of(folder_of(tmp_path / w, one), setting, one, asked) for w in ("stopped", "whole")]
        assert both[0] == both[1]


def test_a_model_is_opened_once_for_all_that_is_asked_of_it(place, tmp_path, monkeypatch):
    opened = []
    load = sampling.LocalEngine.load
    monkeypatch.setattr(
        sampling.LocalEngine, "load", classmethod(lambda cls, path, **k: opened.append(path) or load(path, **k))
    )
    stories = Source(task="writing_prompts", path=str(place / "writing_prompts.jsonl"))
    both = experiment(place), experiment(place, name="stories", prompts=stories, score=KnnScore())
    run(tmp_path, *both, stages=("sample",))
    assert len(opened) == 1
    assert len(list(folder_of(tmp_path, both[0]).samples("").parent.glob("*.jsonl"))) == 2  # both tasks share each file
    for one in both:
        assert missing(folder_of(tmp_path, one), one, questions_of(one, tmp_path)) == []


@pytest.mark.sandbox
def test_pass_at_k_of_known_programs_is_precision_and_recall(place, tmp_path):
    """Of four samples of each problem, at t = 0.5 two are right, at t = 1 one of the first problem and none of the second; of three
    contest problems, in marks, one of four; of one with assertions, all."""
    one = experiment(place, num_samples=4, score=ProgramScore(ks=(1, 4)))
    first = json.loads((place / "mathqa_python.jsonl").read_text().splitlines()[0])["program"]

    def text(example, index, temperature):
        right = index < 2 if temperature == 0.5 else index == 0 and example.completion == first
        return example.completion if right else "answer = -1.0"

    answer_with(tmp_path, one, text)
    fence = "Here it is:\n```python\n{}\n```\n"
    contests = Source(task="codecontests", path=str(place / "codecontests.jsonl"))
    fenced = ProgramScore(ks=(1, 4), fenced=True)
    contest = replace(one, name="contest", prompts=contests, num_prompts=3, decoding=("t=1",), score=fenced)
    answer_with(tmp_path, contest, lambda e, i, t: fence.format(e.completion if i > 2 else "print(0)"))
    record = {"text": "Add.", "code": "def sum(a, b):\n    return a + b", "test_list": ["assert sum(1, 2) == 3"]}
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(record))
    mbpp = replace(contest, name="mbpp", prompts=Source(task="mbpp", path=str(tmp_path / "mbpp.jsonl")), num_prompts=1)
    answer_with(tmp_path, mbpp, lambda e, i, t: e.completion)
    cold, hot, *others = run(tmp_path, one, contest, mbpp, stages=("score",))
    assert [row.values["pass@1"].value for row in others] == pytest.approx([0.25, 1.0])
    values = {name: mean.value for name, mean in cold.values.items()}
    assert values["precision"] == values["pass@1"] == pytest.approx(0.5)
    assert (values["recall"], values["recall_normalised"], values["pass@4"]) == pytest.approx((0.5, 1.0, 1.0))
    assert hot.values["precision"].value == pytest.approx(0.125)
    assert hot.values["recall"].value == pytest.approx(0.5 - 0.125)
    assert 0 <= hot.values["precision"].low < 0.125 < hot.values["precision"].high <= 1
    (path,) = folder_of(tmp_path, one).scores("x").parent.glob("mathqa_python*t1-*")
    kept = json.loads(path.read_text())["records"][0]
    assert (kept["metric"], kept["decoding"]) == ("precision", "t=1")
    assert sorted(kept["detail"]["counts"].values()) == [[4, 0], [4, 1]]
    assert kept["detail"]["statuses"] == {"failed": 7, "passed": 1}


@pytest.mark.sandbox
def test_a_judge_that_was_stopped_keeps_its_verdicts_and_models_share_them(place, tmp_path):
    one = experiment(place, num_samples=4, decoding=("t=1",))
    other = replace(one, name="other", model="somebody/else")
    for each in (one, other):
        answer_with(tmp_path, each, lambda example, index, t: f"answer = {index}.0")
    seen = []

    def stop(what, done, total):
        seen.append(what)
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, one, other, stages=("score",), progress=stop)
    verdicts = tmp_path / "verdicts" / "mathqa_python.jsonl"
    before = verdicts.read_text().splitlines()
    assert len(before) == 3
    seen.clear()
    rows = run(tmp_path, one, other, stages=("score",), progress=lambda what, done, total: seen.append(what))
    after = verdicts.read_text().splitlines()
    assert after[:3] == before
    assert len(after) == len(set(after)) == 8
    assert len(seen) == 5  # the rest of the first model, nothing of the second
    assert rows[0].values == rows[1].values


@pytest.mark.parametrize(
    ("task", "judge"),
    [
        ("mathqa_python", "mathqa_python"),
        ("codecontests", "stdin_stdout"),
        ("mbpp", "assertions"),
        ("humaneval", "assertions"),
    ],
)
def test_each_task_has_its_judge(place, tmp_path, task, judge):
    if task == "mbpp":
        record = {"text": "Add.", "code": "def sum(a, b):\n    return a + b", "test_list": ["assert sum(1, 2) == 3"]}
        (tmp_path / "mbpp.jsonl").write_text(json.dumps(record))
    where = tmp_path if task == "mbpp" else place
    one = experiment(place, prompts=Source(task=task, path=str(where / f"{task}.jsonl")), num_prompts=1)
    asked = questions_of(one, tmp_path)
    assert judge_of(asked).name == judge
    program = judged(asked[0], "x = 1")
    judge_of(asked).check(program)
    assert program.shadows == (("sum",) if task == "mbpp" else ())


def test_an_answer_without_marks_is_the_program_and_an_open_block_ends_with_the_text():
    assert program_in("print(1)", fenced=True) == "print(1)"
    assert program_in("```py\nprint(1)", fenced=True) == "print(1)"
    assert program_in("```py\nprint(1)\n```", fenced=False).startswith("```")


def test_problems_without_anything_to_judge_by_are_refused(place, tmp_path):
    one = experiment(place, prompts=Source(task="writing_prompts", path=str(place / "writing_prompts.jsonl")))
    with pytest.raises(ValueError, match="an answer, tests or inputs"):
        judge_of(questions_of(one, tmp_path))
    with pytest.raises(ValueError, match="has no answer, tests or inputs"):
        judged(questions_of(one, tmp_path)[0], "x = 1")


def test_texts_that_are_the_references_have_full_precision_and_recall_and_others_do_not(place, tmp_path):
    stories = Source(task="writing_prompts", path=str(place / "writing_prompts.jsonl"))
    score = KnnScore(embedder=str(place / "model"), samples=None, k=2, mauve=True)
    one = experiment(place, prompts=stories, num_prompts=None, num_samples=1, score=score)
    answer_with(tmp_path, one, lambda e, i, t: e.completion if t == 0.5 else "0 0 0 0 0 0 0 0" + e.completion[-2])
    same, other = run(tmp_path, one, stages=("score",))
    assert same.values["precision"].value == same.values["recall"].value == 1.0
    assert other.values["recall"].value < 0.5
    assert other.values["mauve"].value < 0.5 < same.values["mauve"].value
    assert {"density", "coverage"} < same.values.keys()


def test_the_support_of_a_uniform_law_is_its_share_of_the_vocabulary(place, tmp_path):
    from transformers import AutoTokenizer, LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(place / "model")
    with torch.no_grad():
        model.lm_head.weight.zero_()  # every logit is 0
    model.save_pretrained(tmp_path / "uniform")
    AutoTokenizer.from_pretrained(place / "model").save_pretrained(tmp_path / "uniform")
    score = SupportScore(masses=(0.5, 0.9), quantiles=(0.1, 0.9))
    one = experiment(place, model=str(tmp_path / "uniform"), decoding=("t=1",), score=score)
    (row,) = run(tmp_path / "runs", one)
    vocabulary = model.config.vocab_size
    assert row.values["sparsity@0.5"].value == pytest.approx(vocabulary // 2 / vocabulary)
    assert row.values["sparsity@0.9"].value == pytest.approx(-(-9 * vocabulary // 10) / vocabulary)
    wanted = {"mass": 0.5, "quantile": 0.1, "tokens": vocabulary // 2}
    assert size_quantiles(folder_of(tmp_path / "runs", one), one)[0] == wanted
    lines = (tmp_path / "runs" / "m_f.csv").read_text().splitlines()
    assert sum(",0.9,0.1," in line for line in lines) == 1


def test_weights_may_go_once_the_samples_are_there_and_are_not_trained_again(place, tmp_path, monkeypatch):
    start = tiny_texts._small(
        FineTune(model="m", train=Source(task="mathqa_python", path="x.jsonl"), precision="fp32", max_steps=1)
    )
    tuned = replace(start, loss="cdiv:alpha=1.4", after=start)
    both = experiment(place, name="start", model=start), experiment(place, name="tuned", model=tuned)
    begun = []
    run(
        tmp_path,
        *both,
        stages=("train", "sample"),
        drop_checkpoints=True,
        progress=lambda what, done, total: begun.append(what) if what.startswith("train") and done == 0 else None,
    )
    assert len(begun) == 2
    has = [(folder_of(tmp_path, one).checkpoint / "model.safetensors").exists() for one in both]
    assert has == [True, False]  # the second starts from the first
    monkeypatch.setattr("widen.run.runner.fine_tune", lambda *a, **k: pytest.fail("trained again"))
    run(tmp_path, *both, stages=("train", "sample"))


def test_scoring_says_which_samples_are_not_there(place, tmp_path):
    said = []
    with pytest.raises(FileNotFoundError, match="nothing to score in"):
        run(tmp_path, experiment(place), stages=("score",), notice=said.append)
    assert "not all samples are in" in said[0]


@pytest.mark.parametrize(
    ("stages", "message"), [(("trian",), "stages: trian; legal: one or more of train, sample, score"), ((), "none")]
)
def test_unknown_stages_are_refused(place, tmp_path, stages, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, experiment(place), stages=stages)


def test_sampling_an_untrained_model_says_what_to_do(place, tmp_path):
    model = FineTune(model="m", train=Source(task="mathqa_python", path="x.jsonl"))
    with pytest.raises(FileNotFoundError, match="run the stage `train` first"):
        run(tmp_path, experiment(place, model=model), stages=("sample",))


def test_a_path_from_a_variable_that_is_not_set_is_refused_before_anything_starts(place, tmp_path):
    with pytest.raises(ValueError, match="from WIDEN_NOWHERE: set it to a path"):
        run(tmp_path, experiment(place, model="$WIDEN_NOWHERE/model"))
    assert list(tmp_path.iterdir()) == []


def test_bad_records_are_named_and_left_out_only_if_asked(place, tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text('{"question": "1 + 1 ?", "answer": 2}\n{"question": 3}\n')
    one = experiment(place, prompts=Source(task="mathqa_python", path=str(path)))
    with pytest.raises(ValueError, match=r"(?s)1 record .*--skip-bad.*line 2"):
        run(tmp_path / "runs", one, stages=("sample",))
    run(tmp_path / "runs", one, stages=("sample",), skip_bad=True)


def test_fewer_seeds_take_the_first_ones(place, tmp_path):
    several = [experiment(place, seed=seed) for seed in range(3)]
    run(tmp_path, *several, stages=("sample",), seeds=1)
    assert len(list(folder_of(tmp_path, several[0]).samples("").parent.glob("*.jsonl"))) == 2
    chosen = runner.first_seeds("m:f", [*several[1:], replace(several[2], num_samples=3)], 1)
    assert [(one.seed, one.num_samples) for one in chosen] == [
        (1, 2),
        (2, 3),
    ]  # the first of each setting, whatever its number
    with pytest.raises(ValueError, match="no experiments are left"):
        run(tmp_path)


def test_prompts_that_changed_are_not_passed_off_as_those_that_were_asked(place, tmp_path):
    """What is on disk is of the file as it was; a file rewritten with the same records is the same."""
    path = tmp_path / "test.jsonl"
    text = (place / "mathqa_python.jsonl").read_text()
    path.write_text(text)
    one = experiment(place, prompts=Source(task="mathqa_python", path=str(path)))
    path.write_text(text.replace("plus", "times"))
    questions_of(one, tmp_path / "runs")
    path.write_text(text)  # nothing was sampled yet
    assert "plus" in questions_of(one, tmp_path / "runs")[0].example.prompt
    run(tmp_path / "runs", one, stages=("sample",))
    path.write_text(text.replace("{", "{ ", 1))
    run(tmp_path / "runs", one, stages=("sample",))
    path.write_text(text.replace("plus", "and"))
    with pytest.raises(
        ValueError, match=r"test\.jsonl has changed since.*take another --out, or remove .*runs to begin"
    ):
        run(tmp_path / "runs", one, stages=("score",))
    path.write_text("no records\n")
    with pytest.raises(ValueError, match="has changed since"):
        run(tmp_path / "runs", one, stages=("score",))
    next((tmp_path / "runs" / "prompts").glob("*.source.json")).unlink()  # as earlier versions left it
    path.write_text(text)
    run(tmp_path / "runs", one, stages=("sample",))
    path.unlink()
    assert questions_of(one, tmp_path / "runs")


def test_a_model_whose_training_data_changed_has_no_place_in_a_table(place, tmp_path):
    data = tmp_path / "train.jsonl"
    text = (place / "mathqa_python.jsonl").read_text()
    data.write_text(text)
    source = Source(task="mathqa_python", path=str(data))
    model = FineTune(model=str(place / "model"), train=source, precision="fp32", max_length=128, max_steps=1)
    one = experiment(place, model=model)
    run(tmp_path / "runs", one, stages=("train", "sample"))
    data.write_text(text.replace("plus", "and"))
    for stage in ("train", "sample", "score"):
        with pytest.raises(ValueError, match=r"train\.jsonl: its training data changed since"):
            run(tmp_path / "runs", one, stages=(stage,))


def test_no_sandbox_is_opened_until_one_is_needed(tmp_path):
    with ScoreTools(tmp_path) as tools:
        assert tools._open == {}
    assert not Path(tmp_path / "verdicts").exists()
