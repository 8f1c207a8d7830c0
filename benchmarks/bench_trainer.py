"""The Trainer of transformers on a real model: its stock loss, Liger, and ours through the fused head; tokens per second and peak memory.

    python benchmarks/bench_trainer.py --model PATH --data gain_train.jsonl        8,192 tokens a step on the GPU, bfloat16 autocast
    python benchmarks/bench_trainer.py --device cpu --steps 4 --tokens 256         the shape of it, with a small random model

Variants run in turns, round after round, in one process; each starts from the same weights, sees the same blocks of tokens in the same
order and logs at every step. A round's first steps are left out of the timing. "Liger's head" is Liger's fused cross entropy alone;
"Liger, all" has its norm, rotary and MLP kernels too, and so have the last two, with our head in the place of Liger's.
"""

import argparse
import gc
import importlib.util
import json
import math
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

from widen.integrations.transformers import Trainer as WidenTrainer

HEAD_ONLY = {
    "rope": False,
    "rms_norm": False,
    "swiglu": False,
    "cross_entropy": False,
    "fused_linear_cross_entropy": True,
}
ALL_BUT_HEAD = {
    "rope": True,
    "rms_norm": True,
    "swiglu": True,
    "cross_entropy": False,
    "fused_linear_cross_entropy": False,
}
VARIANTS = {
    "stock loss": (Trainer, None, None),
    "Liger's head": (Trainer, None, HEAD_ONLY),
    "Liger, all": (Trainer, None, {}),
    "widen, nll": (WidenTrainer, "nll", None),
    "widen, cdiv:alpha=1.4": (WidenTrainer, "cdiv:alpha=1.4", None),
    "widen, nll, Liger's other kernels": (WidenTrainer, "nll", ALL_BUT_HEAD),
    "widen, cdiv:alpha=1.4, Liger's other kernels": (WidenTrainer, "cdiv:alpha=1.4", ALL_BUT_HEAD),
}


class Clock(TrainerCallback):
    """Seconds of every optimizer step and what was logged at it."""

    def __init__(self):
        self.seconds, self.logs, self.last = [], [], None

    def on_step_end(self, *_, **__):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now

    def on_log(self, *_, logs=None, **__):
        if logs and "loss" in logs:
            self.logs.append(dict(logs))


def blocks(options, vocab):
    """Rows of `length` tokens: the texts of a file one after the other, or random tokens where there is no file."""
    needed = options.steps * options.tokens
    if options.data:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        records = [json.loads(line) for line in Path(options.data).read_text().splitlines()]
        ids = []
        for record in records:
            ids += [*tokenizer("\n".join(str(value) for value in record.values())).input_ids, tokenizer.eos_token_id]
        while len(ids) < needed:
            ids += ids
    else:
        ids = torch.randint(3, vocab, (needed,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [ids[at : at + options.length] for at in range(0, needed, options.length)]
    return [{"input_ids": row, "labels": row} for row in rows]


def collate(rows):
    return {name: torch.tensor([row[name] for row in rows]) for name in ("input_ids", "labels")}


def make_model(options):
    if options.model:
        return transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=500, **sizes))


def one_round(name, options, folder):
    """Train `steps` steps from the start; seconds of each step, what was logged, and the peak of memory."""
    kind, loss, liger = VARIANTS[name]
    clock, model = Clock(), make_model(options)
    arguments = TrainingArguments(
        output_dir=folder, max_steps=options.steps, per_device_train_batch_size=options.tokens // options.length,
        learning_rate=1e-5, warmup_steps=5, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
        bf16=options.device == "cuda", use_cpu=options.device == "cpu", max_grad_norm=1.0,
        use_liger_kernel=liger is not None, liger_kernel_config=liger or None,
    )  # fmt: skip
    extra = {} if loss is None else {"loss": loss}
    rows = blocks(options, model.config.vocab_size)
    if options.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    from transformers.models.llama import modeling_llama

    rotary = modeling_llama.apply_rotary_pos_emb  # Liger replaces it for every model of the process
    try:
        trainer = kind(
            model=model, args=arguments, train_dataset=rows, data_collator=collate, callbacks=[clock], **extra
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    finally:
        modeling_llama.apply_rotary_pos_emb = rotary
    peak = torch.cuda.max_memory_allocated() / 2**30 if options.device == "cuda" else math.nan
    del trainer, model
    gc.collect()
    return clock.seconds[options.skip :], clock.logs, peak


def compare(options):
    names = [n for n, (_, _, liger) in VARIANTS.items() if liger is None or importlib.util.find_spec("liger_kernel")]
    if len(names) < len(VARIANTS):
        print("liger_kernel is not installed: its variants are left out")
    found = {name: {"seconds": [], "rounds": [], "nll": [], "peak": 0.0} for name in names}
    began = time.perf_counter()
    for number in range(options.rounds):
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                seconds, logs, peak = one_round(name, options, folder)
            row = found[name]
            row["seconds"] += seconds
            row["nll"] = [float(log.get("nll", log["loss"])) for log in logs]
            row["loss"] = [float(log["loss"]) for log in logs]
            row["peak"] = max(row["peak"], 0.0 if math.isnan(peak) else peak)
            row["rounds"].append(statistics.median(seconds))
            print(f"round {number + 1}: {name}: {statistics.median(seconds):.4f} s a step, {peak:.2f} GiB", flush=True)
        if time.perf_counter() - began > options.seconds:
            break
    return found


def report(options, found):
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    stock = statistics.median(found["stock loss"]["seconds"])
    data = f" --data {Path(options.data).name}" if options.data else ""
    model = options.name or options.model or "(a random one)"
    precision = "bfloat16 autocast on float32 weights" if options.device == "cuda" else "float32"
    lines = [
        "# The Trainer of transformers, with its own loss, Liger's and ours",
        "",
        f"Command: `python benchmarks/bench_trainer.py --model {model}{data} --steps {options.steps} --rounds {options.rounds}`. "
        f"Machine: {machine}. torch {torch.__version__}, transformers {transformers.__version__}, "
        f"Python {platform.python_version()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        f"{options.tokens:,} tokens a step ({options.tokens // options.length} rows of {options.length}), {precision}, AdamW; "
        f"the first {options.skip + 1} steps of each round are not timed.",
        "",
        "| variant | ms a step (median) | middle half | median of each round | tokens/s | against stock | peak GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        middle = statistics.median(row["seconds"])
        low, _, high = statistics.quantiles(row["seconds"], n=4)
        rounds = ", ".join(f"{x * 1e3:.0f}" for x in row["rounds"])
        peak = f"{row['peak']:.2f}" if row["peak"] else ""
        spread, rate = f"{low * 1e3:.1f}-{high * 1e3:.1f}", f"{options.tokens / middle:,.0f}"
        lines.append(f"| {name} | {middle * 1e3:.1f} | {spread} | {rounds} | {rate} | {stock / middle:.2f}x | {peak} |")
    ours, theirs = found["widen, nll"]["loss"], found["stock loss"]["loss"]
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    lines += ["", f"Loss curve of widen's NLL against the stock loss over {len(ours)} steps: largest difference {worst:.2e} "
              f"(the stock loss goes from {theirs[0]:.4f} to {theirs[-1]:.4f})."]  # fmt: skip
    for name, row in found.items():
        if row is not found["stock loss"] and "cdiv" not in name and name != "widen, nll":
            gap = max(abs(a - b) for a, b in zip(row["loss"], theirs, strict=True))
            lines[-1] += f" {name}: {gap:.2e}."
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder of a causal LM; a small random one unless given")
    parser.add_argument("--name", default="", help="how the result file calls the model")
    parser.add_argument("--data", default="", help=".jsonl whose values are the text; random tokens unless given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--skip", type=int, default=5, help="steps of a round that are not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a step")
    parser.add_argument("--length", type=int, default=512, help="tokens a row")
    parser.add_argument("--seconds", type=float, default=120, help="no further round after this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.length, options.skip = min(options.length, options.tokens), min(options.skip, options.steps - 3)
    transformers.logging.set_verbosity_error()
    found = compare(options)
    text = report(options, found)
    name = torch.cuda.get_device_name().lower().replace(" ", "-") if options.device == "cuda" else "cpu"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"trainer_{name}.md").write_text(text)
    (options.out / f"trainer_{name}.json").write_text(json.dumps(found, indent=1))
    print(text)


if __name__ == "__main__":
    main()
