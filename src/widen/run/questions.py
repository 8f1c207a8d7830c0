"""The prompts of an experiment with their right answers, kept beside the runs: scoring needs neither the data nor the model.

<root>/prompts/<task>-<hash>.jsonl      {"id": ..., "prompt": ..., "completion": ..., "facts": {...}}   one example per line
<root>/prompts/<task>-<hash>.source.json    digests of the file they were read from and of the .jsonl file
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import Example, Read, listed, read
from widen.data.tasks.conversations import in_form, template_ids
from widen.disk.atomic import write_text
from widen.disk.digest import file_digest, source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.sample.prompts import Prompt

from .experiment import Experiment
from .finetune.config import Source
from .value import content_hash


class Question(NamedTuple):
    """One example and the id that its prompt has in every samples file."""

    id: str
    example: Example


def prompts_path(experiment: Experiment, root: str | Path) -> Path:
    """The file of an experiment's questions, named by their source and number."""
    key = content_hash(experiment.prompts, experiment.num_prompts, experiment.template, experiment.chat)
    return Path(root) / "prompts" / f"{experiment.task}-{key}.jsonl"


def questions_of(experiment: Experiment, root: str | Path, *, skip_bad: bool = False) -> list[Question]:
    """The questions of an experiment: from the file beside the runs, or from their source, and then the file is written.

    If the source is on this machine and has changed, it is read again, or refused if samples of the old questions exist.
    """
    assert experiment.prompts is not None
    source, path = experiment.prompts.path, prompts_path(experiment, root)
    note = path.with_name(f"{path.stem}.source.json")
    digests = read_json(note) if note.exists() else {}
    digest = source_digest(source)
    if path.exists():
        kept = _kept(path, digests.get("prompts"))
        if digest is None or digests.get("digest") == digest:
            return kept
        try:
            same = _lines(_read(experiment)[1]) == _lines(kept)  # only the bytes of the source have changed
        except (ValueError, OSError):
            same = False
        if same:
            write_sealed(note, {"digest": digest, "prompts": file_digest(path)})
            return kept
        if any(path.parent.parent.glob("*/samples/*")):
            raise ValueError(
                f"{source} has changed since its prompts were kept in {path}, and the samples and scores there belong to the old prompts: "
                f"restore it, take another --out, or remove {path.parent.parent} to begin again"
            )
    found, questions = _read(experiment)
    _check(found, f"the prompts of {experiment.name!r}", skip_bad=skip_bad, hint=" (--skip-bad leaves them out)")
    write_text(path, _lines(questions))
    write_sealed(note, {"digest": digest, "prompts": file_digest(path)})
    return questions


def task_questions(task: str, source: str, *, limit: int | None = None) -> list[Question]:
    """The questions of a file, or of the split ``test`` of a data set."""
    found = read(task, source, split="test", limit=limit)
    _check(found, source or task, skip_bad=False)
    return named(found.examples)


def distinct_questions(source: Source, *, chat: bool = False) -> list[Question]:
    """The questions of a source, each once, though its rows may hold several answers to one prompt; see `in_one_form` for ``chat``.

    Rows are one question if their prompts and facts are equal. The fact ``references`` lists the answers of a row, so it does not count.
    """
    found = read(source.task, source.path, split=source.split, limit=source.limit)
    _check(found, source.path or source.task, skip_bad=False)
    first: dict[str, Example] = {}
    for one in in_one_form(found.examples, source, chat=chat):
        asked = {name: fact for name, fact in one.facts.items() if name != "references"}
        first.setdefault(json.dumps([one.prompt, one.asked, asked]), one)
    return named(list(first.values()), chat=chat)


def in_one_form(examples: Sequence[Example], source: Source, *, chat: bool) -> list[Example]:
    """The examples of a source as texts, or, with ``chat``, as conversations; an error names the example that cannot be."""
    found = []
    for number, one in enumerate(examples, start=1):
        try:
            found.append(in_form(one, chat=chat))
        except ValueError as error:
            where = f"{source.path or source.task}, example {number} ({one.prompt[:40]!r})"
            raise ValueError(f"{where}: {error}") from None
    return found


def _check(found: Read, source: str, *, skip_bad: bool, hint: str = "") -> None:
    if found.bad and not skip_bad:
        number = f"{len(found.bad)} record{'s' * (len(found.bad) > 1)}"
        raise ValueError(f"{number} of {source} cannot be used{hint}:\n{listed(found.bad)}")
    if not found.examples:
        raise ValueError(f"{source}: there are no examples")


def _kept(path: Path, expected: str | None) -> list[Question]:
    if expected is not None and file_digest(path) != expected:
        raise ValueError(
            f"{path} does not match its checksum in {path.stem}.source.json: it was damaged or edited; restore it"
        )
    try:
        found = []
        for r in (json.loads(line) for line in path.read_bytes().splitlines()):
            chat = {"messages": tuple(r.get("messages", ())), "given": r.get("given", 0)}
            found.append(Question(r["id"], Example(r["prompt"], r["completion"], r["facts"], **chat)))
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not hold examples: {error}") from None


def _read(experiment: Experiment) -> tuple[Read, list[Question]]:
    """What the source of an experiment holds now, and the questions made of it."""
    source = experiment.prompts
    assert source is not None
    limit = min((number for number in (source.limit, experiment.num_prompts) if number is not None), default=None)
    found = read(source.task, source.path, split=source.split, limit=limit)
    wrapped = [one._replace(prompt=experiment.template.replace("{prompt}", one.prompt)) for one in found.examples]
    return found, named(wrapped, chat=experiment.chat)


def _lines(questions: Sequence[Question]) -> str:
    records = [{"id": one.id, **one.example._asdict(), "facts": dict(one.example.facts)} for one in questions]
    for record in records:
        if not record["messages"]:
            del record["messages"], record["given"]
    return "".join(json.dumps(record, ensure_ascii=True) + "\n" for record in records)


def named(examples: Sequence[Example], *, chat: bool = False) -> list[Question]:
    """Examples with ids: a digest of the prompt, numbered if it repeats. Ids do not depend on order or number of examples.

    >>> twice = [Example("1 + 1", "2", {"answer": 2.0}), Example("1 + 1", "10", {"answer": 10.0})]
    >>> [question.id for question in named(twice)]
    ['eca4b65a791b', 'eca4b65a791b-2']
    """
    seen: dict[str, int] = {}
    questions = []
    for example in examples:
        name = Prompt(text=example.prompt).id + ("-chat" if chat else "")
        seen[name] = seen.get(name, 0) + 1
        questions.append(Question(name if seen[name] == 1 else f"{name}-{seen[name]}", example))
    return questions


def prompts_for(questions: Sequence[Question], tokenizer: Any | None) -> list[Prompt]:
    """What the engine continues; with a tokenizer, the tokens of its chat template.

    A prompt is a text if the tokenizer makes these tokens of it, with or without the template's first token: people and every server can
    read a text. Else it is the tokens.
    """
    if tokenizer is None:
        return [Prompt(text=one.example.prompt, id=one.id, messages=one.example.asked) for one in questions]
    prompts = []
    for one in questions:
        turns = [dict(m) for m in one.example.asked] or [{"role": "user", "content": one.example.prompt}]
        ids = template_ids(tokenizer, turns, ask=True)
        whole = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        texts = (whole, whole.removeprefix(tokenizer.bos_token or ""))
        text = next((text for text in texts if list(tokenizer(text).input_ids) == ids), None)
        prompts.append(Prompt(ids=tuple(ids), id=one.id) if text is None else Prompt(text=text, id=one.id))
    return prompts
