"""`widen train` under FSDP on a CUDA device, in processes of its own: the model that one process trains, also after a real SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_pretrained import save_model, save_sums
from transformers import AutoConfig

from widen.run.finetune import FineTune, Lora, Source
from widen.run.finetuning import fine_tune, folder_of
from widen.run.value import to_json

pytestmark = pytest.mark.gpu

ENV = os.environ | {"PYTHONPATH": f"{Path(__file__).parents[2] / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "29631")
ACCELERATE = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", "--num_machines", "1"),
    *(
        "--use_fsdp",
        "--fsdp_version",
        "2",
        "--fsdp_auto_wrap_policy",
        "TRANSFORMER_BASED_WRAP",
        "--main_process_port",
        "29632",
    ),
    *("--fsdp_cpu_ram_efficient_loading", "true", "--mixed_precision", "no", "--dynamo_backend", "no"),
)
LOSS = "truncr:drop=0.2,window=12"


@pytest.fixture
def config(tmp_path):
    sums = Source(task="mathqa_python", path=save_sums(tmp_path / "sums.jsonl"))
    return FineTune(
        model=save_model(tmp_path / "tiny-model"), train=sums, evaluate=replace(sums, limit=5), loss=LOSS, precision="fp32",
        lr=1e-3, warmup_steps=0, batch_size=4, micro_batch=2, max_length=80, epochs=4, save_steps=2,
    )  # fmt: skip


def start(config, root, launcher):
    file = root.parent / "config.json"
    file.write_text(json.dumps(to_json(config)))
    command = [*launcher, "-m", "widen.cli", "train", str(file), "--device", "cuda", "--out", str(root)]
    return subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def started_by(pid):
    """The processes below one; a launcher gives its own a session each, so that no signal to a group reaches them."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(other for child in found for other in started_by(child))]


def finish(process):
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, (out + err)[-5000:]


def log_of(folder):
    return [json.loads(line) for line in folder.log.read_text().splitlines()]


def assert_same_training(spread, alone, rel, weights_rel=None):
    found, expected = log_of(spread), log_of(alone)
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    for key in ("loss", "nll", "eval_nll", "zero_share"):
        values = [line[key] for line in expected if key in line]
        assert [line[key] for line in found if key in line] == pytest.approx(values, rel=rel)
    weights, others = (load_file(folder.checkpoint / "model.safetensors") for folder in (spread, alone))
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert (tensor - others[name]).norm() < (weights_rel or rel) * others[name].norm(), name
    assert AutoConfig.from_pretrained(spread.checkpoint).architectures == ["LlamaForCausalLM"]
    assert not (spread.path / "resume").exists()


def test_a_model_spread_by_torchrun_is_the_one_that_a_process_trains_alone(config, tmp_path):
    config = replace(config, after=replace(config, loss="nll", epochs=1))
    spread = replace(config, fsdp=True, after=replace(config.after, fsdp=True))
    finish(start(spread, tmp_path / "spread", TORCHRUN))
    fine_tune(config, tmp_path / "alone", device="cuda")
    for one in (config.after, config):
        assert_same_training(folder_of(tmp_path / "spread", one), folder_of(tmp_path / "alone", one), 1e-4)


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_a_spread_run_that_is_killed_goes_on_from_its_newest_whole_checkpoint(config, launcher, tmp_path):
    config = replace(config, epochs=15, save_steps=5)
    spread = replace(config, fsdp=launcher is TORCHRUN)
    folder = folder_of(tmp_path / "killed", config)
    process, deadline = start(spread, tmp_path / "killed", launcher), time.monotonic() + 150
    while not folder.log.exists() or folder.log.read_bytes().count(b"\n") < 9:
        assert process.poll() is None, process.stderr.read()[-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.001)
    for pid in (process.pid, *started_by(process.pid)):  # the launcher first, or it would say that its process has died
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not folder.checkpoint.exists()
    assert list((folder.path / "resume").glob("checkpoint-*/whole.json"))
    finish(start(spread, tmp_path / "killed", launcher))
    fine_tune(config, tmp_path / "alone", device="cuda")
    assert_same_training(folder, folder_of(tmp_path / "alone", config), 1e-4)


def test_a_spread_adapter_in_bfloat16_is_written_and_merged(config, tmp_path):
    config = replace(config, lora=Lora(rank=4), precision="bf16", packing=True, loss="cdiv:alpha=1.4")
    finish(start(replace(config, fsdp=True), tmp_path / "spread", TORCHRUN))
    fine_tune(config, tmp_path / "alone", device="cuda")
    spread, alone = (folder_of(tmp_path / name, config) for name in ("spread", "alone"))
    assert (spread.path / "adapter" / "adapter_model.safetensors").exists()
    # Adam divides by the gradient's own size: where that is rounding, so is the step.
    assert_same_training(spread, alone, 2e-2, weights_rel=0.1)
