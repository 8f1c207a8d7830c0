"""The Trainer of transformers on a real model: its stock loss, Liger, and ours through the fused head; tokens per second and peak memory.

    python benchmarks/bench_trainer.py --model PATH --data gain_train.jsonl        8,192 tokens a step on the GPU, bfloat16 autocast
    python benchmarks/bench_trainer.py --device cpu --turns 3 --tokens 256         the shape of it, with a small random model

Every variant is a process of its own, as Liger replaces classes for the whole process that it is used in. All start from the same
weights, see the same blocks of tokens in the same order and log at every step. They take turns of a few steps, in an order that is
drawn anew each time, while the others stand still: a step of a small model is bound by the host, and a host is a tenth faster or slower
from one second to the next. Two processes of one variant may differ too, by some hundredths, and so do two models in one process; so
each has --copies of them, whose turns are averaged. --shared goes further: the stock loss and ours are threads of one process, with a
trainer and an optimizer each around one and the same model, so that what they differ by is the trainer and the loss alone (not for the
loss curves, nor for memory). The first step of a turn is not counted, unless a turn is one step; a ratio is the median over turns of
a variant over the stock loss of the same turn.

"Liger's head" is Liger's fused cross entropy alone; "Liger, all" has its norm, rotary and MLP kernels too, and so have the last two,
with our head in the place of Liger's. The host looks at each loss for a nan and waits for the backward to do so, which our trainer does
not (its guard needs no wait); "stock loss, no nan filter" is the stock loss without that, by the host's own setting.
"""

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

from widen.hosts.transformers import Trainer as WidenTrainer

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
    "stock loss, no nan filter": (Trainer, None, None),
    "Liger's head": (Trainer, None, HEAD_ONLY),
    "Liger, all": (Trainer, None, {}),
    "widen, nll": (WidenTrainer, "nll", None),
    "widen, cdiv:alpha=1.4": (WidenTrainer, "cdiv:alpha=1.4", None),
    "widen, nll, Liger's other kernels": (WidenTrainer, "nll", ALL_BUT_HEAD),
    "widen, cdiv:alpha=1.4, Liger's other kernels": (WidenTrainer, "cdiv:alpha=1.4", ALL_BUT_HEAD),
}
COMPILED = ("default", "reduce-overhead")
"""Modes of torch_compile that one variant may have: its name is then "widen, nll @ reduce-overhead"."""
SMOLLM2 = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "tie_word_embeddings": True, "max_position_embeddings": 8192,
}  # fmt: skip


def variant_of(name):
    """Trainer, loss and Liger's kernels of a variant, and the mode of torch_compile in its name."""
    plain, _, mode = name.partition(" @ ")
    return *VARIANTS[plain], mode


class Turns(TrainerCallback):
    """Stops after every turn until it is this process's turn again; seconds of every step and what was logged at it."""

    def __init__(self, pipe, size, alone):
        self.pipe, self.size, self.alone = pipe, size, alone
        self.seconds, self.logs, self.last = [], [], 0.0

    def wait(self):
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.alone and torch.cuda.is_available() else None
        self.pipe.send((self.seconds, self.logs, peak))
        self.seconds, self.logs = [], []
        if self.pipe.recv() == "end":
            raise SystemExit
        self.last = time.perf_counter()

    def on_train_begin(self, *_, **__):
        self.wait()

    def on_step_end(self, *_, **__):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds.append(now - self.last)
        self.last = now
        if len(self.seconds) == self.size:
            self.wait()

    def on_log(self, *_, logs=None, **__):
        if logs and "loss" in logs:
            self.logs.append(dict(logs))


def blocks(options, vocab):
    """Rows of `length` tokens: the texts of a file one after the other, or random tokens where there is no file."""
    needed = options.turns * options.turn * options.tokens
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
    rows = torch.tensor(ids[: needed // options.length * options.length]).view(-1, options.length)
    return [{"input_ids": row, "labels": row} for row in rows]


def collate(rows):
    return {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}


def load_model(options):
    if options.model:
        return transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    small = {
        "vocab_size": 500,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**(SMOLLM2 if getattr(options, "smollm2", False) else small))
    )


def train(name, options, pipe, alone, model=None):
    """One variant; after each turn it sends the seconds, what it logged and, in a process of its own, the peak of its memory."""
    if options.cores:  # the same for all: only one is at work at a time, and cores differ by what else runs beside them
        os.sched_setaffinity(0, range(options.cores))
    transformers.logging.set_verbosity_error()
    kind, loss, liger, mode = variant_of(name)
    mode = mode or options.compile
    model = model or load_model(options)
    turns = Turns(pipe, options.turn, alone)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=options.turns * options.turn, per_device_train_batch_size=options.tokens // options.length,
            learning_rate=1e-5, warmup_steps=5, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
            bf16=options.device == "cuda", use_cpu=options.device == "cpu", max_grad_norm=1.0,
            torch_compile=bool(mode), torch_compile_mode=mode or None,
            use_liger_kernel=liger is not None, liger_kernel_config=liger or None, logging_nan_inf_filter="no nan filter" not in name,
        )  # fmt: skip
        trainer = kind(
            model=model, args=arguments, train_dataset=blocks(options, model.config.vocab_size), data_collator=collate,
            callbacks=[turns], **({} if loss is None else {"loss": loss}),
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


class Variant:
    """The parent's end of a variant's process, or thread."""

    def __init__(self, name, options, model):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.alone = model is None
        start = context.Process if self.alone else threading.Thread
        self.worker = start(target=train, args=(name, options, theirs, self.alone, model), daemon=True)
        self.worker.start()
        if self.alone:
            theirs.close()  # so that a process that dies is an EOFError here
        else:
            while not self.pipe.poll(1):  # one trainer is made at a time: accelerate has one state a process
                if not self.worker.is_alive():
                    raise RuntimeError(f"{name} died before its first step; its own words are above")
        self.turns, self.loss, self.peak = [], [], None

    def begin(self):
        self.pipe.send("go")

    def end(self, *, counts):
        seconds, logs, self.peak = self.pipe.recv()
        self.loss += [float(log["loss"]) for log in logs]
        if counts:
            self.turns.append(statistics.median(seconds[1:] or seconds))


def compare(options):
    """Every variant that came through so far: seconds of its steps turn by turn, its losses and the peak of its memory.

    Yielded every forty steps, so that a run that is cut off has left what it measured.
    """
    names = [n for n in options.only if variant_of(n)[2] is None or importlib.util.find_spec("liger_kernel")]
    if len(names) < len(options.only):
        print("liger_kernel is not installed: its variants are left out")
    began, shuffle = time.perf_counter(), random.Random(0)
    model = load_model(options) if options.shared else None
    # On one model the trainer that is made first is some hundredths faster than the next, whatever its loss (seen on a GPU; the reason is
    # not known), so it is made and left alone. It is one of ours, as that teaches the model its second forward before accelerate wraps it
    # for the others; and the others are made in an order that turns with every copy.
    first = Variant("widen, nll", options, model) if options.shared else None
    shifts = [copy % len(names) for copy in range(options.copies)]
    turned = [(name, copy) for copy, at in enumerate(shifts) for name in names[at:] + names[:at]]
    running = {key: Variant(key[0], options, model) for key in turned}

    def each(keys, act):
        for name, copy in keys:
            try:
                if (name, copy) in running:
                    act(running[name, copy])
            except (EOFError, OSError):
                print(f"{name} died (its own words are above) and is left out", flush=True)
                for other in range(options.copies):
                    running.pop((name, other), None)

    def turn(variant, counts):
        variant.begin()
        variant.end(counts=counts)

    each(list(running), lambda variant: variant.pipe.recv())  # all have loaded their model
    print(
        f"{len(running)} {'trainers' if options.shared else 'processes'} are ready after {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    processes = [key for key, variant in running.items() if variant.alone]
    for _ in range(options.skip):  # all processes at once: what is compiled is compiled side by side
        each(processes, Variant.begin)
        each(processes, lambda variant: variant.end(counts=False))
        each([key for key in running if key not in processes], lambda variant: turn(variant, False))
    print(f"and have warmed up after {time.perf_counter() - began:.0f} s", flush=True)
    for number in range(options.skip, options.turns):
        each(shuffle.sample(list(running), len(running)), lambda variant: turn(variant, True))
        spent = time.perf_counter() - began
        last = number + 1 == options.turns or spent > options.seconds
        if last or number % max(1, 40 // options.turn) == 0:
            found = {}
            for name in [name for name in names if (name, 0) in running]:
                own = [variant for (other, _), variant in running.items() if other == name]
                seconds = [statistics.mean(copies) for copies in zip(*(v.turns for v in own), strict=True)]
                found[name] = {
                    "turns": seconds,
                    "loss": own[0].loss,
                    "peak": own[0].peak,
                    "copies": [v.turns for v in own],
                }
            shown = ", ".join(f"{name} {1e3 * row['turns'][-1]:.0f}" for name, row in found.items())
            print(f"turn {number + 1} of {options.turns}, {spent:.0f} s: {shown}", flush=True)
            if number > options.skip:
                yield found
        if last:
            break
    for variant in [*running.values(), *([] if first is None else [first])]:
        variant.pipe.send("end")
        variant.worker.join()


def ratios(found, name):
    """The stock loss's time over a variant's, turn by turn: above 1 the variant is faster."""
    return [stock / own for own, stock in zip(found[name]["turns"], found["stock loss"]["turns"], strict=True)]


def geometric(speed):
    """The geometric mean and its standard error over the turns."""
    logs = [math.log(x) for x in speed]
    mean = math.exp(statistics.mean(logs))
    return f"{mean:.3f}x ± {mean * statistics.stdev(logs) / math.sqrt(len(logs)):.3f}"


def report(options, found):
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    data = f" --data {Path(options.data).name}" if options.data else ""
    shape = "(random weights of SmolLM2-135M's shape)" if options.smollm2 else "(a random one)"
    model = options.name or options.model or shape
    cores = f" --cores {options.cores}" if options.cores else ""
    only = "" if set(options.only) == set(VARIANTS) else " --only " + " ".join(f'"{name}"' for name in options.only)
    flags = cores + " --shared" * options.shared + " --compile" * bool(options.compile) + only
    each = "thread" if options.shared else "process"
    precision = "bfloat16 autocast on float32 weights" if options.device == "cuda" else "float32"
    lines = [
        "# The Trainer of transformers, with its own loss, Liger's and ours" + (", compiled" if options.compile else ""),
        "",
        f"Command: `python benchmarks/bench_trainer.py --model {model}{data} --turns {options.turns} --turn {options.turn} "
        f"--copies {options.copies}{flags}`. Machine: {machine}. torch {torch.__version__}, "
        f"transformers {transformers.__version__}, Python {platform.python_version()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        f"{options.tokens:,} tokens a step ({options.tokens // options.length} rows of {options.length}), {precision}, AdamW, "
        f"{options.copies} {each}{'' if options.copies == 1 else 's' if options.shared else 'es'} each. "
        f"{len(found['stock loss']['turns'])} turns of {options.turn} steps each are counted, after {options.skip} that are not; the "
        "speed is that of the stock loss's turn over the variant's: the median and the middle half of the turns, and the geometric mean "
        "with its standard error.",
        "",
        "| variant | ms a step (median) | tokens/s | speed against stock | mean of it | peak GiB |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, row in found.items():
        middle, speed = statistics.median(row["turns"]), ratios(found, name)
        low, _, high = statistics.quantiles(speed, n=4)
        peak = "" if row["peak"] is None else f"{row['peak']:.2f}"
        lines.append(
            f"| {name} | {middle * 1e3:.1f} | {options.tokens / middle:,.0f} | {statistics.median(speed):.3f}x "
            f"({low:.3f}-{high:.3f}) | {geometric(speed)} | {peak} |"
        )
    if options.shared:
        return "\n".join(lines) + "\n"
    steps = min(len(row["loss"]) for row in found.values())  # what the last step logged comes with the next turn
    theirs = found["stock loss"]["loss"][:steps]
    lines += ["", f"Loss curves over {len(theirs)} steps; the stock loss goes from {theirs[0]:.4f} to {theirs[-1]:.4f}. Largest "
              "difference from it:"]  # fmt: skip
    for name, row in found.items():
        if name != "stock loss" and "cdiv" not in name:
            gap = max(abs(a - b) for a, b in zip(row["loss"][:steps], theirs, strict=True))
            lines[-1] += f" {name} {gap:.2e};"
    lines[-1] = lines[-1].rstrip(";") + "."
    return "\n".join(lines) + "\n"


def task_parser(description):
    """Flags of what is trained, and for how long."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="folder of a causal LM; a small random one unless given")
    parser.add_argument("--name", default="", help="how the result file calls the model")
    parser.add_argument("--data", default="", help=".jsonl whose values are the text; random tokens unless given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--tokens", type=int, default=8192, help="tokens a step")
    parser.add_argument("--length", type=int, default=512, help="tokens a row")
    parser.add_argument("--seconds", type=float, default=600, help="nothing further is begun after this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    return parser


def main():
    parser = task_parser(__doc__)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument(
        "--turn",
        type=int,
        default=4,
        help="steps of a turn, the first of which is not counted unless it is the only one",
    )
    parser.add_argument("--skip", type=int, default=3, help="turns that are not counted")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*VARIANTS, *(f"{name} @ {mode}" for name in VARIANTS for mode in COMPILED)],
        default=list(VARIANTS),
        metavar="VARIANT",
        help="some of: %(choices)s; after @ is the mode of torch_compile",
    )
    parser.add_argument("--copies", type=int, default=2, help="processes of each variant")
    parser.add_argument(
        "--cores", type=int, default=0, help="keep every process on the first so many cores; 0: any core"
    )
    parser.add_argument(
        "--smollm2", action="store_true", help="random weights of SmolLM2-135M's shape instead of a small model"
    )
    parser.add_argument("--shared", action="store_true", help="one process, one model: only for variants without Liger")
    parser.add_argument(
        "--compile", nargs="?", const="default", default="", choices=["default", "reduce-overhead", "max-autotune"],
        help="torch_compile for every variant, in this mode",
    )  # fmt: skip
    options = parser.parse_args()
    if options.turn < 1:
        parser.error(f"--turn {options.turn}: at least 1")
    options.length, options.skip = min(options.length, options.tokens), min(options.skip, options.turns - 2)
    options.only = [
        "stock loss",
        *(name for name in options.only if name != "stock loss"),
    ]  # what all are compared with
    if options.shared and any(variant_of(name)[2] is not None for name in options.only):
        parser.error(
            "--shared is one process for all, and Liger replaces classes in it: name the variants without it by --only"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name().lower().replace(" ", "-") if options.device == "cuda" else "cpu"
    compiled = (f"_compiled_{options.compile}" if options.compile else "") + ("_shared" if options.shared else "")
    text = "cut off before two turns were counted: nothing is written"
    for found in compare(options):
        text = report(options, found)
        (options.out / f"trainer_{name}{compiled}.md").write_text(text)
        (options.out / f"trainer_{name}{compiled}.json").write_text(json.dumps(found, indent=1))
    print(text)


if __name__ == "__main__":
    main()
