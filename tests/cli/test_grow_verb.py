"""`widen grow`: flags to settings, the table, and sentences for mistakes. The rounds are tested in tests/run."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from widen.cli import grow as verb
from widen.cli.__main__ import main

sys.path.append(str(Path(__file__).parent.parent / "run"))
from growing import Counts, install, save


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path)
    install(monkeypatch, Counts())
    return tmp_path


def call(capsys, *more):
    status = main(["grow", "base", "--prompts", "train.jsonl", "--num", "12", "--out", "out", "--device", "cpu", *more])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_verb_prints_a_line_a_round_a_table_and_the_model(capsys, place):
    status, out, err = call(capsys, "--checker", "own.py:check", "--held-out", "test.jsonl")
    assert (status, err) == (0, "")
    entries = json.loads((place / "out" / "grow.json").read_text())["rounds"]
    for one in entries[1:]:
        assert f"round {one['round']}: {one['new']} new right answers" in out
        assert f"\n {one['round']} " in out
    assert "round new rows several precision distinct" in out  # no word is broken in a narrow terminal
    assert "distinct right answers per prompt; held out pass@1" in out
    assert "coverage" not in out  # elsewhere that is a share of the right answers; this is a number
    assert "pass@12" in out
    assert f"model: out/{entries[-1]['model']}" in out
    assert (place / "out" / entries[-1]["model"] / "scores" / "grow.json").is_file()


def test_no_word_of_the_table_is_broken_in_a_narrow_terminal_by_many_samples(capsys, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call(capsys, "--checker", "own.py:check", "--held-out", "test.jsonl", "--held-out-num", "1000")
    assert " round new rows several precision distinct   pass@1 pass@1000 distinct" in out


def test_to_find_only_names_the_rows_to_train_on(capsys, place):
    _, out, _ = call(capsys, "--checker", "own.py:check", "--find-only", "--rounds", "1")
    assert "rows to train on: out/round-1/train.jsonl\n" in out
    assert "model:" not in out
    assert [path.name for path in (place / "out" / "round-1").iterdir() if path.is_dir()] == ["samples"]


def test_to_find_only_says_so_if_nothing_new_was_found(capsys, place):
    status, out, _ = call(capsys, "--checker", "own.py:check", "--find-only", "--num", "1")
    assert (status, "rows to train on: none, as nothing new was found\n" in out) == (0, True)


@pytest.mark.parametrize(("flags", "named"), [("--lr 1e-4 --epochs 2", "epochs, lr"), ("--from last", "--from")])
def test_to_find_only_refuses_settings_of_the_training(capsys, place, flags, named):
    status, _, err = call(capsys, "--checker", "own.py:check", "--find-only", *flags.split())
    assert (status, err) == (2, f"widen grow: --find-only trains nothing: leave out {named}\n")
    assert not (place / "out").exists()


def test_flags_become_settings():
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    words = "m --prompts p.jsonl --task answers --data d.jsonl --data-task mathqa_python --num 8 --weights uniform"
    training = "--from last --epochs 2 --batch-size 12 --set lora.rank=4"
    made = verb.make_growth(parser.parse_args(f"{words} {training}".split()))
    assert (made.prompts.task, made.data.task) == ("answers", "mathqa_python")
    assert (made.weights, made.start, made.held_out_num, made.rounds) == ("uniform", "last", 8, 2)
    tuning = made.fine_tuning("rows.jsonl", start="m")
    assert (tuning.epochs, tuning.batch_size, tuning.micro_batch, tuning.lora.rank) == (2.0, 12, 6, 4)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ((), "--checker FILE.py:FUNCTION judges any answer"),
        (("--checker", "own.py"), "legal is FILE.py:FUNCTION"),
        (("--checker", "own.py:check", "--decoding", "hot=2"), "no setting is called 'hot'"),
        (("--checker", "own.py:check", "--set", "epoch=2"), "unknown key 'epoch'; did you mean 'epochs'?"),
        (("--checker", "own.py:check", "--rounds", "0"), "rounds=0: must be at least 1"),
        (("--task", "answers"), "'answers'"),
        (("--checker", "own.py:check", "--held-out", "test.jsonl", "--held-out-num", "0"), "held_out_num=0: must be"),
        (("--checker", "own.py:check", "--dtype", "float99"), "dtype='float99': must be one of auto, float32"),
        (("--checker", "own.py:check", "--device", "tpu"), "device='tpu': must be cuda or cpu"),
        (("--checker", "own.py:check", "--data", "test.jsonl"), "data='test.jsonl': no row has a completion to learn"),
        (("--checker", "own.py:check", "--out", "own.py/out"), "own.py/out: this folder cannot be made or written to"),
    ],
)
def test_mistakes_are_named_before_anything_is_drawn(capsys, place, more, sentence):
    status, _, err = call(capsys, *more)
    assert status == 2
    assert sentence in err
    assert not list(place.glob("out/round-*"))
