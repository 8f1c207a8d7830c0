"""One trainer that changes between the stock loss and ours at every step: what a step costs with each, and nothing else between them.

    python benchmarks/bench_trainer_switch.py --model PATH --data gain_train.jsonl      8,192 tokens a step on the GPU, bfloat16 autocast
    python benchmarks/bench_trainer_switch.py --device cpu --tokens 256 --rounds 10     the shape of it, with a small random model

`bench_trainer.py` gives every variant a trainer of its own, and two trainers of one and the same loss differ by up to 5 %, whatever
they train, for as long as they live. Here there is one trainer, one model, one optimizer and one loader of data;
before each step the trainer's class, its filter of nan losses and its loss become those of one variant.
Every round has a step of each, in an order of its own; a step reaches from its beginning to the next one's, log and data included, and
ends with the device at rest. The ratio is that of the stock loss's step to the variant's in the same round.
"""

import json
import math
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
import transformers
from bench_trainer import blocks, collate, load_model, task_parser
from transformers import Trainer, TrainerCallback, TrainingArguments

from widen.hosts.transformers import Trainer as WidenTrainer
from widen.losses import parse
from widen.train.objective import Objective

VARIANTS = {"stock loss": None, "widen, nll": "nll", "widen, cdiv:alpha=1.4": "cdiv:alpha=1.4"}


class Stock(Trainer):
    """The host, which has nothing to settle at the end of a step."""

    def _end_of_step(self):
        pass


class Switch(TrainerCallback):
    """Makes the trainer another one before every step, and notes how long the step before it took."""

    def __init__(self, seconds):
        self.until, self.shuffle = time.perf_counter() + seconds, random.Random(0)
        self.objectives = {name: Objective(parse(loss)) for name, loss in VARIANTS.items() if loss}
        self.trainer, self.order, self.now, self.rounds = None, [], None, [{}]

    def on_step_begin(self, *_, **__):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        clock = time.perf_counter()
        if self.now is not None:
            self.rounds[-1][self.now] = clock - self.begun
        if not self.order:
            self.order = self.shuffle.sample(list(VARIANTS), len(VARIANTS))
            self.rounds.append({})
        self.become(self.order.pop())
        self.begun = time.perf_counter()

    def become(self, name):
        trainer, self.now = self.trainer, name
        stock = VARIANTS[name] is None
        trainer.__class__ = Stock if stock else WidenTrainer
        trainer.args.logging_nan_inf_filter = stock
        if not stock:
            trainer.objective = self.objectives[name]

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= time.perf_counter() > self.until

    def on_train_end(self, *_, **__):
        self.become("widen, nll")


def measure(options):
    """Seconds of a step of every variant, round by round; the first rounds are left out."""
    transformers.logging.set_verbosity_error()
    model, switch = load_model(options), Switch(options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=options.rounds * len(VARIANTS), per_device_train_batch_size=options.tokens // options.length,
            learning_rate=1e-5, warmup_steps=5, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
            bf16=options.device == "cuda", use_cpu=options.device == "cpu", max_grad_norm=1.0,
        )  # fmt: skip
        options.turns, options.turn = options.rounds, len(VARIANTS)  # so many steps of data
        switch.trainer = WidenTrainer(
            model=model, args=arguments, train_dataset=blocks(options, model.config.vocab_size), data_collator=collate,
            callbacks=[switch], loss="nll",
        )  # fmt: skip
        switch.trainer.remove_callback(transformers.PrinterCallback)
        switch.trainer.train()
    whole = [one for one in switch.rounds if len(one) == len(VARIANTS)]
    return whole[options.skip :]


def report(options, rounds):
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    data = f" --data {Path(options.data).name}" if options.data else ""
    precision = "bfloat16 autocast on float32 weights" if options.device == "cuda" else "float32"
    lines = [
        "# One trainer of transformers that changes its loss at every step", "",
        f"Command: `python benchmarks/bench_trainer_switch.py --model {options.name or options.model or '(a random one)'}{data} "
        f"--rounds {options.rounds} --seconds {options.seconds:g}`. Machine: "
        f"{machine}. torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}. "
        f"Date: {time.strftime('%Y-%m-%d')}.", "",
        f"{options.tokens:,} tokens a step ({options.tokens // options.length} rows of {options.length}), {precision}, AdamW. "
        f"{len(rounds)} rounds of a step of each count, after {options.skip} that do not. Speed: the stock loss's step over the "
        "variant's of the same round, median and geometric mean with its standard error.", "",
        "| variant | ms a step (median) | fastest tenth | tokens/s | speed, median | mean |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name in VARIANTS:
        own = [1e3 * one[name] for one in rounds]
        logs = [math.log(one["stock loss"] / one[name]) for one in rounds]
        mean, error = math.exp(statistics.mean(logs)), statistics.stdev(logs) / math.sqrt(len(logs))
        middle = statistics.median(own)
        lines.append(
            f"| {name} | {middle:.1f} | {statistics.quantiles(own, n=10)[0]:.1f} | {options.tokens / middle * 1e3:,.0f} | "
            f"{math.exp(statistics.median(logs)):.3f}x | {mean:.3f}x ± {mean * error:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = task_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="steps of each variant at most")
    parser.add_argument("--skip", type=int, default=5, help="rounds that are not counted")
    options = parser.parse_args()
    if options.rounds < options.skip + 3:
        parser.error(
            f"--rounds {options.rounds}: at least {options.skip + 3}, as the first {options.skip} are not counted"
        )
    options.length = min(options.length, options.tokens)
    rounds = measure(options)
    if len(rounds) < 2:
        raise SystemExit("cut off before two rounds were counted: nothing is written")
    options.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name().lower().replace(" ", "-") if options.device == "cuda" else "cpu"
    (options.out / f"trainer_switch_{name}.json").write_text(json.dumps(rounds, indent=1))
    (options.out / f"trainer_switch_{name}.md").write_text(text := report(options, rounds))
    print(text)


if __name__ == "__main__":
    main()
