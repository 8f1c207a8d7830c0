"""`widen run`, `train`, `score` and `demo`: what they leave, what they print, what they refuse."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from widen.cli.__main__ import main
from widen_recipes import demo

TINY = ["--set", "model.data.modulus=7", "--set", "model.data.num_samples=128", "--set", "model.train.batch_size=16"]
TINY += [
    "--set",
    "model.model.layers=1",
    "--set",
    "model.model.dim=8",
    "--set",
    "model.model.heads=2",
    "--set",
    "model.model.hidden=8",
]


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def only_folder(root):
    (folder,) = [path for path in root.iterdir() if (path / "config.json").exists()]
    return folder


def test_train_then_score_fills_a_run_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    status, out, err = call(capsys, "train", "--loss", "gold", "--steps", 4, "--seed", 2, "--out", tmp_path, *TINY)
    assert (status, err) == (0, "")
    folder = only_folder(tmp_path)
    assert f"widen score {folder}" in out.replace("\n", "")
    config = json.loads((folder / "config.json").read_text())["experiment"]
    assert (config["name"], config["model"]["loss"], config["model"]["seed"]) == ("cdiv:alpha=0.5", "cdiv:alpha=0.5", 2)
    status, out, _ = call(capsys, "score", folder, "--temperatures", 0.5, 1, "--num-samples", 100)
    assert status == 0
    assert "N = 100" in out
    (scores,) = (folder / "scores").iterdir()
    records = json.loads(scores.read_text())["records"]
    assert [r["decoding"] for r in records if r["metric"] == "recall"] == ["t=0.5", "t=1"]
    assert {(r["task"], r["loss"], r["seed"]) for r in records} == {("mulmod", "cdiv:alpha=0.5", 2)}
    assert {r["n"] for r in records if r["metric"] == "recall"} == {100}
    heated = "t=2,min_p=0.1,order=temperature_last"
    status, out, _ = call(capsys, "score", folder, "--decodings", "t=1", heated, "--num-samples", 100)
    assert status == 0
    assert "min_p=0.1 then t=2" in out
    assert "separation 0." in " ".join(out.split())  # the line may wrap
    assert "give one of them" in call(capsys, "score", folder, "--decodings", "t=1", "--temperatures", 1)[2]
    assert "did you mean 'min_p'" in call(capsys, "score", folder, "--decodings", "minp=0.1")[2]


def test_train_alone_shows_its_help_and_trains_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, _ = call(capsys, "train")
    assert status == 2
    assert "usage: widen train" in out
    assert list(tmp_path.iterdir()) == []


def test_score_of_a_folder_of_runs_is_one_table_that_names_the_model_in_every_row(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for loss in ("nll", "gold"):
        assert call(capsys, "train", "--loss", loss, "--steps", 1, "--out", tmp_path / "runs", *TINY)[0] == 0
    (tmp_path / "runs" / "prompts").mkdir()
    status, out, _ = call(capsys, "score", tmp_path / "runs", "--temperatures", 1, 2)
    assert status == 0
    rows = [line for line in out.splitlines() if "t=1" in line or "t=2" in line]
    assert [("nll, seed 0" in row, "cdiv:alpha=0.5, seed 0" in row) for row in rows] == [
        (False, True), (False, True), (True, False), (True, False)
    ]  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    _, out, _ = call(capsys, "score", tmp_path / "elsewhere", tmp_path / "runs", "--temperatures", 1)
    assert "left out, no run in it" in out


def test_train_prints_a_config_that_trains_the_same_model(capsys, tmp_path):
    arguments = ["--loss", "truncr:drop=0.1,window=64", "--steps", "3", *TINY]
    _, printed, _ = call(capsys, "train", *arguments, "--print")
    (tmp_path / "config.json").write_text(printed)
    assert call(capsys, "train", tmp_path / "config.json", "--out", tmp_path / "runs")[0] == 0
    assert call(capsys, "train", *arguments, "--out", tmp_path / "runs")[0] == 0
    assert len(list((tmp_path / "runs").glob("truncr*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "cdvi"], "did you mean 'cdiv'"),
        (["--set", "model.train.stepz=3"], "did you mean 'steps'"),
        (["--set", "nonsense"], "write KEY=VALUE"),
        (["--b", "2"], "under_representation=2.0"),
        (["nowhere.json"], "is not there"),
        (
            ["--loss", "nll:steps=5 then gold", "--steps", "5"],
            "the run has 5 steps, so cdiv:alpha=0.5 would never",
        ),
        (["--steps", "5", "--set", "model.train.schedule.warmup_steps=6"], "learning rate would never be reached"),
        (["--start", "nowhere", "--steps", "1"], "no model.safetensors"),
    ],
)
def test_train_refuses_with_a_sentence(capsys, tmp_path, arguments, message):
    status, _, err = call(capsys, "train", *arguments, "--out", tmp_path)
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: [p / "nothing"], "there is no file or folder"),
        (lambda p: [p], "holds no run"),
        (lambda p: [p / "a.txt"], "two text files"),
    ],
)
def test_score_refuses_what_it_cannot_read(capsys, tmp_path, make, message):
    (tmp_path / "a.txt").write_text("a\n")
    status, _, err = call(capsys, "score", *make(tmp_path))
    assert status == 2
    assert message in err


def test_score_of_an_untrained_run_says_what_to_do(capsys, tmp_path):
    from widen.run.experiment import Experiment
    from widen.run.folder import RunFolder
    from widen.run.value import to_json

    RunFolder(tmp_path / "run").claim(to_json(Experiment(name="x")), {})
    status, _, err = call(capsys, "score", tmp_path / "run")
    assert status == 2
    assert "widen train" in err


def test_score_compares_texts_and_writes_json(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    texts = [
        f"the {a} {b} sat on the {c}" for a in ("red", "old", "big") for b in ("cat", "dog") for c in ("mat", "bed")
    ]
    (tmp_path / "reference.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "generated.jsonl").write_text("".join(json.dumps({"story": t}) + "\n" for t in texts[:6]))
    (tmp_path / "reference.jsonl").write_text("".join(json.dumps({"story": t}) + "\n" for t in texts))
    paths = [tmp_path / "reference.jsonl", tmp_path / "generated.jsonl"]
    status, out, _ = call(capsys, "score", *paths, "--field", "story", "--metrics", "distinct", "self_bleu")
    assert status == 0
    assert "self-BLEU" in out
    found = json.loads((tmp_path / "generated.jsonl.scores.json").read_text())
    assert found["n_generated"] == 6


def test_a_loss_of_ones_own_in_the_current_folder_is_taken_on_the_command_line(capsys, tmp_path, monkeypatch):
    """Stored as module:Class(fields), also in the folder's name."""
    place = tmp_path / "mine"
    place.mkdir()
    (place / "my_losses.py").write_text(
        "from dataclasses import dataclass\nfrom widen.losses import Bounded\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Power(Bounded):\n    power: float = 1.0\n\n"
        "    def weigh(self, rows):\n        return self.bounded((self.power * rows.logq).exp())\n"
    )
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    loss = ("--loss", "my_losses:Power(power=0.5)")
    status, _, err = call(capsys, "train", "--steps", "2", "--out", "runs", *TINY, *loss)
    assert status == 0, err
    folder = only_folder(place / "runs")
    assert folder.name.startswith("my_losses_Power_power=0.5_-seed0-")
    assert (
        json.loads((folder / "config.json").read_text())["experiment"]["model"]["loss"] == "my_losses:Power(power=0.5)"
    )


def test_run_lists_every_recipe(capsys):
    _, out, _ = call(capsys, "run", "--list")
    assert {"mulmod:tsallis", "mulmod:losses", "mulmod:temperature", "mulmod:literal"} <= set(out.split())
    assert "Table tab:pr-wp: seven losses at t = 1." in out  # which table it makes


def test_run_refuses_an_unknown_recipe_and_a_wrong_number_of_seeds(capsys, tmp_path):
    assert "did you mean 'mulmod:losses'" in call(capsys, "run", "mulmod:loses", "--out", tmp_path)[2]
    assert "at least 1" in call(capsys, "run", "mulmod:losses", "--seeds", 0, "--out", tmp_path)[2]
    assert call(capsys, "run", "--out", tmp_path)[0] == 2


def test_run_takes_the_named_settings_of_a_recipe_and_names_them_all_if_one_is_wrong(capsys, tmp_path):
    recipe = ("run", "mulmod:tiny:rivals", "--out", tmp_path)
    code, _, error = call(capsys, *recipe, "--only", "GEM 9")
    assert code == 2
    assert "--only GEM 9: mulmod:tiny:rivals has NLL, norm 1, " in error
    code, out, _ = call(capsys, *recipe, "--only", "gem, norm 1")
    assert code == 0
    table = (tmp_path / "mulmod_tiny_rivals.csv").read_text()
    assert "--only 'gem, norm 1'" in table
    assert "gem, norm 1" in out
    assert '"NLL, norm 1"' not in table


@pytest.mark.slow
def test_a_run_killed_midway_ends_with_the_same_bits(tmp_path):
    """Real processes and a real SIGKILL: the checkpoint of the interrupted run equals that of the undisturbed one, byte for byte."""
    arguments = [
        "train",
        "--loss",
        "nll:steps=20 then truncr:drop=0.25,window=64",
        "--steps",
        "160",
        "--save-every",
        "10",
        *TINY,
    ]
    env = dict(os.environ, OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "widen.cli", *arguments, "--out"]
    victim = subprocess.Popen(
        [*command, tmp_path / "killed"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("killed/*/resume/step-*")) and time.monotonic() < deadline and victim.poll() is None:
        time.sleep(0.01)
    assert victim.poll() is None, "it ended before it could be killed: give it more steps"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not list(tmp_path.glob("killed/*/checkpoint"))
    for where in ("killed", "whole"):
        subprocess.run([*command, tmp_path / where], env=env, check=True, stdout=subprocess.DEVNULL)
    first, second = (only_folder(tmp_path / where) for where in ("killed", "whole"))
    assert (first / "checkpoint/model.safetensors").read_bytes() == (
        second / "checkpoint/model.safetensors"
    ).read_bytes()
    assert (first / "log.jsonl").read_bytes() == (second / "log.jsonl").read_bytes()


def test_the_demo_leaves_a_table_and_a_page_and_a_second_run_says_that_all_is_there(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(demo, "STEPS", 2)
    monkeypatch.setattr(demo, "LOSSES", {"NLL": "nll", "TruncR 0.5": "truncr:drop=0.5,window=4096"})
    monkeypatch.setattr(demo, "DECODINGS", ("t=1", "t=2,min_p=0.1,order=temperature_last"))
    status, out, _ = call(capsys, "demo", "--out", tmp_path)
    assert status == 0
    assert "At precision >= 0.9: NLL has recall 0." in out
    assert "from the decoding (min_p=0.1 then t=2, best of 2)" in " ".join(out.split())
    assert "TruncR 0.5" in out
    assert "proves little" in out
    page = (tmp_path / "report.html").read_text()
    assert "one seed, 2 steps" in page
    status, out, _ = call(capsys, "demo", "--out", tmp_path)
    assert status == 0
    assert "trained already" in out
