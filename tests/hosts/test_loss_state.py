"""The loss's state survives: a real process, a real SIGKILL, and the resumed run logs the losses of one that was never stopped."""

import json
import os
import pickletools
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainer_runs import arguments, pad, rows, tiny_model
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from widen.hosts.transformers import Trainer

pytestmark = pytest.mark.timeout(900)  # real processes, which start slowly on a busy machine
HERE = Path(__file__).parent
KEPT = {
    "schedule": ("nll:steps=3 then truncr:drop=0.5,window=8 * cdiv:alpha=1.4", "raw"),
    "window": ("trunc:drop=0.5,window=6,score=mean", "mean_one"),
}


class Slow(TrainerCallback):
    """Leaves a trace of each step and gives the killer time to aim."""

    def __init__(self, trace):
        self.trace = trace

    def on_step_end(self, args, state, control, **kwargs):
        self.trace.write_text(str(state.global_step))
        if state.global_step == 7:
            time.sleep(600)  # killed here, wherever the other run is


def job(name, folder, *, slow=False, resume=None):
    """Eight steps, a checkpoint every third."""
    loss, scale = KEPT[name]
    torch.set_num_threads(1)
    sizes = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 8,
        "save_strategy": "steps",
        "save_steps": 3,
    }
    shuffled = {"train_sampling_strategy": "random"} if hasattr(TrainingArguments, "train_sampling_strategy") else {}
    trainer = Trainer(
        model=tiny_model(),
        args=arguments(folder, **sizes, **shuffled, optim="adamw_torch"),
        train_dataset=rows(),
        data_collator=pad,
        callbacks=[Slow(Path(folder) / "step")] if slow else [],
        loss=loss,
        weight_scale=scale,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    kept = ("loss", "nll", "weight_mean", "weight_zero_share", "threshold", "grad_norm")
    return [{k: v for k, v in entry.items() if k in kept} for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Both runs at once, each killed between its second checkpoint and its end."""
    env = os.environ | {"PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", "OMP_NUM_THREADS": "1"}
    code = "import sys, test_loss_state as t; t.job(sys.argv[1], sys.argv[2], slow=True)"
    folders = {name: tmp_path_factory.mktemp(name) for name in KEPT}
    running = {
        name: subprocess.Popen([sys.executable, "-c", code, name, folder], env=env) for name, folder in folders.items()
    }
    try:
        deadline = time.monotonic() + 600  # a hang ends here
        for name, process in running.items():
            trace = folders[name] / "step"
            while not trace.exists() or trace.read_text() != "7":
                assert process.poll() is None, "it ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return folders


@pytest.mark.parametrize("name", list(KEPT))
def test_a_killed_run_goes_on_with_the_losses_of_one_that_was_never_stopped(killed, tmp_path, name):
    whole = losses(job(name, tmp_path))
    resumed = job(name, killed[name], resume=True)
    assert resumed.state.global_step == 8
    found = losses(resumed)
    assert len(found) == len(whole) == 8
    for a, b in zip(found, whole, strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    assert len({entry["weight_zero_share"] for entry in whole}) > 2  # the window did something


def test_without_its_state_the_losses_would_differ(killed, tmp_path, monkeypatch):
    """The test above can fail: the same resume with the state left out."""
    import shutil

    import widen.hosts.weighted_loss as module

    folder = tmp_path / "copy"
    shutil.copytree(killed["schedule"], folder)
    monkeypatch.setattr(module, "load_state", lambda *_: None)
    found, whole = losses(job("schedule", folder, resume=True)), losses(job("schedule", tmp_path / "whole"))
    assert found[-1]["loss"] != pytest.approx(whole[-1]["loss"], rel=1e-3)


@pytest.mark.parametrize("state", [None, '{"epoch": 0.'], ids=["no state", "half a state"])
def test_a_checkpoint_that_the_kill_left_half_written_is_passed_over(killed, tmp_path, state):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(killed["schedule"], folder)
    shutil.rmtree(folder / "checkpoint-8", ignore_errors=True)  # of the test that went on in that folder
    shutil.copytree(folder / "checkpoint-6", folder / "checkpoint-7")
    (folder / "checkpoint-7" / "model.safetensors").write_bytes(b"half")
    (folder / "checkpoint-7" / "trainer_state.json").unlink()
    if state is not None:
        (folder / "checkpoint-7" / "trainer_state.json").write_text(state)
    found, whole = losses(job("schedule", folder, resume=True)), losses(job("schedule", tmp_path / "whole"))
    assert found[-1]["loss"] == pytest.approx(whole[-1]["loss"], rel=1e-6)


def test_the_state_is_safetensors_and_json(killed):
    folder = killed["schedule"] / "checkpoint-6"
    facts = json.loads((folder / "widen_loss.json").read_text())
    assert facts == facts | {
        "schema": 1,
        "step": 6,
        "weight_scale": "raw",
        "mean_weight": pytest.approx(facts["mean_weight"]),
    }
    assert facts["loss"].startswith("nll:steps=3 then truncr")
    tensors = load_file(folder / "widen_loss.safetensors")
    assert int(tensors["0"]) == 6  # the schedule's steps
    with pytest.raises(Exception, match=r"."):
        list(pickletools.genops((folder / "widen_loss.safetensors").read_bytes()))


def test_a_checkpoint_of_another_loss_is_refused(killed):
    from widen.hosts.state import load_state
    from widen.losses import parse
    from widen.train.objective import Objective

    with pytest.raises(
        ValueError, match=r"was trained with loss='trunc.*and is resumed with loss='truncr.*give the same"
    ):
        load_state(
            killed["window"] / "checkpoint-6", Objective(parse("truncr:drop=0.5,window=6"), weight_scale="mean_one")
        )
    with pytest.raises(ValueError, match=r"was trained with weight_scale='mean_one'"):
        load_state(killed["window"] / "checkpoint-6", Objective(parse(KEPT["window"][0])))


def test_a_checkpoint_without_the_state_is_refused_only_where_the_loss_has_one(tmp_path):
    from widen.hosts.state import load_state
    from widen.losses import parse
    from widen.train.objective import Objective

    load_state(tmp_path, Objective(parse("cdiv:alpha=1.4")))
    for objective in (
        Objective(parse("trunc:drop=0.5")),
        Objective(parse("nll:steps=9 then gold")),
        Objective(parse("gold"), weight_scale="mean_one"),
    ):
        with pytest.raises(ValueError, match=r"has no widen_loss\.json.*load them as the model instead"):
            load_state(tmp_path, objective)


def test_a_subclass_of_truncr_is_resumed_as_itself_with_the_window_of_its_run(tmp_path):
    from widen.hosts.state import load_state, save_state
    from widen.losses import TruncR, parse
    from widen.train.objective import Objective

    @dataclass(frozen=True, kw_only=True)
    class Mine(TruncR):
        share: float = 0.5

    first = Objective(Mine(drop=0.1, share=0.25))
    first.fit(8000)
    save_state(tmp_path, first, step=3)
    again = Objective(Mine(drop=0.1, share=0.25))
    load_state(tmp_path, again)
    assert again.weight == first.weight == Mine(drop=0.1, share=0.25, window=400, start=200)
    with pytest.raises(ValueError, match=r"was trained with loss=.*Mine\(.* and is resumed with loss='truncr"):
        load_state(tmp_path, Objective(parse("truncr:drop=0.1")))


def test_training_again_begins_anew(tmp_path):
    trainer = job("schedule", tmp_path)
    assert int(trainer.objective.state[0]) == 8
    trainer.train()
    assert int(trainer.objective.state[0]) == 8
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == list(range(1, 9))
