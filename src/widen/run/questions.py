"""What a model is asked, and the right answers, kept beside the runs: scoring needs neither the data nor the model.

<root>/prompts/<task>-<hash>.jsonl      {"id": ..., "prompt": ..., "completion": ..., "facts": {...}}   one example per line
<root>/prompts/<task>-<hash>.source.json    {"digest": ...}      of the file they were read from
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import Example, Read, listed, read
from widen.disk.atomic import write_text
from widen.disk.digest import file_digest, source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.sample.prompts import Prompt

from .experiment import Experiment
from .finetune.config import Source
from .value import content_hash


class Question(NamedTuple):
    """One example, under the id that its prompt has in every samples file."""

    id: str
    example: Example


def questions_of(experiment: Experiment, root: str | Path, *, skip_bad: bool = False) -> list[Question]:
    """The questions of an experiment: from the file beside the runs, or else from their source, and then they are kept there.

    If the source is here, it must still hold what was kept; on another machine what was kept is enough.
    """
    path, source = prompts_path(experiment, root), _source(experiment)
    if path.exists():
        kept = _kept(path)
        if _same_source(experiment, path, kept):
            return kept
    digest, found = source_digest(source.path), _read(experiment)
    if found.bad and not skip_bad:
        number = f"{len(found.bad)} record{'s' * (len(found.bad) > 1)}"
        raise ValueError(f"{number} of the prompts cannot be used (--skip-bad leaves them out):\n{listed(found.bad)}")
    if not found.examples:
        raise ValueError(f"the prompts of {experiment.name!r} hold no examples")
    questions = _wrapped(experiment, found.examples)
    write_text(path, _lines(questions))
    _note(path, digest)
    return questions


def _kept(path: Path) -> list[Question]:
    """The questions in the file beside the runs. Errors name the file if it is damaged."""
    note = _note_path(path)
    expected = read_json(note).get("prompts") if note.exists() else None
    if expected is not None and file_digest(path) != expected:
        raise ValueError(f"{path} does not match its checksum in {note.name}: it is damaged, or was edited; restore it")
    try:
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [Question(r["id"], Example(r["prompt"], r["completion"], r["facts"])) for r in records]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not hold examples: {error}") from None


def task_questions(task: str, source: str, *, limit: int | None = None) -> list[Question]:
    """The questions of a file or a data set (its split ``test``), by the ids that their prompts have in a samples file."""
    found = read(task, source, split="test", limit=limit)
    if found.bad:
        number = f"{len(found.bad)} record{'s' * (len(found.bad) > 1)}"
        raise ValueError(f"{number} of {source} cannot be used:\n{listed(found.bad)}")
    if not found.examples:
        raise ValueError(f"{source or task} holds no examples")
    return named(found.examples)


def _source(experiment: Experiment) -> Source:
    assert experiment.prompts is not None
    return experiment.prompts


def _read(experiment: Experiment) -> Read:
    source = _source(experiment)
    limit = min((number for number in (source.limit, experiment.num_prompts) if number is not None), default=None)
    return read(source.task, source.path, split=source.split, limit=limit)


def _wrapped(experiment: Experiment, examples: Sequence[Example]) -> list[Question]:
    wrapped = [one._replace(prompt=experiment.template.replace("{prompt}", one.prompt)) for one in examples]
    return named(wrapped, chat=experiment.chat)


def _same_source(experiment: Experiment, path: Path, kept: Sequence[Question]) -> bool:
    """Refuse samples and scores of prompts that have changed since. If nothing was sampled yet, the file may change: False."""
    digest, note = source_digest(_source(experiment).path), _note_path(path)
    if digest is None or (note.exists() and read_json(note).get("digest") == digest):
        return True
    try:
        same = _lines(_wrapped(experiment, _read(experiment).examples)) == _lines(kept)
    except (ValueError, OSError):
        same = False
    if not same and not any(path.parent.parent.glob("*/samples/*")):
        return False
    if not same:
        raise ValueError(
            f"{_source(experiment).path} has changed since its prompts were kept in {path}, and the samples and scores beside them are of "
            f"the earlier ones: restore it, take another --out, or remove {path.parent.parent} to begin again"
        )
    _note(path, digest)
    return True


def prompts_path(experiment: Experiment, root: str | Path) -> Path:
    """Where the questions are kept: named by where they come from and how many of them are taken."""
    key = content_hash(experiment.prompts, experiment.num_prompts, experiment.template, experiment.chat)
    return Path(root) / "prompts" / f"{experiment.task}-{key}.jsonl"


def named(examples: Sequence[Example], *, chat: bool = False) -> list[Question]:
    """Examples with the ids of their prompts: a digest of the text, so that order and number change no sample; repeats are counted.

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
    """What the engine continues; with a tokenizer, through its chat template."""
    if tokenizer is None:
        return [Prompt(text=one.example.prompt, id=one.id) for one in questions]
    prompts = []
    for one in questions:
        turns = [{"role": "user", "content": one.example.prompt}]
        text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        # The template writes the first token, and tokenizing the text adds it again: drop one of them.
        prompts.append(Prompt(text=text.removeprefix(tokenizer.bos_token or ""), id=one.id))
    return prompts


def _note_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.source.json")


def _note(path: Path, digest: str | None) -> None:
    """Keep the digest of the source, so that an unchanged source is not read again, and the checksum of the questions."""
    write_sealed(_note_path(path), {"digest": digest, "prompts": file_digest(path)})


def _lines(questions: Sequence[Question]) -> str:
    records = ({"id": one.id, **one.example._asdict(), "facts": dict(one.example.facts)} for one in questions)
    return "".join(json.dumps(record, ensure_ascii=True) + "\n" for record in records)
