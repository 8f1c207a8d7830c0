"""The rows that a round trains on: the original data and every right answer that was found, each with its weight and its origin.

data.jsonl              {"prompt", "completion", "loss_weights" or null, "key"}        the original data with the keys of its answers
round-k/grown.jsonl     {"prompt", "completion", "loss_weights", "origin": {...}}      answers that are new in round k
round-k/train.jsonl     the same fields; all rows that round k trains on

In chat, "prompt" and "completion" of these rows are messages, and data.jsonl has the prompt's in "messages".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import listed, read
from widen.data.tasks.conversations import Message
from widen.disk.atomic import write_text

from ..finetune.config import Source
from ..questions import in_one_form
from .verify import FoundAnswers, RightAnswer, Verifier
from .weights import Seen, answer_weights


class DataRow(NamedTuple):
    """One row of the original data; ``messages`` are those of the prompt in chat."""

    prompt: str
    completion: str
    loss_weights: Any
    key: str
    messages: Sequence[Message] = ()


def data_rows(source: Source, path: Path, verifier: Verifier, *, chat: bool = False) -> list[DataRow]:
    """The rows of the data that have a completion, with their keys. They are written to ``path``; if it exists, it is only read."""
    if not path.exists():
        found = read(source.task, source.path, split=source.split, limit=source.limit, facts=False)
        if found.bad:
            raise ValueError(
                f"{len(found.bad)} records of {source.path or source.task} cannot be used:\n{listed(found.bad)}"
            )
        rows = [one for one in in_one_form(found.examples, source, chat=chat) if one.completion.strip()]
        keys = verifier.keys([(one.prompt, one.completion) for one in rows])
        made = [
            {"prompt": one.prompt, "completion": one.completion, "loss_weights": one.loss_weights, "key": key}
            | ({"messages": one.asked} if chat else {})
            for one, key in zip(rows, keys, strict=True)
        ]
        write_lines(path, made)
    return read_rows(path)


def read_rows(path: Path) -> list[DataRow]:
    """The rows that `data_rows` wrote."""
    return [DataRow(**json.loads(line)) for line in path.read_bytes().splitlines()]


class Judgement(NamedTuple):
    """What one round found: its number, the model that was sampled, the decoding, and the answers of every problem."""

    round: int
    model: str
    decoding: str
    found: Sequence[FoundAnswers]


def rows_to_train(
    data: Sequence[DataRow], judgements: Sequence[Judgement], *, weights: str, cap: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[bool]]:
    """All rows to train on, those of them that are new in the last round, and which of its problems have several known right answers.

    Weights have mean 1 over the rows of each prompt. The ``loss_weights`` of a row of the data are multiplied by its weight.
    """
    copies = Counter((_asked(row), row.key) for row in data)
    finds: dict[str, dict[str, list[tuple[Judgement, RightAnswer, int]]]] = {}
    for prompt, key in copies:
        finds.setdefault(prompt, {})[key] = []
    for judgement in judgements:
        for problem in judgement.found:
            known = finds.setdefault(_asked(problem), {})
            for answer in problem.answers:
                known.setdefault(answer.key, []).append((judgement, answer, problem.drawn))
    grown, new, weight = list[dict[str, Any]](), list[dict[str, Any]](), dict[tuple[str, str], float]()
    for prompt, known in finds.items():
        seen = [
            Seen(copies[prompt, key], sum(one.found for _, one, _ in found), _draws(found))
            for key, found in known.items()
        ]
        values = answer_weights(weights, seen, cap=cap, rounds=max(1, len(judgements)))
        for key, one, value in zip(known, seen, values, strict=True):
            weight[prompt, key] = round(value, 6)
            if not one.copies:
                judgement, first, _ = known[key][0]
                origin = {"round": judgement.round, "model": judgement.model, "decoding": judgement.decoding}
                origin |= {"found": one.found, "q": first.q, "logq": first.logq}
                grown.append(_row(prompt, first.completion, weight[prompt, key], origin))
                if judgement is judgements[-1]:
                    new.append(grown[-1])
    originals = [
        _row(_asked(row), row.completion, _times(row.loss_weights, weight[_asked(row), row.key]), {"round": 0})
        for row in data
    ]
    return [*originals, *grown], new, [len(finds[_asked(problem)]) > 1 for problem in judgements[-1].found]


def _draws(found: Sequence[tuple[Judgement, RightAnswer, int]]) -> tuple[tuple[float, int], ...]:
    """For each round that found an answer: q, and the draws of all problems with this prompt that found it."""
    rounds: dict[int, tuple[float, int]] = {}
    for judgement, one, drawn in found:
        q, draws = rounds.get(judgement.round, (0.0, 0))
        rounds[judgement.round] = max(q, one.q), draws + drawn
    return tuple(rounds.values())


def _asked(row: DataRow | FoundAnswers) -> str:
    """What a model is asked, as JSON: the messages of a conversation, or a text."""
    return json.dumps(row.messages or row.prompt, sort_keys=True)


def _row(asked: str, completion: str, loss_weights: Any, origin: dict[str, Any]) -> dict[str, Any]:
    prompt = json.loads(asked)
    answer = completion if isinstance(prompt, str) else [{"role": "assistant", "content": completion}]
    return {"prompt": prompt, "completion": answer, "loss_weights": loss_weights, "origin": origin}


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write JSON lines in one move."""
    return write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def _times(given: Any, weight: float) -> Any:
    if isinstance(given, (list, tuple)):
        return [one * weight for one in given]
    return weight if given is None else given * weight
