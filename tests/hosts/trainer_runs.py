"""Small trainings that the tests of this room share: one data set, many ways to cut it into micro-batches, ranks and packs.

Run as a program it is one rank of two: ``python trainer_runs.py RANK PORT OUT`` (see test_trainer_ranks.py).
"""

import functools
import gc
import json
import os
import sys
import tempfile

import torch
from torch.utils.data import SequentialSampler
from transformers import (
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from widen.hosts.collate import WithColumns

VOCABULARY = 48
gc.freeze()  # every training begins with a full collection, which otherwise walks all of torch and takes most of the time
EVERY_LOSS = [  # each name of `widen.losses.LOSSES`; products, so that few trainings cover all of them
    "cdiv:alpha=1.4",
    "gem:beta=0.7 * eaft",
    "lambda_pr:lam=0.5,gamma=0.1 * gold",
    "trunc:drop=0.5,window=4,score=mean * tofu:gamma=1,beta=0.8",
    "dco:n=4 * smooth:eps=0.1",
    "asft:kl=0.3 * entropy:bonus=0.05",
    "anchor:kl=0.2 * focal:gamma=2 * dft",
    "nll:steps=2 then truncr:drop=0.5,window=8 * tailr:gamma=0.1",
]
FIGURES = (
    "nll", "entropy", "token_accuracy", "weight_mean", "weight_max", "weight_ess", "weight_zero_share",
)  # fmt: skip
WAYS = {  # rows a device takes at once, accumulation, packed
    "4x1": (4, 1, False),
    "1x4": (1, 4, False),
    "packed 4x1": (4, 1, True),
    "packed 2x2": (2, 2, True),
}
RANK_ROWS = 10  # three steps on two ranks, the last one incomplete


def rank_ways(loss):
    """How two ranks run a loss: padded, and one of three other ways in turn."""
    return "2 ranks", ("2 ranks, packed", "fsdp2", "trl")[EVERY_LOSS.index(loss) % 3]


def tiny_model(*, tied=False, seed=0, **config):
    torch.manual_seed(seed)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "tie_word_embeddings": tied,
        "initializer_range": 0.3,  # far from uniform, so that weights differ between tokens
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return LlamaForCausalLM(LlamaConfig(**shape | config))


def rows(count=18, seed=1):
    """Prompt and completion of unequal lengths; 18 rows in steps of 4 leave a last, incomplete accumulation."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        prompt, completion = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((1, 5), (2, 9)))
        ids = torch.randint(3, VOCABULARY, (prompt + completion,), generator=generator).tolist()
        made.append({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]})
    return made


def weighed(*, per_token):
    """The rows with weights: 0 for some, and lists of unequal numbers if ``per_token``."""
    generator = torch.Generator().manual_seed(2)
    made = []
    for i, row in enumerate(rows()[:8]):
        number = float(i % 3)
        each = torch.rand(len(row["input_ids"]), generator=generator).tolist()
        made.append(row | {"loss_weights": each if per_token else number})
    return made


def data_for(loss, data):
    """The rows, with what a reference model says about them where the loss asks for it."""
    data = rows() if data is None else data
    if not any(name in str(loss) for name in ("asft", "anchor")):
        return data
    return [row | {"ref_logq": [-0.5 - (i * 7 % 5) for i in row["input_ids"]]} for row in data]


def pad(examples):
    width = max(len(row["input_ids"]) for row in examples)

    def filled(key, value):
        return torch.tensor([row[key] + [value] * (width - len(row[key])) for row in examples])

    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in examples])
    return {"input_ids": filled("input_ids", 0), "labels": filled("labels", -100), "attention_mask": mask}


def arguments(folder, *, kind=TrainingArguments, **changes):
    chosen = {
        "output_dir": str(folder),
        "num_train_epochs": 1,
        "learning_rate": 0.005,  # small: what is compared is each step, not how a trajectory amplifies rounding
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    if hasattr(kind, "train_sampling_strategy"):
        chosen["train_sampling_strategy"] = "sequential"
    else:  # transformers 4 has no such argument
        Trainer._get_train_sampler = lambda self, dataset=None: SequentialSampler(self.train_dataset)
    return kind(**chosen | changes)


class Watch(TrainerCallback):
    """Notes gradients and weights of every optimizer step, before it is made."""

    def __init__(self):
        self.gradients, self.weights, self.trainer = [], [], None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        flat = []
        for _, p in sorted(model.named_parameters(), key=lambda pair: pair[0].removeprefix("module.")):
            if p.requires_grad:
                g = p.grad
                flat.append((g.full_tensor() if hasattr(g, "full_tensor") else g).flatten().clone())
        self.gradients.append(torch.cat(flat))
        self.weights.append(weights_by_sequence(self.trainer))


def weights_by_sequence(trainer):
    """Targets of a sequence -> their weights, of this rank's micro-batches of the step."""
    found = {}
    for micro in getattr(getattr(trainer, "objective", None), "pending", []):
        at = micro.sequences
        for number in at.sequence_N[at.mask_N].unique().tolist():
            chosen = at.mask_N & (at.sequence_N == number)
            found[tuple(at.target_N[chosen].tolist())] = [round(w, 4) for w in micro.w_N[chosen].tolist()]
    return found


def train(trainer_class, way, *, model=None, data=None, collator=None, **kwargs):
    """Train once the given way; the gradients and weights of each step, and the host's log."""
    per_device, accumulation, packed = way
    changes = kwargs.pop("changes", {})
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=model if model is not None else tiny_model(),
            args=arguments(
                folder,
                kind=kwargs.pop("kind", TrainingArguments),
                per_device_train_batch_size=per_device,
                gradient_accumulation_steps=accumulation,
                **changes,
            ),
            train_dataset=data_for(kwargs.get("loss"), data),
            data_collator=collator or (DataCollatorWithFlattening() if packed else WithColumns(pad, ("ref_logq",))),
            callbacks=[watch],
            **kwargs,
        )
        return run(trainer, watch)


def train_sft(trainer_class, way, *, changes=None, **kwargs):
    """The same through TRL, whose own collator pads or packs."""
    if "trl" not in sys.modules:
        import trl  # noqa: F401

        gc.freeze()
    from datasets import Dataset
    from trl import SFTConfig

    fixed = {
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    watch, per_device, accumulation, packed = Watch(), *way
    with tempfile.TemporaryDirectory() as folder:
        sizes = {
            "per_device_train_batch_size": per_device,
            "gradient_accumulation_steps": accumulation,
            "padding_free": packed,
        }
        trainer = trainer_class(
            model=kwargs.pop("model", None) or tiny_model(),
            args=arguments(folder, kind=SFTConfig, **fixed | sizes | (changes or {})),
            train_dataset=Dataset.from_list(data_for(kwargs.get("loss"), kwargs.pop("data", None))),
            processing_class=tiny_tokenizer(),
            callbacks=[watch],
            **kwargs,
        )
        return run(trainer, watch)


def tiny_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", bos_token="t1", eos_token="t2")


def apart(a, b):
    """Largest distance between the gradients of two runs, over the steps, relative to their norm."""
    assert len(a) == len(b)
    return max(float((x - y).norm() / y.norm().clamp(min=1e-12)) for x, y in zip(a, b, strict=True))


def sharded(model, with_norm=False, half=False):
    """FSDP2: a unit a layer, one for the head (with the last norm, as accelerate has it, or alone), the rest in the root.

    accelerate leaves FSDP out on a CPU (it wraps with DDP instead), so the model is sharded before the trainer gets it.
    """
    import torch.distributed.fsdp as fsdp

    policy = (
        fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.bfloat16)
        if half
        else fsdp.MixedPrecisionPolicy()
    )
    fully_shard = functools.partial(fsdp.fully_shard, mp_policy=policy)
    for layer in model.model.layers:
        fully_shard(layer)
    if model.config.tie_word_embeddings:
        fully_shard([model.model.norm, model.model.embed_tokens, model.lm_head])
    else:
        fully_shard([model.model.norm, model.lm_head] if with_norm else model.lm_head)
    fully_shard(model)
    return model


def run(trainer, watch):
    """Train, without the progress lines; a model that is sharded already is left as it is."""
    watch.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    if type(trainer.model).__name__.startswith("FSDP"):  # sharded before the trainer got it
        trainer.accelerator.prepare_model = lambda model, **_: model
    trainer.train()
    return watch, trainer


def one_rank(rank, port, out):
    """Every loss on two ranks; rank 0 writes the gradients, every rank its weights, logs and errors."""
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    from safetensors.torch import save_file

    from widen.hosts.transformers import Trainer
    from widen.hosts.trl import SFTTrainer

    gradients, notes = {}, {}

    def note(name, pair):
        watch, trainer = pair
        gradients.update({f"{name}|{step}": gradient for step, gradient in enumerate(watch.gradients)})
        notes[name] = {
            "weights": [[[key, value] for key, value in step.items()] for step in watch.weights],
            "log": trainer.state.log_history,
        }

    options = {"changes": {"ddp_find_unused_parameters": False}}
    data = rows()[:RANK_ROWS]
    for loss in EVERY_LOSS:
        for way in rank_ways(loss):
            if way == "trl":
                note(f"{way}|{loss}", train_sft(SFTTrainer, (1, 2, False), loss=loss, data=data, **options))
            elif way == "fsdp2":
                note(f"{way}|{loss}", train(Trainer, (1, 2, False), loss=loss, data=data, model=sharded(tiny_model())))
            else:
                packed = way == "2 ranks, packed"
                note(f"{way}|{loss}", train(Trainer, (1, 2, packed), loss=loss, data=data, **options))
    loss, plain = "cdiv:alpha=1.4", {"data": data, "loss": "cdiv:alpha=1.4"}
    note(f"mean_one|{loss}", train(Trainer, (1, 2, False), weight_scale="mean_one", **plain, **options))
    weights = {"data": weighed(per_token=True), "collator": WithColumns(pad)}
    note(f"weights of the data|{loss}", train(Trainer, (1, 2, False), loss=loss, **weights, **options))
    note(f"tied fsdp2|{loss}", train(Trainer, (1, 2, False), model=sharded(tiny_model(tied=True)), **plain))
    note(f"trl fsdp2|{loss}", train_sft(SFTTrainer, (1, 2, False), model=sharded(tiny_model()), **plain))
    half = sharded(tiny_model(), with_norm=True, half=True)
    note("half|nll", train(Trainer, (1, 2, False), loss="nll", model=half, data=data))
    notes["eval_loss"] = evaluated(Trainer, rows()[:5])
    bad, _, model = with_one_bad_row()
    notes["error"] = error_of(lambda: train(Trainer, (1, 2, False), loss="nll", data=bad, model=model, **options))
    if rank == 0:
        save_file(gradients, f"{out}/gradients.safetensors")
    with open(f"{out}/notes-{rank}.json", "w") as file:
        json.dump(notes, file)


def error_of(job):
    try:
        job()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def spoiled(row):
    """A model that is nan wherever the last token but one of ``row`` has been read: its embedding is."""
    model = tiny_model()
    with torch.no_grad():
        model.model.embed_tokens.weight[row["input_ids"][-2]] = torch.nan
    return model


def with_one_bad_row(number=6):
    """Data in which one row alone spoils the loss, its index, and the model that it spoils."""
    bad = rows()[number]
    kept = [row for row in rows() if row == bad or bad["input_ids"][-2] not in row["input_ids"]]
    return kept, kept.index(bad), spoiled(bad)


def evaluated(trainer_class, data, size=2, **kwargs):
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=tiny_model(),
            args=arguments(folder, per_device_eval_batch_size=size),
            eval_dataset=data,
            data_collator=pad,
            loss="cdiv:alpha=1.4",
            **kwargs,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer.evaluate()["eval_loss"]


def sharded_by_accelerate(out, half):
    """On a GPU, where accelerate does shard: gradients of every loss under the trainer's own FSDP2, and the log of each."""
    from safetensors.torch import save_file

    from widen.hosts.transformers import Trainer

    shards = {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}
    gradients, logs = {}, {}
    for loss in EVERY_LOSS:
        watch, trainer = train(Trainer, (4, 1, False), loss=loss, changes=shards | {"use_cpu": False, "bf16": half})
        assert type(trainer.model).__name__ == "FSDPLlamaForCausalLM"
        gradients[loss], logs[loss] = watch.gradients[0], trainer.state.log_history
    save_file(gradients, f"{out}/gradients.safetensors")
    with open(f"{out}/logs.json", "w") as file:
        json.dump(logs, file)


if __name__ == "__main__":
    torch.set_num_threads(1)
    one_rank(int(sys.argv[1]), sys.argv[2], sys.argv[3])
    torch.distributed.destroy_process_group()
    print("done", flush=True)
