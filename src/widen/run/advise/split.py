"""Split a data set into train, validation and test by prompt: no prompt is in two splits.

    <folder>/train.jsonl  validation.jsonl  test.jsonl     records of the task
    <folder>/watch.jsonl                                   all records of the validation prompts, for early stopping
    <folder>/prompts.jsonl                                 in chat: the records of the training prompts, as in the data

With the task `answers`, train.jsonl and watch.jsonl have one row per right answer. In chat, their prompts and completions are messages.

A prompt's split depends on the seed and on the set of prompts, not on the order of the records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import listed, spellings, task
from widen.data.tasks.conversations import in_form
from widen.data.tasks.definition import LOSS_WEIGHTS
from widen.data.tasks.source_files import records
from widen.disk.atomic import write_text

from ..finetune.config import Source

SHARES = {"validation": 0.2, "test": 0.3}
"""Shares of the prompts; the rest is for training."""
MOST = {"validation": 256, "test": 512}
"""Most prompts of each; scoring more takes time that training needs."""
FEWEST = 10
"""Fewest distinct prompts of a data set."""


class Splits(NamedTuple):
    """The files, the number of rows in each, of ``test_prompts``, and of training rows that repeat another (``repeats``).

    ``prompts`` has the training problems with what a judge needs.
    """

    train: Source
    watch: Source
    validation: Source
    test: Source
    counts: dict[str, int]
    prompts: Source


def split(task_name: str, source: str, folder: Path, *, seed: int, once: bool, chat: bool = False) -> Splits:
    """Write the splits of a data set; the same arguments give the same files.

    Args:
      once: of several records with one prompt, validation and test keep the first. Texts that are compared with reference texts keep all.
      chat: train on conversations; see `widen.data.tasks.conversations.in_form`.
    """
    groups = _by_prompt(task_name, source, chat=chat)
    if len(groups) < FEWEST:
        raise ValueError(
            f"data={source!r}: {len(groups)} distinct prompts; at least {FEWEST} are needed for three splits"
        )
    order = sorted(groups, key=lambda prompt: hashlib.sha256(f"{seed}|{prompt}".encode()).digest())
    test = order[: min(MOST["test"], round(SHARES["test"] * len(order)))]
    validation = order[len(test) :][: min(MOST["validation"], round(SHARES["validation"] * len(order)))]
    rest = [prompt for prompt in groups if prompt not in {*test, *validation}]
    rows = {
        "train": [record for prompt in rest for record in groups[prompt]],
        "watch": [record for prompt in validation for record in groups[prompt]],
        "validation": [record for prompt in validation for record in groups[prompt][: 1 if once else None]],
        "test": [record for prompt in test for record in groups[prompt][: 1 if once else None]],
    }
    trained = task_name
    if chat:
        rows["prompts"] = rows["train"]
    if task_name == "answers":
        trained = "jsonl"
        rows |= {"train": _each_answer(rows["train"]), "watch": _each_answer(rows["watch"])}
    if chat:
        rows |= {name: [_in_chat(trained, record) for record in rows[name]] for name in ("train", "watch")}
        trained = "jsonl"
    for name, mine in rows.items():
        write_text(folder / f"{name}.jsonl", "".join(json.dumps(record) + "\n" for record in mine))

    def of(name: str, format: str) -> Source:
        return Source(task=format, path=str(folder / f"{name}.jsonl"))

    watch = replace(of("watch", trained), split="validation")
    counts = {name: len(mine) for name, mine in rows.items() if name not in ("watch", "prompts")}
    learnt = map(task(trained).example, rows["train"])
    distinct = {repr((one.prompt, one.completion, one.messages)) for one in learnt}
    counts |= {"repeats": counts["train"] - len(distinct), "test_prompts": len(test)}
    train = of("train", trained)
    prompts = of("prompts", task_name) if chat else train
    return Splits(train, watch, of("validation", task_name), of("test", task_name), counts, prompts)


def _by_prompt(task_name: str, source: str, *, chat: bool) -> dict[str, list[dict[str, Any]]]:
    """The records of each prompt; every record must be usable, with a completion to learn."""
    known, groups, bad = task(task_name), dict[str, list[dict[str, Any]]](), list[str]()
    for where, fields, fault in records(
        source or str(known.hub), split="train", columns=(*known.columns, LOSS_WEIGHTS)
    ):
        try:
            if fault:
                raise ValueError(fault)
            example = in_form(known.example(fields), chat=chat)
            if not example.completion:
                raise ValueError(known.unanswered(fields))
            if task_name == "answers" and example.prompt in groups:
                raise ValueError(
                    f"the prompt {example.prompt[:40]!r} appears twice: list all its answers in one record"
                )
        except ValueError as error:
            bad.append(f"{where}: {error}")
            continue
        groups.setdefault(example.prompt, []).append(dict(fields))
    if bad:
        raise ValueError(f"{len(bad)} record{'s' * (len(bad) > 1)} of {source} cannot be used:\n{listed(bad)}")
    return groups


def _each_answer(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per right answer, in its first spelling, for training."""
    return [{"prompt": one["prompt"], "completion": spellings(answer)[0]} for one in found for answer in one["answers"]]


def _in_chat(task_name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a conversation of the task `jsonl`, for training."""
    found = in_form(task(task_name).example(record), chat=True)
    talk = {"prompt": list(found.asked), "completion": list(found.messages[found.given :])}
    return talk | ({LOSS_WEIGHTS: record[LOSS_WEIGHTS]} if LOSS_WEIGHTS in record else {})
