"""`widen score --checker FILE.py:check`: precision, pass@k and coverage of answers to any task."""

import json

import pytest

from widen.cli.__main__ import main
from widen.judge import selftest
from widen.report.lines import group
from widen.report.load import load, load_all
from widen.report.run_report import report
from widen.report.warn import without_duplicates
from widen.sample import Decoding, Identity, Prompt, Sample, SamplesWriter, Settings

pytestmark = pytest.mark.sandbox
CHECKER = """
def check(prompt, answer):
    with open("even.txt") as file:
        return answer.strip() in file.read().split() if answer != "?" else 1 / 0
def key(answer):
    return answer.strip()
"""
ANSWERS = {"An even number": ["2", "4", " 4 ", "7"], "Another": ["?", "3", "6", "6"]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(selftest, "ATTACKS", {})
    (tmp_path / "own.py").write_text(CHECKER)
    (tmp_path / "even.txt").write_text("2 4 6 8")
    write_samples(tmp_path / "lm" / "samples" / "t0.7-x.jsonl")
    return tmp_path


def write_samples(path, answers=ANSWERS, **changes):
    prompts = [Prompt(text=text, id=str(n)) for n, text in enumerate(answers)]
    settings = Settings(decoding=Decoding.parse("t=0.7"), **({"max_tokens": 64} | changes))
    identity = Identity(engine="local", name="by hand", model={"weights": "none"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with SamplesWriter(path, settings=settings, identity=identity, prompts=prompts) as writer:
        writer.append(
            Sample(
                prompt=prompt.id,
                index=i,
                text=text,
                finish="length" if text == "3" else "stop",
                num_tokens=7,
                logq=-1.0,
            )
            for prompt in prompts
            for i, text in enumerate(answers[prompt.text])
        )


def call(capsys, place, *arguments):
    words = ["score", "--checker", f"{place / 'own.py'}:check", "--checker-file", str(place / "even.txt")]
    status = main([*words, *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_checker_gives_precision_pass_at_k_and_coverage(capsys, place):
    status, out, err = call(capsys, place, place / "lm")
    assert (status, err) == (0, "")
    assert "1 answers could not be checked and count as wrong; the first: error: ZeroDivisionError" in out
    found = {record.metric: record for record in load(place / "lm").records}
    assert {name: round(found[name].value, 6) for name in ("precision", "pass@1", "pass@4", "coverage")} == {
        "precision": 0.625,
        "pass@1": 0.625,
        "pass@4": 1.0,
        "coverage": 1.5,
    }
    assert found["precision"].low < 0.625 < found["precision"].high
    assert found["precision"].detail["statuses"] == {"right": 5, "wrong": 2, "error": 1}
    kept = (place / "lm" / "verdicts" / "own.jsonl").read_bytes()
    assert call(capsys, place, place / "lm", "--json", place / "s.json", "--ks", 2)[0] == 0
    assert json.loads((place / "s.json").read_text())["coverage"]["value"] == 1.5
    assert (place / "lm" / "verdicts" / "own.jsonl").read_bytes() == kept  # nothing is checked twice


def test_cards_show_which_answers_are_right_and_the_table_how_many_were_cut(capsys, monkeypatch, place):
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = call(capsys, place, place / "lm")
    assert "cut: answers that max-tokens ended" in out
    rows = [[cell.strip() for cell in line.split("│")[1:6]] for line in out.splitlines()]
    assert ["lm", "t=0.7", "2", "4", "1"] in rows, out
    (cell,) = load(place / "lm").samples
    assert [one.note for one in cell.samples] == [
        *("right", "right", "right", "wrong"),
        *("wrong", "wrong, cut at max-tokens", "right", "right"),
    ]
    found = {record.metric: record for record in load(place / "lm").records}
    assert found["precision"].detail["cut"] == 1
    path = place / "lm" / "samples" / "t0.7-x.right.json"
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(ValueError, match=r"t0\.7-x\.right\.json does not match its checksum"):
        load(place / "lm")


def test_samples_that_were_asked_for_in_another_way_or_place_are_rows_and_lines_of_their_own(
    capsys, monkeypatch, place
):
    """One model with and without its chat template, with more tokens, and in another folder of the same name."""
    monkeypatch.setenv("COLUMNS", "160")
    none = {name: ["7"] * 4 for name in ANSWERS}
    write_samples(place / "lm" / "samples" / "t0.7-y.jsonl", none, chat=True, stop=("\n",))
    write_samples(place / "lm" / "samples" / "t0.7-z.jsonl", none, max_tokens=500)
    write_samples(place / "other" / "lm" / "samples" / "t0.7-x.jsonl")
    _, out, _ = call(capsys, place, place)
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in out.splitlines() if line.startswith("│")]
    here = place.name
    assert [name for name, _ in rows if name] == [f"{here}/lm"] * 3 + ["other/lm"]
    assert [how for _, how in rows if how not in ("", "t=0.7")] == [
        "max_tokens=64",
        "max_tokens=64, stop='\\n', chat",
        "max_tokens=500",
        "max_tokens=64",
    ]
    runs, said = without_duplicates(load_all([place]))
    assert said == []
    lines = {line.name: line for line in group(runs)}
    assert {name: [point.precision.value for point in line.points] for name, line in lines.items()} == {
        f"{here}/lm (max_tokens=64)": [pytest.approx(0.625)],
        f"{here}/lm (max_tokens=64, stop='\\n', chat)": [0.0],
        f"{here}/lm (max_tokens=500)": [0.0],
        "other/lm": [pytest.approx(0.625)],
    }
    assert all(len(cell.samples) == 8 for run in runs for cell in run.samples)
    assert [len(run.samples) for run in runs] == [1, 1, 1, 1]


def test_no_right_answer_leaves_the_coverage_an_interval(capsys, place):
    write_samples(place / "none" / "samples" / "t0.7-x.jsonl", {f"Number {i}": ["7"] * 4 for i in range(20)})
    call(capsys, place, place / "none")
    found = {record.metric: record for record in load(place / "none").records}
    assert (found["coverage"].value, found["coverage"].low) == (0, 0)
    assert 0 < found["coverage"].high == pytest.approx(found["precision"].high)


def test_the_page_says_what_precision_is_by_a_checker(capsys, place):
    call(capsys, place, place / "lm")
    said = " ".join(report(load_all([place / "lm"])).sections[0].text)
    assert "Precision is pass@1, the share of answers that are right." in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checker", "own.py"], "legal is FILE.py:FUNCTION"),
        (["--ks", "9"], "from 1 to 4"),
        (["--task", "mbpp"], "give one of them"),
        (["--checker", "nowhere.py:check"], "nowhere.py cannot be read"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_a_sentence(capsys, place, arguments, message):
    status, _, err = call(capsys, place, place / "lm", *arguments)
    assert (status, message in err) == (2, True), err
