"""A real process, a real SIGKILL: the resumed run ends with the same bytes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from widen.data.mulmod import MulMod
from widen.models.tiny_llama import LlamaShape
from widen.train import Configuration, Progress, Train, train_models, train_one

ROOT = Path(__file__).parents[2]


def job(folder: Path, pause: float = 0.0) -> None:
    """Train one model alone, then two in one call; `pause` seconds a step give the killer time to aim."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shape = LlamaShape(layers=1, dim=16, heads=2, hidden=16, init_std=0.1)
    made = [
        Configuration(
            data=MulMod(num_samples=100), model=shape, loss=loss, train=Train(steps=30, batch_size=8, ema=0.9), seed=1
        )
        for loss in ("nll:steps=8 then truncr:drop=0.2,window=64", "trunc:drop=0.5,window=30")
    ]

    def wait(_: Progress) -> None:
        time.sleep(pause)

    train_one(made[0], folder=folder / "alone", save_every=2, progress=wait)
    train_models(made, [folder / "a", folder / "b"], save_every=2, log_every=1, progress=wait)
    torch.set_num_threads(threads)


def start(folder: Path, pause: float) -> subprocess.Popen:
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    code = "import sys, pathlib, test_kill; test_kill.job(pathlib.Path(sys.argv[1]), float(sys.argv[2]))"
    return subprocess.Popen([sys.executable, "-c", code, str(folder), str(pause)], env=env)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def kill_when(folder: Path, log: Path, count: int) -> None:
    process = start(folder, 0.01)
    try:
        deadline = time.monotonic() + 60
        while lines(log) < count:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_a_killed_run_ends_with_the_same_bytes(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    kill_when(killed, killed / "alone" / "log.jsonl", 15)  # odd: between two checkpoints
    assert not (killed / "alone" / "checkpoint").exists()
    kill_when(killed, killed / "b" / "log.jsonl", 13)
    assert (killed / "alone" / "checkpoint").exists()
    job(killed)
    job(whole)
    expected, found = contents(whole), contents(killed)
    assert sorted(expected) == sorted(found)
    assert {name for name in expected if expected[name] != found[name]} == set()
    steps = [json.loads(line)["step"] for line in found["alone/log.jsonl"].splitlines()]
    assert steps == list(range(30))
    assert "a/checkpoint/average/model.safetensors" in found


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", range(0, 200, 13))
def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(tmp_path, milliseconds):
    """The moment is not chosen by the log: it falls inside a step, a line or a checkpoint as it comes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(killed, 0.0)
    while not (killed / "alone" / "log.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.001)
    time.sleep(milliseconds / 1000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    job(killed)
    job(whole)
    assert contents(whole) == contents(killed)
