"""Find the best loss and decoding for your model, your data and your wish.

  widen advise --model M --data all.jsonl --task answers \\
      --wish "recall at precision >= 0.9" --budget 30m
  widen advise --model M --data all.jsonl --checker mine.py:check \\
      --wish "pass@10 at pass@1 >= 0.3" --budget 2h --device cuda
  widen advise ... --chat                         an Instruct model, through its chat template
  widen advise ... --dry-run                      print the plan and stop

It splits the data by prompt into train, validation and test. It scores the model as it is under a
grid of decodings. Then it trains with several losses for a short time, drops the worse half, and
trains the others longer. NLL, the usual loss, is never dropped. It also averages the weights of the
NLL model with those of the model as it is. With a checker or a task of programs, it samples the NLL
model on the training prompts and trains NLL on the new right answers too, as widen grow does. It
chooses on the validation prompts and measures on the test prompts. To continue a stopped search,
run the same command again.

With --chat, each prompt is the user's message and each answer the assistant's: in the samples, the
scores, the training and the printed commands. Rows that are conversations need --chat. What comes
before the answer at their end is the prompt, and only that answer is learnt.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .show import bars

if TYPE_CHECKING:
    from widen.run.advise.search import Search


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("--model", required=True, help="model folder, name on the hub, or run folder")
    add("--data", required=True, help="file with prompts and answers: .jsonl, .json or .csv")
    add("--wish", required=True, help='what to maximise, and a level to keep: "recall at precision >= 0.9"')
    add("--budget", required=True, metavar="TIME", help="time for the whole search, such as 30m, 2h or 1h30m")
    right = parser.add_argument_group("the judge: what decides which answers are right (give one)")
    right.add_argument(
        "--task",
        default="jsonl",
        help="answers (the data lists every right answer), mathqa_python, mbpp, humaneval or codecontests",
    )
    right.add_argument("--checker", metavar="FILE.py:FUNCTION", help="your check(prompt, answer) -> bool, in a sandbox")
    right.add_argument("--embedder", metavar="MODEL", help="compare with the data's texts by k-NN on its embeddings")
    add(
        "--losses",
        nargs="+",
        metavar="SPEC",
        help="losses to try besides NLL (default: TruncR 0.1, c-Div 1.4, GEM 0.7)",
    )
    add("--chat", action="store_true", help="ask and train through the model's chat template")
    add("--lora", type=int, metavar="R", help="train adapters of this rank (default: all weights)")
    add("--num", type=int, metavar="N", help="samples per prompt (default: 16; --embedder: 1; --task answers: 100)")
    add("--max-tokens", type=int, metavar="N", help="longest sample (default: twice the data's longest completion)")
    add("--batch-size", type=int, default=8, metavar="N", help="sequences per training step (default: 8)")
    add("--lr", type=float, help="learning rate (default: as in `widen train`)")
    add("--seed", type=int, default=0, help="seed of the splits, the training and the samples (default: 0)")
    add("--device", help="cpu or cuda (default: cuda if there is one)")
    add("--out", type=Path, default=Path("advice"), metavar="DIR", help="output folder (default: advice)")
    add("--dry-run", action="store_true", help="print the plan and stop")


def main(options: argparse.Namespace) -> int:
    """Print the plan, search, print the advice, write the page."""
    from widen.disk.lock import hold
    from widen.report.run_report import write_report
    from widen.run.advise.request import LOSSES, AdviceRequest
    from widen.run.advise.search import Search
    from widen.run.advise.wish import parse_budget
    from widen.run.finetune.defaults import device_for

    given = {one.name: getattr(options, one.name) for one in fields(AdviceRequest)}
    given |= {"budget": parse_budget(options.budget), "losses": tuple(options.losses or LOSSES)}
    given["device"] = device_for(options.device)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    request = AdviceRequest(**given)
    with hold(options.out):
        search = Search(request, options.out)
        console.print(*plan_lines(search), sep="\n")
        if options.dry_run:
            return 0
        with bars() as progress:
            advice = search.advise(say=console.print, progress=progress)
        console.print("", *advice.sentences, "", *advice.commands, sep="\n")
        try:
            page = f"page: {write_report([options.out], options.out / 'report.html', figures=False)[0]}"
        except ImportError as error:  # what is already computed does not need it
            page = f"no page: {error}; then `widen report {shlex.quote(str(options.out))}`"
    console.print("", page, f"advice: {options.out / 'advice.json'}", sep="\n")
    return 0


def plan_lines(search: Search) -> list[str]:
    """The plan in words, with estimates of time and memory."""
    from widen.run.advise.plan import duration
    from widen.run.advise.request import grown_num
    from widen.run.chat_form import check_form

    request, plan, counts = search.request, search.plan, search.splits.counts
    rungs = [
        f"{1 + rivals} loss{'es' * (rivals > 0)} x {steps} steps"
        for rivals, steps in zip(plan.rivals, plan.steps, strict=True)
    ]
    repeats = f" ({counts['repeats']:,} of them repeat another)" if counts["repeats"] else ""
    growing = [f"growing: {grown_num(search.splits)} samples of every training row's prompt"] if plan.grow else []
    left_out = [loss for loss in request.losses if loss not in plan.losses]
    lines = [
        f"wish: {request.parsed}",
        f"data: {counts['train']:,} rows to train on{repeats}, {counts['validation']:,} to choose on, {counts['test']:,} to test on",
        f"score: {request.score.kind}, {len(request.grid)} decodings of every model",
        f"losses: {', '.join(plan.losses)}" + (f" (no time for {', '.join(left_out)})" if left_out else ""),
        f"training: {', then '.join(rungs)}",
        *growing,
        f"estimate: about {duration(plan.seconds)} of {duration(request.budget)}; {plan.memory / 2**30:.1f} GiB while training "
        f"{plan.parameters / 1e6:.3g}M parameters on {request.device}",
        f"measured: {plan.step:.2g} s per step, {plan.check:.2g} s per evaluation with its checkpoint, {plan.score:.2g} s to score a model",
    ]
    if note := check_form(request.model, chat=request.chat):
        lines.append(note)
    return [*lines, f"{duration(search.spent)} spent before; continuing"] if search.spent > 1 and search.jobs else lines
