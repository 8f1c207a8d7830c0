"""Transformers' Trainer with a loss of widen: one import and one argument are new. Runs without network on a tiny model."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from widen.hosts.transformers import Trainer  # was: from transformers import Trainer

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(config)  # in practice AutoModelForCausalLM.from_pretrained(...)


def example(length: int) -> dict[str, list[int]]:
    ids = torch.randint(3, 64, (length,)).tolist()
    return {"input_ids": ids, "labels": [-100] * 3 + ids[3:]}  # the prompt is no target


def pad(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    width = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "labels": -100}
    batch = {key: torch.tensor([row[key] + [fill[key]] * (width - len(row[key])) for row in rows]) for key in fill}
    return batch | {"attention_mask": (batch["input_ids"] != 0).long()}


with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            folder, max_steps=6, gradient_accumulation_steps=2, logging_steps=2, report_to=[], use_cpu=True
        ),
        train_dataset=[example(6 + i % 5) for i in range(64)],
        data_collator=pad,
        loss="cdiv:alpha=1.4",  # new
    )
    trainer.train()
