"""A running average of the weights in both trainers, and one that a kill does not change."""

import pytest
import torch
from trainer_runs import arguments, pad, rows, tiny_model, tiny_tokenizer
from transformers import PrinterCallback, TrainerCallback

from widen.hosts.ema import EMA
from widen.hosts.transformers import Trainer

DECAY = 0.6


class Record(TrainerCallback):
    """The weights after each step; stops at one of them as if the process were killed."""

    def __init__(self, stop=None):
        self.weights, self.stop = [], stop

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append({name: p.detach().clone() for name, p in model.named_parameters()})
        if state.global_step == self.stop:
            control.should_training_stop = True


def trained(folder, *, stop=None, resume=None, steps=4):
    ema, record = EMA(DECAY), Record(stop)
    args = arguments(
        folder, optim="adamw_torch", per_device_train_batch_size=4, max_steps=steps, save_strategy="steps", save_steps=2,
    )  # fmt: skip
    trainer = Trainer(
        model=tiny_model(),
        args=args,
        train_dataset=rows(),
        data_collator=pad,
        callbacks=[record, ema],
        loss="cdiv:alpha=1.4",
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return ema, record


def test_the_average_follows_its_definition_and_a_resumed_run_continues_it(tmp_path):
    whole, record = trained(tmp_path / "whole")
    expected = {name: p.detach().clone() for name, p in tiny_model().named_parameters()}
    for step, weights in enumerate(record.weights):
        keep = min(DECAY, (1 + step) / (10 + step))
        expected = {name: keep * expected[name] + (1 - keep) * weights[name] for name in expected}
    torch.testing.assert_close(whole.average, expected, rtol=1e-5, atol=1e-6)
    trained(tmp_path / "killed", stop=3)  # one step after the checkpoint
    again, _ = trained(tmp_path / "killed", resume=True)
    torch.testing.assert_close(again.average, whole.average, rtol=0, atol=0)
    model = tiny_model()
    again.copy_to(model)
    torch.testing.assert_close(dict(model.named_parameters())["lm_head.weight"].data, expected["lm_head.weight"])
    (tmp_path / "killed" / "checkpoint-2" / "widen_ema.safetensors").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-2 has no widen_ema.safetensors"):
        trained(tmp_path / "killed", resume=str(tmp_path / "killed" / "checkpoint-2"))


def test_trl_averages_too_and_a_decay_outside_its_range_is_refused(tmp_path):
    from datasets import Dataset
    from trl import SFTConfig

    from widen.hosts.trl import SFTTrainer

    ema, record = EMA(DECAY), Record()
    args = arguments(
        tmp_path, kind=SFTConfig, max_steps=1, max_length=None, bf16=False, gradient_checkpointing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )  # fmt: skip
    trainer = SFTTrainer(
        model=tiny_model(), args=args, train_dataset=Dataset.from_list(rows()), processing_class=tiny_tokenizer(),
        callbacks=[record, ema], loss="nll",
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    start, end = tiny_model().lm_head.weight.data, record.weights[0]["lm_head.weight"]
    torch.testing.assert_close(ema.average["lm_head.weight"], 0.1 * start + 0.9 * end)
    with pytest.raises(ValueError, match=r"decay=1.0: must be above 0 and below 1"):
        EMA(1.0)
