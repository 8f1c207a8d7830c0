"""MathQA-Python split by templates: no training question has the wording of a question of the test.

    python -m widen_recipes.study mathqa data/mathqa data/templates
    python -m widen_recipes.study mathqa_small data/mathqa data/templates_small      # programs of at most nine lines

reads ``gain_train``, ``gain_dev`` and ``gain_test`` .jsonl and writes the files of `write_templates`, the same on every machine.

A template is the words of a question without its numbers. In the published split most test questions repeat a training question with
other numbers, which a trained model always answers. A template of the test gives one question, so that problems are independent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .methods import write_files

TEST, DEV = 300, 60
"""Templates of the test and of the held-out data for early stopping. All others are for training."""
SHORT = 9
"""Lines of the longest program of the small form."""
FILES = ("gain_train.jsonl", "gain_dev.jsonl", "gain_test.jsonl")


def template(question: str) -> str:
    """The words of a question.

    >>> template("What is 20 % of 4,500.5 ?") == template("what is 7 % of 80 ?") == "what is of"
    True
    """
    return " ".join(re.findall(r"[a-z]+", question.lower()))


def by_templates(
    records: Iterable[dict[str, Any]], *, test: int = TEST, dev: int = DEV, seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """The records as ``train``, ``dev`` and ``test``. The order of templates is that of their hash with the seed.

    A template of the test gives the first of its questions and a template of dev all of them; no other file has them.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(template(str(record["question"])), []).append(record)
    if test + dev >= len(groups):
        raise ValueError(f"test={test}, dev={dev}: there are {len(groups)} templates, and training needs some too")
    order = sorted(groups, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).hexdigest())
    return {
        "train": [one for name in order[test + dev :] for one in groups[name]],
        "dev": [one for name in order[test : test + dev] for one in groups[name]],
        "test": [groups[name][0] for name in order[:test]],
    }


def write_templates(source: str | Path, folder: str | Path, *, most_lines: int | None = None) -> None:
    """Read the published files in ``source`` and write new ones to ``folder``.

    ``train`` has the problems of every other training template with their programs. ``problems`` has those of the other templates without
    programs: questions and answers. ``all`` has every training problem with its program. ``dev`` and ``test`` have other templates.

    Args:
      most_lines: leave out problems whose program has more lines.
    """
    lines = [line for name in FILES for line in (Path(source) / name).read_text(encoding="utf-8").splitlines()]
    files = by_templates(json.loads(line) for line in lines if line.strip())
    every = files["train"]
    known = set(list(dict.fromkeys(template(str(one["question"])) for one in every))[::2])
    split: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for one in every:
        split[template(str(one["question"])) in known].append(one)
    files |= {"train": split[True], "problems": split[False], "all": every}
    if most_lines is not None:
        files = {name: [one for one in some if _lines(one) <= most_lines] for name, some in files.items()}
    files["problems"] = [{key: one[key] for key in ("question", "answer")} for one in files["problems"]]
    write_files(folder, files)


def _lines(record: dict[str, Any]) -> int:
    return len(str(record["program"]).strip().splitlines())
