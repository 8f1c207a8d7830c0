"""The figures where people look at them: TensorBoard, W&B and Trackio through the host, each with its real package, offline."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_runs import FIGURES, arguments, pad, rows, tiny_model

from widen.hosts.transformers import Trainer

pytestmark = pytest.mark.slow


def trained(folder, tracker):
    """Two logged steps of c-Div; the last line of the host's own log."""
    trainer = Trainer(
        model=tiny_model(),
        args=arguments(folder, report_to=[tracker], run_name="a run"),
        train_dataset=rows(),
        data_collator=pad,
        loss="cdiv:alpha=1.4",
    )
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line][-1]


def test_tensorboard_has_every_figure(tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    line = trained(tmp_path / "out", "tensorboard")
    found = accumulator.EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    for name in ("loss", *FIGURES):
        assert found.Scalars(f"train/{name}")[-1].value == pytest.approx(line[name], rel=1e-5)


def test_wandb_has_every_figure(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    line = trained(tmp_path / "out", "wandb")
    import wandb

    summary = dict(wandb.run.summary)
    wandb.finish()
    for name in ("loss", *FIGURES):
        assert summary[f"train/{name}"] == pytest.approx(line[name])
    assert list(tmp_path.glob("wandb/offline-run-*"))


def test_trackio_has_every_figure(tmp_path):
    """In a process of its own: Trackio reads where to write when it is imported."""
    pytest.importorskip("trackio")
    code = "import json, sys, test_trackers; print(json.dumps(test_trackers.trained(sys.argv[1], 'trackio')))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")],
        cwd=Path(__file__).parent,
        env=os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(next(text for text in reversed(done.stdout.splitlines()) if text.startswith('{"')))
    (file,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as base:
        logged = [json.loads(row[0]) for row in base.execute("select metrics from metrics order by step")]
    seen = {name: value for one in logged for name, value in one.items()}
    for name in ("loss", *FIGURES):
        assert seen[f"train/{name}"] == pytest.approx(line[name])
