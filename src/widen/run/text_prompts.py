"""What a model is asked and what the right answers are, kept beside the runs: whoever scores the samples needs nothing else.

<root>/prompts/<task>-<hash>.jsonl      {"id": ..., "prompt": ..., "completion": ..., "facts": {...}}   one example a line
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import Example, read
from widen.sample.prompts import Prompt

from .text_experiment import TextExperiment
from .value import content_hash


class Asked(NamedTuple):
    """One example, under the name that its prompt has in every samples file."""

    id: str
    example: Example


def asked_of(experiment: TextExperiment, root: str | Path, *, skip_bad: bool = False) -> list[Asked]:
    """The examples of an experiment: from the file beside the runs, or else from their source, and then they are kept there."""
    path = prompts_path(experiment, root)
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return [Asked(r["id"], Example(r["prompt"], r["completion"], r["facts"])) for r in records]
    source, limits = experiment.prompts, [experiment.prompts.limit, experiment.num_prompts]
    limit = min((number for number in limits if number is not None), default=None)
    found = read(source.task, source.path, split=source.split, limit=limit)
    if found.bad and not skip_bad:
        shown = "\n  ".join(found.bad[:10])
        raise ValueError(
            f"{len(found.bad)} records of the prompts cannot be used (--skip-bad leaves them out):\n  {shown}"
        )
    if not found.examples:
        raise ValueError(f"the prompts of {experiment.name!r} hold no examples")
    wrapped = [one._replace(prompt=experiment.template.replace("{prompt}", one.prompt)) for one in found.examples]
    asked = named(wrapped, chat=experiment.chat)
    _keep(path, asked)
    return asked


def prompts_path(experiment: TextExperiment, root: str | Path) -> Path:
    """Where the examples are kept: named by where they come from and how many of them are taken."""
    key = content_hash(experiment.prompts, experiment.num_prompts, experiment.template, experiment.chat)
    return Path(root) / "prompts" / f"{experiment.prompts.task}-{key}.jsonl"


def named(examples: Sequence[Example], *, chat: bool = False) -> list[Asked]:
    """Examples with the names of their prompts: a digest, so that order and number change no sample; a repeated prompt is counted.

    >>> twice = [Example("1 + 1", "2", {"answer": 2.0}), Example("1 + 1", "10", {"answer": 10.0})]
    >>> [asked.id for asked in named(twice)]
    ['eca4b65a791b', 'eca4b65a791b-2']
    """
    seen: dict[str, int] = {}
    asked = []
    for example in examples:
        name = Prompt(text=example.prompt).id + ("-chat" if chat else "")
        seen[name] = seen.get(name, 0) + 1
        asked.append(Asked(name if seen[name] == 1 else f"{name}-{seen[name]}", example))
    return asked


def prompts_for(asked: Sequence[Asked], tokenizer: Any | None) -> list[Prompt]:
    """What the engine continues; with a tokenizer, through its chat template."""
    if tokenizer is None:
        return [Prompt(text=one.example.prompt, id=one.id) for one in asked]
    prompts = []
    for one in asked:
        turns = [{"role": "user", "content": one.example.prompt}]
        text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        # The template writes the first token, and tokenizing a text adds it: one of them is enough.
        prompts.append(Prompt(text=text.removeprefix(tokenizer.bos_token or ""), id=one.id))
    return prompts


def _keep(path: Path, asked: Sequence[Asked]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        for one in asked:
            record = {"id": one.id, **one.example._asdict(), "facts": dict(one.example.facts)}
            file.write(json.dumps(record, ensure_ascii=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
