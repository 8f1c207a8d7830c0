"""`widen train --fsdp` in two processes that share a model: the one that a process trains alone, also after a real SIGKILL.

accelerate shards on GPUs only; fsdp_on_cpu.py makes it do so here, by torch's own FSDP2 on gloo. test_finetune_gpu.py is without that.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from spread_runs import assert_same_training, finish, kill_at, small_config, start
from tiny_pretrained import save_model

from widen.run.finetune import Lora, fine_tune
from widen.run.folder import folder_of

pytestmark = pytest.mark.slow
ACCELERATE = (
    *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--use_fsdp"),
    *("--fsdp_version", "2", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    *("--fsdp_state_dict_type", "SHARDED_STATE_DICT", "--fsdp_cpu_ram_efficient_loading", "true"),
)
SCRIPT = str(Path(__file__).parent / "fsdp_on_cpu.py")


@pytest.fixture
def config(tmp_path):
    return small_config(tmp_path)


@pytest.fixture
def launcher(worker_id):
    port = 29650 + int(worker_id.removeprefix("gw")) if worker_id != "master" else 29650
    return (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port), SCRIPT)


@pytest.mark.parametrize("asked", ["by --fsdp", "of accelerate"])
def test_a_spread_run_that_is_killed_goes_on_to_the_model_that_a_process_trains_alone(
    config, asked, launcher, tmp_path
):
    spread, folder = replace(config, fsdp=asked == "by --fsdp"), folder_of(tmp_path / "killed", config)
    if not spread.fsdp:
        port = launcher[launcher.index("--master-port") + 1]
        launcher = (
            sys.executable,
            "-m",
            "accelerate.commands.launch",
            *ACCELERATE,
            "--main_process_port",
            port,
            SCRIPT,
        )
    kill_at(start(spread, tmp_path / "killed", launcher, "cpu"), folder, 6)
    assert list((folder.path / "resume").glob("checkpoint-*/pytorch_model_fsdp*"))  # sharded, and not by DDP
    assert [float((tmp_path / f"read_by_{rank}").read_text()) > 0 for rank in (0, 1)] == [True, False]
    finish(start(spread, tmp_path / "killed", launcher, "cpu"))
    fine_tune(config, tmp_path / "alone", device="cpu")
    assert_same_training(folder, folder_of(tmp_path / "alone", config), 1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "pure_bf16"])
def test_what_comes_before_is_spread_too_in_every_precision(config, launcher, precision, tmp_path):
    """Of a model whose head is its embedding."""
    tied = save_model(tmp_path / "tied", tie_word_embeddings=True)
    config = replace(config, model=tied, precision=precision, loss="cdiv:alpha=1.4")
    config = replace(config, after=replace(config, loss="nll", epochs=1))
    spread = replace(config, fsdp=True, after=replace(config.after, fsdp=True))
    finish(start(spread, tmp_path / "spread", launcher, "cpu"))
    fine_tune(config, tmp_path / "alone", device="cpu")
    rel = {"rel": 1e-4} if precision == "fp32" else {"rel": 3e-2, "weights_rel": 0.1}
    for one in (config.after, config):
        assert_same_training(folder_of(tmp_path / "spread", one), folder_of(tmp_path / "alone", one), **rel)


def test_a_spread_adapter_is_written_and_merged(config, launcher, tmp_path):
    config = replace(config, lora=Lora(rank=4), packing=True, loss="cdiv:alpha=1.4")
    finish(start(replace(config, fsdp=True), tmp_path / "spread", launcher, "cpu"))
    fine_tune(config, tmp_path / "alone", device="cpu")
    spread, alone = (folder_of(tmp_path / name, config) for name in ("spread", "alone"))
    assert (spread.path / "adapter" / "adapter_model.safetensors").exists()
    assert_same_training(spread, alone, 1e-3)
