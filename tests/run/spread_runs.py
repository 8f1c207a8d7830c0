"""What the tests of FSDP share: a fine-tuning in processes of its own, killed or not, and one process to compare it with."""

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_pretrained import tiny_training
from transformers import AutoConfig

from widen.run.value import to_json

ENV = os.environ | {
    "PYTHONPATH": f"{Path(__file__).parents[2] / 'src'}:{os.environ.get('PYTHONPATH', '')}",
    "OMP_NUM_THREADS": "1",
}


def small_config(folder):
    one = tiny_training(folder, loss="truncr:drop=0.2,window=12", micro_batch=2, epochs=4, save_steps=2)
    return replace(one, evaluate=replace(one.train, limit=5))


def start(config, root, launcher, device):
    """`widen train` by a launcher, whose last word is the module or script to start."""
    file = root.parent / "config.json"
    file.write_text(json.dumps(to_json(config)))
    command = [*launcher, "train", str(file), "--device", device, "--out", str(root)]
    env = ENV | {"NOTE_WEIGHTS": str(root.parent)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, (out + err)[-5000:]


def kill_at(process, folder, lines):
    """Kill a run, launcher and all, once its log has so many lines and there is a checkpoint to go on from."""
    deadline = time.monotonic() + 150
    while not (folder.log.exists() and folder.log.read_bytes().count(b"\n") >= lines and _whole(folder)):
        assert process.poll() is None, process.stderr.read()[-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    for pid in (process.pid, *_started_by(process.pid)):  # the launcher first, or it would end in its own words
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not folder.checkpoint.exists()
    assert _whole(folder)


def _whole(folder):
    return list((folder.path / "resume").glob("checkpoint-*/whole.json"))


def _started_by(pid):
    """The processes below one; a launcher gives its own a session each, so that no signal to a group reaches them."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(other for child in found for other in _started_by(child))]


def assert_same_training(spread, alone, rel, weights_rel=None):
    found, expected = ([json.loads(line) for line in one.log.read_text().splitlines()] for one in (spread, alone))
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for key in ("loss", "nll", "eval_nll", "weight_zero_share"):
        values = [line[key] for line in expected if key in line]
        assert [line[key] for line in found if key in line] == pytest.approx(values, rel=rel)
    weights, others = (load_file(folder.checkpoint / "model.safetensors") for folder in (spread, alone))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert (tensor - others[name]).norm() < (weights_rel or rel) * others[name].norm(), name
    assert AutoConfig.from_pretrained(spread.checkpoint).architectures == ["LlamaForCausalLM"]
    assert not (spread.path / "resume").exists()
