"""Draw samples from models or servers. Each model and decoding gets one file.

  widen sample runs/NAME --prompts prompts.jsonl --num 100 --temperatures 0.7 1 1.5
  widen sample runs/NAME --prompts prompts.jsonl --decodings t=1 "min_p=0.1 then t=2"
  widen sample ./my-model --prompts prompts.jsonl --temperatures 0.7 1 --methods plain top_p=0.9
  widen sample ./my-model --prompts questions.txt --chat --system "Use one word." --stop "\\n\\n"
  widen sample runs/NAME --task mbpp --prompts test.jsonl      prompts as in widen train --task mbpp
  widen sample http://gpu1:8000,http://gpu2:8000 --prompts prompts.jsonl     servers of one model
  widen sample vllm:./my-model --prompts prompts.jsonl                       vLLM in this process
  widen sample runs/NAME --num 20000                           a run of the integer task: no prompts

Decodings: t= top_k= top_p= min_p= typical= epsilon= eta= top_n_sigma= kl_sigma=,without=bos|field.
Join settings with " then " in the order to apply: "min_p=0.1 then t=2". Or join them with commas
and add order=temperature_first|temperature_last|vllm|a>b>c. t=0 is greedy. --methods takes the same
settings without t=; every method is combined with every temperature.

Prompts: a .jsonl file with "prompt" in each line ("id" and "without" are optional), a text file
with one prompt per line, or, with --task, records of that task. Conversations ("messages",
"conversations", a list as "prompt") always use the chat template.

For a folder of runs, widen samples every trained model in it. A stopped command continues where it
was.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from widen.disk.lock import hold

from .show import bars, table_of, trained_models

if TYPE_CHECKING:
    from widen.sample import Engine, Prompt, Samples, SamplingProgress, Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the verb."""
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="run folder, model folder, name on the hub, URLs, or vllm:PATH")
    add("--prompts", type=Path, metavar="FILE", help="prompts to answer (runs of the integer task need none)")
    add("--task", metavar="NAME", help="read --prompts as records of this task, in its prompt format")
    add("--lm-eval", metavar="TASK", help="take the prompts of a task of lm-evaluation-harness (name or YAML file)")
    add("--limit", type=int, metavar="N", help="only the first N prompts")
    add("--num", type=int, default=100, metavar="N", help="samples per prompt (default 100); more can be added later")
    add = parser.add_argument_group("how").add_argument
    add("--temperatures", type=float, nargs="+", metavar="T", help="temperatures (default 1; 0 is greedy)")
    add(
        "--methods",
        nargs="+",
        metavar="M",
        help="cut-offs to combine with every temperature: plain (none, the default), top_p=0.9",
    )
    add("--decodings", nargs="+", metavar="D", help="whole decodings instead of the two above; grid is a set of 77")
    add("--max-tokens", type=int, default=256, metavar="N", help="longest sample in tokens (default 256)")
    add("--seed", type=int, default=0, help="seed of the samples (default 0)")
    add = parser.add_argument_group("conversations").add_argument
    add("--chat", action="store_true", help="send each prompt as the user's message, through the model's chat template")
    add("--system", default="", metavar="TEXT", help="system message of every prompt (implies --chat)")
    add(
        "--stop",
        nargs="+",
        default=[],
        metavar="STRING",
        help="end a sample before any of these strings; \\n is a line break",
    )
    add = parser.add_argument_group("where").add_argument
    add("--out", type=Path, default=Path("runs"), metavar="DIR", help="files go to DIR/MODEL/samples (default runs)")
    add("--batch", type=int, metavar="N", help="samples drawn at a time; for a server, requests at a time")
    add("--device", help="cpu or cuda, for a local model (default: cuda if available)")
    add("--dtype", default="auto", help="dtype of a local model (default: as it was saved)")
    add("--served-model", default="", metavar="NAME", help="which model of a server to use (default: the one it lists)")


def main(options: argparse.Namespace) -> int:
    """Sample each model in turn."""
    from rich.console import Console

    from widen.run.chat_form import form_note
    from widen.sample import collect, read_samples

    prompts, console = _prompts(options), Console()
    options.chat = options.chat or bool(options.system) or any(one.messages for one in prompts or ())
    settings = make_settings(options)
    last: list[SamplingProgress] = []

    def notice(text: str) -> None:
        console.print(f"[yellow]{text}[/]")

    def progress(now: SamplingProgress) -> None:
        last[:] = [now]
        shown(folder.parent.name, now.done, now.total)

    for model in trained_models(options.models):
        engine, folder, unprompted = open_model(model, options, notice=notice)
        if prompts is None and unprompted is None:
            raise ValueError(f"{model} needs --prompts FILE: the prompts to answer")
        if said := form_note(model, getattr(engine, "tokenizer", None), chat=options.chat):
            notice(said)
        asked = prompts or unprompted or []
        last.clear()
        try:
            with hold(folder.parent), bars() as shown:
                files = collect(
                    engine, asked, settings, num=options.num, folder=folder, progress=progress, notice=notice
                )
        except (OSError, ValueError, KeyboardInterrupt):
            if last:
                done = f"{last[0].done} of {last[0].total} samples are in {folder}"
                print(f"{done}; the same command continues from there", file=sys.stderr)
            raise
        found = {path.name: read_samples(path) for path in files}
        console.print(_table(f"{model} -> {folder}", found))
        if cut := sum(one.cut for one in found.values()):
            of = f"{cut:,} of {sum(map(len, found.values())):,} samples"
            notice(f"{of} were cut at --max-tokens {options.max_tokens}: these answers are incomplete")
    return 0


def _prompts(options: argparse.Namespace) -> list[Prompt] | None:
    """The lines of a file, or the problems of a task."""
    from widen.sample import read_prompts

    if options.limit is not None and (options.limit < 1 or (options.prompts is None and options.lm_eval is None)):
        raise ValueError(f"--limit {options.limit}: at least 1, and of --prompts or --lm-eval")
    if options.lm_eval is not None:
        from widen.run.questions import prompts_for
        from widen.run.scoring.harness import HarnessTask

        if options.prompts is not None or options.task is not None:
            raise ValueError(f"--lm-eval {options.lm_eval} brings its own prompts: leave out --prompts and --task")
        return prompts_for(HarnessTask.load(options.lm_eval, limit=options.limit).questions, None)
    if options.task is not None:
        from widen.run.questions import prompts_for, task_questions

        if options.prompts is None:
            raise ValueError(f"--task {options.task} needs --prompts FILE: the file with its records")
        return prompts_for(task_questions(options.task, str(options.prompts), limit=options.limit), None)
    return read_prompts(options.prompts)[: options.limit] if options.prompts is not None else None


def make_settings(options: argparse.Namespace) -> list[Settings]:
    """--decodings, or every temperature with every method, without duplicates."""
    from widen.sample import Decoding, Settings, parse_decodings

    if options.decodings and (options.temperatures or options.methods):
        raise ValueError("--decodings names whole decodings: leave out --temperatures and --methods")
    found: dict[str, Decoding] = {one.name: one for one in parse_decodings(options.decodings or ())}
    if not options.decodings:
        for temperature in options.temperatures or (1.0,):
            for method in options.methods or ("plain",):
                one = Decoding.parse(f"t={temperature:g}" + ("" if method == "plain" else f",{method}"))
                found.setdefault(one.name, one)
    stop = tuple(one.replace("\\n", "\n").replace("\\t", "\t") for one in options.stop)
    about = {"max_tokens": options.max_tokens, "seed": options.seed, "stop": stop}
    return [Settings(decoding=one, chat=options.chat, system=options.system, **about) for one in found.values()]


def open_model(
    model: str, options: argparse.Namespace, *, notice: Callable[[str], None]
) -> tuple[Engine, Path, list[Prompt] | None]:
    """The engine, the folder for its files, and its prompts if it needs no file."""
    from widen import sample
    from widen.data import MulMod
    from widen.models.convert import load_pretrained
    from widen.run.experiment import load
    from widen.run.finetune.config import is_finetune
    from widen.run.finetune.defaults import device_for
    from widen.run.finetune.model_files import is_run
    from widen.run.folder import RunFolder

    elsewhere = options.out / folder_name(model.removeprefix("vllm:")) / "samples"
    rows = {} if options.batch is None else {"batch": options.batch}
    if model.startswith(("http://", "https://")):
        flight = {} if options.batch is None else {"in_flight": options.batch}
        server = sample.ServerEngine(model.split(","), model=options.served_model, notice=notice, **flight)
        return server, elsewhere, None
    if model.startswith("vllm:"):
        return sample.VllmEngine(model.removeprefix("vllm:"), dtype=options.dtype, **rows), elsewhere, None
    if not is_run(model):
        return _open_local(model, options), elsewhere, None
    folder = RunFolder(model)
    if not folder.is_trained:
        raise FileNotFoundError(f"{model} has no trained model yet: run `widen train` or `widen run` first")
    if is_finetune(folder.read(folder.config)):
        return _open_local(str(folder.checkpoint), options), folder.samples("").parent, None
    task = getattr(load(folder.config).model, "data", None)
    if not isinstance(task, MulMod):
        raise ValueError(
            f"{model}: only the integer task can be sampled; `widen score {model}` is exact without samples"
        )
    small = load_pretrained(folder.checkpoint).to(device_for(options.device or "cpu"))
    engine = sample.MulModEngine(small, task, name=folder.path.name, **rows)
    return engine, folder.samples("").parent, [sample.UNPROMPTED]


def folder_name(model: str) -> str:
    """The name in ``--out`` for a model that has no run folder: a name on the hub, URLs, or a folder by the last part of its path.

    A folder that is not in the working directory also gets a hash of its path: two folders of one name stay apart.
    """
    from widen.run.value import content_hash

    path = Path(model).resolve()
    if not path.is_dir():
        return _as_file_name(model)
    return _as_file_name(path.name) + ("" if path.parent == Path.cwd() else f"-{content_hash(str(path))[:8]}")


def _as_file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_.")


def _open_local(model: str, options: argparse.Namespace) -> Engine:
    from widen import sample
    from widen.run.finetune.defaults import device_for

    try:
        from transformers.utils import logging
    except ImportError:
        raise ImportError("Hugging Face models need transformers: pip install 'widen[hf]'") from None
    logging.disable_progress_bar()
    try:
        device = device_for(options.device)
        return sample.LocalEngine.load(model, device=device, dtype=options.dtype, batch=options.batch)
    except (OSError, ValueError) as error:
        here = "" if Path(model).is_dir() else "there is no folder of that name here, and as a name on the hub: "
        raise ValueError(
            f"cannot open {model!r} as a run folder or a Hugging Face model: {here}{str(error).splitlines()[0]}"
        ) from None


def _table(title: str, files: dict[str, Samples]) -> object:
    """What is in the files now."""
    rows = []
    for name, found in files.items():
        count, known = len(found), [s.logq for s in found if s.logq is not None]
        cut, tokens = f"{found.cut:,} ({found.cut / count:.0%})", sum(s.num_tokens or 0 for s in found) / count
        distinct = len({(s.prompt, s.text) for s in found}) / count
        logq = f"{sum(known) / len(known):.2f}" if known else "-"
        rows.append([name, f"{count:,}", f"{len(found.prompts):,}", cut, f"{tokens:.1f}", f"{distinct:.1%}", logq])
    return table_of(title, ("file", "samples", "prompts", "cut", "tokens", "distinct", "log q"), rows)
