"""What a model is asked and what the right answers are, kept beside the runs: whoever scores the samples needs nothing else.

<root>/prompts/<task>-<hash>.jsonl      {"id": ..., "prompt": ..., "completion": ..., "facts": {...}}   one example a line
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

from .text_experiment import TextExperiment
from .value import content_hash


class Asked(NamedTuple):
    """One example, under the name that its prompt has in every samples file."""

    id: str
    example: Example


def asked_of(experiment: TextExperiment, root: str | Path, *, skip_bad: bool = False) -> list[Asked]:
    """The examples of an experiment: from the file beside the runs, or else from their source, and then they are kept there.

    A source that is here must still hold what was kept; on another machine what was kept is enough.
    """
    path, source = prompts_path(experiment, root), experiment.prompts
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
    asked = _wrapped(experiment, found.examples)
    write_text(path, _lines(asked))
    _note(path, digest)
    return asked


def _kept(path: Path) -> list[Asked]:
    """The examples in the file beside the runs; a damaged file is refused by its name."""
    note = _note_path(path)
    expected = read_json(note).get("prompts") if note.exists() else None
    if expected is not None and file_digest(path) != expected:
        raise ValueError(f"{path} does not match its checksum in {note.name}: it is damaged, or was edited; restore it")
    try:
        records = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [Asked(r["id"], Example(r["prompt"], r["completion"], r["facts"])) for r in records]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not hold examples: {error}") from None


def _read(experiment: TextExperiment) -> Read:
    source, limits = experiment.prompts, [experiment.prompts.limit, experiment.num_prompts]
    limit = min((number for number in limits if number is not None), default=None)
    return read(source.task, source.path, split=source.split, limit=limit)


def _wrapped(experiment: TextExperiment, examples: Sequence[Example]) -> list[Asked]:
    wrapped = [one._replace(prompt=experiment.template.replace("{prompt}", one.prompt)) for one in examples]
    return named(wrapped, chat=experiment.chat)


def _same_source(experiment: TextExperiment, path: Path, kept: Sequence[Asked]) -> bool:
    """Samples and scores on disk are of the prompts that were kept: refuse to call them those of a file that has changed.

    Where nothing was sampled yet, the file may change; then this is False.
    """
    digest, note = source_digest(experiment.prompts.path), _note_path(path)
    if digest is None or (note.exists() and read_json(note).get("digest") == digest):
        return True
    try:
        same = _lines(_wrapped(experiment, _read(experiment).examples)) == _lines(kept)
    except (ValueError, OSError):
        same = False  # it could be read then
    if not same and not any(path.parent.parent.glob("*/samples/*")):
        return False
    if not same:
        raise ValueError(
            f"{experiment.prompts.path} has changed since its prompts were kept in {path}, and the samples and scores beside them are of "
            f"the earlier ones: restore it, take another --out, or remove {path.parent.parent} to begin again"
        )
    _note(path, digest)
    return True


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


def _note_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.source.json")


def _note(path: Path, digest: str | None) -> None:
    """Which content of the source the prompts were read from, so that an unchanged one is not read again; and the file's own checksum."""
    write_sealed(_note_path(path), {"digest": digest, "prompts": file_digest(path)})


def _lines(asked: Sequence[Asked]) -> str:
    records = ({"id": one.id, **one.example._asdict(), "facts": dict(one.example.facts)} for one in asked)
    return "".join(json.dumps(record, ensure_ascii=True) + "\n" for record in records)
