"""`widen sample --task`, then `widen score --task`: from the problems of a file to pass@k of programs that were really run."""

import json

import pytest

from widen.cli.__main__ import main
from widen.judge import Sandbox, selftest
from widen.metrics.passes import pass_at_k
from widen.report.load import load
from widen.run.questions import task_questions
from widen.run.scoring import job
from widen.sample import Decoding, Identity, Prompt, Sample, SamplesWriter, Settings, read_samples
from widen_recipes import tiny_texts

pytestmark = pytest.mark.sandbox
PROBLEMS = [
    {"text": "Write a function to add.", "test_list": ["assert add(1, 2) == 3"], "code": "def add(a, b): return a + b"},
    {
        "text": "Write a function to double.",
        "test_list": ["assert twice(4) == 8"],
        "code": "def twice(a): return 2 * a",
    },
    {"text": "Write a function to negate.", "test_list": ["assert minus(4) == -4"], "code": "def minus(a): return -a"},
]
RIGHT = [problem["code"] for problem in PROBLEMS]
WRONG, BROKEN = "def add(a, b): return a - b", "def ("
DRAWN = [[RIGHT[0], WRONG, RIGHT[0], RIGHT[0]], [RIGHT[1], BROKEN, BROKEN, BROKEN], [WRONG] * 4]
"""Four programs of each: 3, 1 and 0 are right."""


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def write_samples(path, programs, names=None):
    asked = task_questions("mbpp", str(path.parents[3] / "problems.jsonl"))
    prompts = [Prompt(text=one.example.prompt, id=(names or {}).get(n, one.id)) for n, one in enumerate(asked)]
    settings = Settings(decoding=Decoding.parse("t=0.7"), max_tokens=64, seed=0)
    identity = Identity(engine="local", name="by hand", model={"weights": "none"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with SamplesWriter(path, settings=settings, identity=identity, prompts=prompts) as writer:
        writer.append(
            Sample(prompt=prompt.id, index=i, text=text, finish="stop", num_tokens=7, logq=-1.0)
            for prompt, own in zip(prompts, programs, strict=False)
            for i, text in enumerate(own)
        )


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Problems, and a run with four programs of each. Sandboxes open without their self-test."""
    monkeypatch.setattr(selftest, "ATTACKS", {})
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(p) + "\n" for p in PROBLEMS))
    write_samples(tmp_path / "runs" / "lm" / "samples" / "t0.7-x.jsonl", DRAWN)
    return tmp_path


def test_programs_of_a_run_are_judged_once_and_their_scores_are_on_its_page(capsys, place):
    run = place / "runs" / "lm"
    status, out, err = call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", run, "--ks", 1, 2, 4)
    assert (status, err) == (0, "")
    assert "pass@4" in out
    (path,) = (run / "scores").iterdir()
    found = {r["metric"]: r for r in json.loads(path.read_text())["records"]}
    judged = found["precision"]["detail"]
    assert sorted(judged["counts"].values()) == [[4, 0], [4, 1], [4, 3]]
    assert judged["statuses"]["passed"] == 4
    assert sum(judged["statuses"].values()) == 12
    assert judged["cut"] == 0
    (cell,) = load(run).samples
    assert [one.note == "right" for one in cell.samples] == [text in RIGHT for own in DRAWN for text in own]
    for k in (1, 2, 4):
        expected = sum(pass_at_k(4, c, k) for c in (3, 1, 0)) / 3
        assert found[f"pass@{k}"]["value"] == pytest.approx(expected)
    assert found["precision"]["value"] == pytest.approx(1 / 3)
    assert call(capsys, "report", place / "runs", "--no-figures")[0] == 0
    assert "mbpp, programs" in (place / "runs" / "report.html").read_text()
    verdicts = run / "verdicts" / "mbpp.jsonl"
    before = verdicts.read_bytes()
    assert len(before.splitlines()) == 5  # two, two and one program that differ
    assert call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", place / "runs")[0] == 0
    assert verdicts.read_bytes() == before  # what was judged is not run again


@pytest.mark.parametrize(("flags", "limits"), [([], (10.0, 10)), (["--wall-seconds", 59.5], (59.5, 60))])
def test_a_longer_time_limit_also_holds_for_programs_that_compute(capsys, place, monkeypatch, flags, limits):
    opened = []
    monkeypatch.setattr(job, "Sandbox", lambda **about: opened.append(about["limits"]) or Sandbox(**about))
    run = place / "runs" / "lm"
    assert call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", run, *flags)[0] == 0
    assert [(one.wall_seconds, one.cpu_seconds) for one in opened] == [limits]
    (path,) = (run / "scores").iterdir()
    score = json.loads(path.read_text())["records"][0]["detail"]["score"]
    assert (score["wall_seconds"], score["cpu_seconds"]) == limits


def test_ks_are_those_that_every_problem_has_samples_for(capsys, place):
    file = place / "runs" / "lm" / "samples" / "t0.7-x.jsonl"
    status, _, _ = call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", file, "--json", place / "own.json")
    assert status == 0
    assert json.loads((place / "own.json").read_text())["ks"] == [1, 4]
    status, _, err = call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", file, "--ks", 10)
    assert status == 2
    assert "--ks 10: from 1 to 4, the fewest samples of a problem" in err


def test_one_sample_a_problem_says_nothing_of_recall(capsys, place):
    write_samples(place / "runs" / "one" / "samples" / "t0.7-x.jsonl", [own[:1] for own in DRAWN])
    assert call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", place / "runs" / "one")[0] == 0
    (path,) = (place / "runs" / "one" / "scores").iterdir()
    assert {r["metric"] for r in json.loads(path.read_text())["records"]} == {"precision", "pass@1"}
    assert call(capsys, "report", place / "runs" / "one", "--no-figures")[0] == 0


def test_problems_without_samples_are_said_and_names_of_ones_own_are_found_by_their_text(capsys, place):
    write_samples(place / "runs" / "two" / "samples" / "t0.7-x.jsonl", DRAWN[:2], names={0: "mine", 1: "yours"})
    status, out, _ = call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", place / "runs" / "two")
    assert status == 0
    assert "samples of 2 of the 3 problems" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "mbpp", "others.jsonl", "runs/lm"], "is of none of the 1 problems"),
        (["--task", "alpaca", "stories.jsonl", "runs/lm"], "none of the 1 problems"),
        (["--task", "mbpp", "problems.jsonl"], "DATA and samples"),
        (["--task", "nope", "problems.jsonl", "runs/lm"], "no task is called 'nope'"),
        (["--task", "mbpp", "problems.jsonl", "runs/lm", "--ks", "0"], "--ks 0: from 1 to 4"),
        (["--task", "mbpp", "problems.jsonl", "runs/lm", "--wall-seconds", "0"], "above 0"),
        (["problems.jsonl", "runs/lm", "--fenced"], "--fenced is for programs"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_a_sentence(capsys, place, monkeypatch, arguments, message):
    monkeypatch.chdir(place)
    (place / "others.jsonl").write_text(json.dumps(PROBLEMS[0] | {"text": "Another."}) + "\n")
    (place / "stories.jsonl").write_text(json.dumps({"instruction": "Say a.", "input": "", "output": "a"}) + "\n")
    status, _, err = call(capsys, "score", *arguments)
    assert status == 2
    assert message in err


def test_a_model_is_asked_the_problems_as_the_task_writes_them(capsys, place):
    model = tiny_texts.folder() / "model"
    arguments = ("--task", "mbpp", "--prompts", place / "problems.jsonl", "--limit", 2, "--num", 2, "--max-tokens", 4)
    assert call(capsys, "sample", model, *arguments, "--out", place / "drawn", "--device", "cpu")[0] == 0
    (file,) = place.glob("drawn/*/samples/*.jsonl")
    found = read_samples(file)
    assert [prompt.text for prompt in found.prompts.values()] == [
        one.example.prompt for one in task_questions("mbpp", str(place / "problems.jsonl"), limit=2)
    ]
    status, out, _ = call(capsys, "score", "--task", "mbpp", place / "problems.jsonl", file)
    assert status == 0
    assert "pass@1" in out


def test_task_without_prompts_is_refused(capsys):
    status, _, err = call(capsys, "sample", "x", "--task", "mbpp")
    assert status == 2
    assert "--task mbpp needs --prompts FILE" in err
