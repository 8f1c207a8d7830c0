"""`widen train` under FSDP on a CUDA device, in processes of its own: the model that one process trains, also after a real SIGKILL."""

import sys
from dataclasses import replace

import pytest
from spread_runs import assert_same_training, finish, kill_at, small_config, start

from widen.run.finetune import Lora, fine_tune
from widen.run.folder import folder_of

pytestmark = pytest.mark.gpu

TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "29631"),
    *("-m", "widen.cli"),
)
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
    *(
        "--fsdp_cpu_ram_efficient_loading",
        "true",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "-m",
        "widen.cli",
    ),
)


@pytest.fixture
def config(tmp_path):
    return small_config(tmp_path)


def test_a_model_spread_by_torchrun_is_the_one_that_a_process_trains_alone(config, tmp_path):
    config = replace(config, after=replace(config, loss="nll", epochs=1))
    spread = replace(config, fsdp=True, after=replace(config.after, fsdp=True))
    finish(start(spread, tmp_path / "spread", TORCHRUN, "cuda"))
    fine_tune(config, tmp_path / "alone", device="cuda")
    for one in (config.after, config):
        assert_same_training(folder_of(tmp_path / "spread", one), folder_of(tmp_path / "alone", one), 1e-4)


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_a_spread_run_that_is_killed_goes_on_from_its_newest_whole_checkpoint(config, launcher, tmp_path):
    config = replace(config, epochs=15, save_steps=5)
    spread, folder = replace(config, fsdp=launcher is TORCHRUN), folder_of(tmp_path / "killed", config)
    kill_at(start(spread, tmp_path / "killed", launcher, "cuda"), folder, 9)
    finish(start(spread, tmp_path / "killed", launcher, "cuda"))
    fine_tune(config, tmp_path / "alone", device="cuda")
    assert_same_training(folder, folder_of(tmp_path / "alone", config), 1e-4)


def test_a_spread_adapter_in_bfloat16_is_written_and_merged(config, tmp_path):
    config = replace(config, lora=Lora(rank=4), precision="bf16", packing=True, loss="cdiv:alpha=1.4")
    finish(start(replace(config, fsdp=True), tmp_path / "spread", TORCHRUN, "cuda"))
    fine_tune(config, tmp_path / "alone", device="cuda")
    spread, alone = (folder_of(tmp_path / name, config) for name in ("spread", "alone"))
    assert (spread.path / "adapter" / "adapter_model.safetensors").exists()
    # Adam divides by the gradient's own size: where that is rounding, so is the step.
    assert_same_training(spread, alone, 2e-2, weights_rel=0.1)
