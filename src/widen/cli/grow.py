"""Add a model's own right answers to its training data, and train on them, in rounds.

  widen grow runs/NLL --prompts train.jsonl --task answers --held-out test.jsonl --out runs/grown
  widen grow ./my-model --prompts train.jsonl --checker own.py:check --weights uniform --epochs 2
  widen grow runs/NLL --prompts train.jsonl --task mbpp --decoding "min_p=0.05 then t=1.5"
  widen grow ./my-instruct-model --prompts train.jsonl --task answers --chat

Each round samples the last model on --prompts and judges the answers. It writes the answers that
are right and new to round-k/grown.jsonl, and trains on the original data and everything found so
far. The command stops after --rounds, or when a round finds nothing new.

The task or --checker judges the answers. In the task `answers`, the file lists the right answers.
mathqa_python, mbpp, humaneval and codecontests run the answer as a program. A text of `e2e` is
right if it states every part of its meaning. Programs and checkers run in a sandbox only.

With --find-only, the command trains nothing. Every round samples MODEL again. Train on the last
round-k/train.jsonl with any trainer; its column loss_weights holds the weights.

With --chat, each prompt is the user's message and each answer the assistant's: in the samples, the
held-out samples and the training. Rows that are conversations need --chat. What comes before the
answer at their end is the prompt, and only that answer is learnt.

If the command is killed, the same command continues: nothing is drawn, judged or trained twice. A
larger --rounds adds rounds.

--weights: how much each right answer to a prompt counts (the mean is 1):
  plain     every distinct answer counts the same
  sampled   as often as the answer was found, plus its copies in the data
  uniform   1 / (probability that a round finds the answer), at most --cap, as a mean over the
            rounds: aims at the uniform distribution over all right answers
"""

from __future__ import annotations

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD

from .show import bars, table_of
from .train import changes

if TYPE_CHECKING:
    from widen.run.grow import Growth, Round


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="run folder, model folder, or name on the hub")
    add("--prompts", required=True, metavar="FILE", help="problems to sample; without --data, also training data")
    add("--task", default="jsonl", metavar="NAME", help="format of --prompts and --held-out (default: jsonl)")
    add("--checker", default="", metavar="FILE.py:FUNCTION", help="your check(prompt, answer), instead of the task")
    add("--checker-file", action="append", default=[], metavar="FILE", help="a text file that the checker may open")
    add("--data", metavar="FILE", help="original training data (default: the completions in --prompts)")
    add("--data-task", default="jsonl", metavar="NAME", help="format of --data (default: jsonl)")
    add("--held-out", metavar="FILE", help="other problems, to measure each round's model")
    add("--limit", type=int, metavar="N", help="only the first N records of --prompts")
    add("--rounds", type=int, default=2, metavar="N", help="number of rounds, at most (default 2)")
    add("--num", type=int, default=64, metavar="N", help="samples per problem and round (default 64)")
    add("--decoding", default="min_p=0.05 then t=1.5", metavar="D", help="decoding (default: %(default)s)")
    add("--max-tokens", type=int, default=256, metavar="N", help="longer answers count as wrong (default 256)")
    add("--weights", default="plain", choices=("plain", "sampled", "uniform"), help="see above (default plain)")
    add("--cap", type=float, default=10.0, metavar="X", help="largest weight of --weights uniform (default 10)")
    add(
        "--from",
        dest="start",
        default="base",
        metavar="M",
        help="where training starts: base (MODEL, the default), last, or a path",
    )
    add("--held-out-num", type=int, metavar="N", help="samples per held-out problem (default: --num)")
    add("--held-out-decoding", default="t=1", metavar="D", help="decoding of the held-out samples (default t=1)")
    add("--find-only", action="store_true", help="train nothing; use OUT/round-k/train.jsonl with any trainer")
    add("--chat", action="store_true", help="ask and train through the model's chat template")
    add("--fenced", action="store_true", help="the program is the first block between ``` marks")
    add(
        "--wall-seconds", type=float, default=10.0, metavar="S", help="time limit for a program or a check (default 10)"
    )
    add("--seed", type=int, default=0, help="seed of the samples and the training (default 0)")
    add = parser.add_argument_group("training, as in widen train").add_argument
    add("--epochs", type=float, metavar="N", help="passes over the data (default 1)")
    add("--lr", type=float, metavar="LR", help="learning rate")
    add("--batch-size", type=int, metavar="N", help="sequences per step (default 8)")
    add("--loss", metavar="SPEC", help="training loss (default nll)")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key, such as precision=fp32")
    add = parser.add_argument_group("where").add_argument
    add("--out", type=Path, metavar="DIR", help="output folder (default: runs/grow-MODEL)")
    add("--device", help="cpu or cuda (default: cuda if there is one)")
    add("--dtype", default="auto", help="dtype of the weights while sampling (default: as they were saved)")
    add("--rows", type=int, metavar="N", help="draw N samples at a time (default: as many as fit into memory)")
    add(
        "--servers",
        default="",
        metavar="URLS",
        help="sample from these servers (URL,URL); they serve each round's model",
    )
    add("--ray", metavar="ADDRESS", help="judge on this Ray cluster (pip install 'widen[ray]')")


def main(options: argparse.Namespace) -> int:
    """Grow, print one line per round and a table."""
    from rich.console import Console

    from widen.run.finetune.defaults import device_for
    from widen.run.grow import grow
    from widen.run.grow.rounds import last_model

    config, console = make_growth(options), Console(soft_wrap=True, highlight=False, markup=False)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(options.model).name).strip("_.") or "model"
    out = options.out or Path("runs") / f"grow-{name}"
    with bars() as progress:
        rounds = grow(
            config,
            out,
            device=device_for(options.device),
            servers=tuple(filter(None, options.servers.split(","))),
            ray=options.ray,
            rows=options.rows,
            progress=progress,
            say=console.print,
        )
    console.print(_table(rounds, config), soft_wrap=False)
    if config.find_only:
        last = max((one.round for one in rounds if one.rows), default=0)
        console.print(
            f"rows to train on: {out / f'round-{last}/train.jsonl' if last else 'none, as nothing new was found'}"
        )
    else:
        console.print(f"model: {last_model(config, out, rounds)}")
    console.print(f"all numbers: {out / 'grow.json'}")
    return 0


def make_growth(options: argparse.Namespace) -> Growth:
    """The settings that the flags name."""
    from widen.run.finetune.config import Source, micro_batch_for
    from widen.run.finetune.defaults import precision_for
    from widen.run.grow import Growth
    from widen.run.value import set_key

    training: dict[str, Any] = {"save_dtype": "auto", "seed": options.seed}
    flags = {name: name for name in ("epochs", "lr", "batch_size", "loss")}
    asked = changes(options, flags, example="precision=fp32")
    if options.find_only and (asked or options.start != "base"):
        raise ValueError(f"--find-only trains nothing: leave out {', '.join([*asked] or ['--from'])}")
    for key, text in asked.items():
        set_key(training, key, text)
    training.setdefault("precision", precision_for(options.device))
    size = training.get("batch_size", 8)
    if "micro_batch" not in training and isinstance(size, int) and size >= 1:
        training["micro_batch"] = micro_batch_for(size)
    given = {one.name: vars(options)[one.name] for one in fields(Growth) if one.name in vars(options)}
    held_out = Source(task=options.task, path=options.held_out, split="test") if options.held_out else None
    own = {
        "prompts": Source(task=options.task, path=options.prompts, limit=options.limit),
        "data": Source(task=options.data_task, path=options.data) if options.data else None,
        "held_out": held_out,
        "checker_files": tuple(options.checker_file),
        "held_out_num": options.num if options.held_out_num is None else options.held_out_num,
        "training": training,
    }
    return Growth(**given | own)


def _table(rounds: list[Round], config: Growth) -> object:
    """One row per round: what the samples held, and how the model that came out of it does on held-out problems."""
    found = {r.metric for one in rounds for r in one.records if r.metric.startswith("pass@")}
    passes = sorted(found, key=lambda name: int(name.removeprefix("pass@")))
    # The first and the last only: more columns would break words in a terminal of 80 columns.
    held = [*dict.fromkeys((passes[0], passes[-1])), "coverage"] if passes else []
    headers = ["round", "new", "rows", "several", "precision", "distinct"]
    headers += [f"held out\n{'distinct' if name == 'coverage' else name}" for name in held]
    rows = []
    for one in rounds:
        sampled = (one.value(name, held_out=False) for name in ("several", "precision", "coverage"))
        numbers = [*sampled, *(one.value(name, held_out=True) for name in held)]
        counts = [f"{one.new:,}", f"{one.rows:,}"] if one.round else ["", ""]
        rows.append([str(one.round), *counts, *("" if v is None else f"{v:.3f}" for v in numbers)])
    caption = "new, several, precision and distinct (right answers per prompt): samples of the model before the training of that round"
    return table_of(
        f"weights {config.weights}, {config.decoding}", headers, rows, caption=caption, box=SIMPLE_HEAD, padding=0
    )
