"""The tasks by name, and the examples of a source. Every record is read and checked first; bad ones are reported by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from .definition import LOSS_WEIGHTS, Example, Task, missing, weights_of
from .e2e import e2e, says_all, words
from .program_tasks import codecontests, humaneval, mathqa_python, mbpp
from .source_files import records
from .text_tasks import alpaca, is_listed, listed_key, own_record, prompt_and_answers, writing_prompts

_TESTS = ("public_tests", "private_tests", "generated_tests", "input_output", "test_list")
_ALL = (
    Task("writing_prompts", writing_prompts, ("prompt",), ("story",), hub="euclaise/writingprompts"),
    Task(
        "mathqa_python",
        mathqa_python,
        ("question", "prompt", "text", "answer"),
        ("program", "code"),
        hub="dtruong46me/mathqa-python",
    ),
    Task(
        "codecontests",
        codecontests,
        ("description", "question", "prompt", *_TESTS),
        ("solutions", "solution", "canonical_solution", "code"),
        hub="deepmind/code_contests",
    ),
    Task("alpaca", alpaca, ("instruction", "input"), ("output",), hub="tatsu-lab/alpaca"),
    Task(
        "mbpp",
        mbpp,
        ("text", "prompt", "test_list", "test_setup_code", "test_imports"),
        ("code",),
        hub="google-research-datasets/mbpp:full",
        csv=False,
    ),
    Task(
        "humaneval",
        humaneval,
        ("prompt", "entry_point", "test"),
        ("canonical_solution",),
        hub="openai/openai_humaneval",
        csv=False,
    ),
    Task("jsonl", own_record, ("prompt", "conversations", "text", "tools"), ("completion", "messages")),
    Task("answers", prompt_and_answers, ("prompt",), ("answers",), csv=False, check=is_listed, key=listed_key),
    Task("e2e", e2e, ("mr",), ("ref", "refs"), check=says_all, key=words),
)
TASKS = {one.name: one for one in _ALL}
SHOWN = 10
"""Kinds of bad records that `listed` names; the others are counted."""


class Read(NamedTuple):
    """The examples of a source in order, and a sentence for each bad record."""

    examples: list[Example]
    bad: list[str]


def task(name: str) -> Task:
    """The task of that name.

    >>> task("mathqa").name
    Traceback (most recent call last):
    ...
    ValueError: no task is called 'mathqa'; did you mean 'mathqa_python'? Tasks: writing_prompts, mathqa_python, ...
    """
    if name not in TASKS:
        close = get_close_matches(name, TASKS, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"no task is called {name!r}{hint} Tasks: {', '.join(TASKS)}")
    return TASKS[name]


def own_fields(prompt: str | None, completion: str | None) -> Task:
    """The task `jsonl` for records whose prompt and completion have other names; None keeps the usual name.

    >>> own_fields("question", "answer").example({"question": "2 + 2 =", "answer": " 4"})[:2]
    ('2 + 2 =', ' 4')
    """
    names = {"prompt": prompt or "prompt", "completion": completion or "completion"}

    def make(record: Mapping[str, Any]) -> Example:
        if prompt is not None and prompt not in record:
            raise ValueError(missing(record, (prompt,)))
        found = {usual: record[name] for usual, name in names.items() if record.get(name) is not None}
        try:
            return own_record({"prompt": "", **found})
        except ValueError as error:
            text = str(error)
            for usual, name in names.items():
                text = text.replace(repr(usual), repr(name))
            raise ValueError(text) from None

    return replace(TASKS["jsonl"], fields=(names["prompt"],), completion=(names["completion"],), make=make)


def read(
    task_name: str,
    source: str = "",
    *,
    split: str = "train",
    limit: int | None = None,
    answered: bool = False,
    facts: bool = True,
    prompt_field: str | None = None,
    completion_field: str | None = None,
) -> Read:
    """The examples of a file, a folder or a data set of the hub.

    A bad record never raises; a source that is missing or holds no records does.

    Args:
      task_name: a name of `TASKS`.
      source: a file (.jsonl, .json, .csv, .tsv, .txt, .parquet), a folder or hub name that `datasets` loads (``owner/name``,
        ``owner/name:config``); "" is the task's own data set on the hub.
      split: of a data set; a file has none.
      limit: only the first so many records.
      answered: an example without a completion is bad.
      facts: keep what a judge needs. Training does without; tests of contests are large.
      prompt_field, completion_field: names of these fields in the records of the task ``jsonl``, if they have others.

    Examples:
      >>> import pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.jsonl"
      >>> _ = file.write_text('{"prompt": "2 + 2 =", "completion": " 4"}\\n{"prompt": 4}\\n')
      >>> found = read("jsonl", str(file))
      >>> len(found.examples), found.bad[0].removeprefix(str(file.parent))
      (1, "/mine.jsonl, line 2: 'prompt' must be text, got int")
    """
    known = task(task_name)
    if prompt_field is not None or completion_field is not None:
        if task_name != "jsonl":
            raise ValueError(
                f"the task {task_name!r} has its own fields: prompt_field and completion_field are for the task 'jsonl'"
            )
        known = own_fields(prompt_field, completion_field)
    if not source and known.hub is None:
        raise ValueError(f"the task {task_name!r} has no data set of its own: give a file")
    if source.lower().endswith((".csv", ".tsv", ".txt")) and not known.csv:
        kind = source[-4:].lower()
        raise ValueError(f"{source}: records of {task_name!r} hold lists, which a {kind} cannot: give .jsonl or .json")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: must be at least 1")
    found = Read([], [])
    columns = (*known.columns, LOSS_WEIGHTS)
    for count, record in enumerate(records(source or str(known.hub), split=split, columns=columns), start=1):
        try:
            if record.fault:
                raise ValueError(record.fault)
            example = known.example(record.fields)._replace(loss_weights=weights_of(record.fields))
            if answered and not example.completion.strip():
                raise ValueError(known.unanswered(record.fields))
        except ValueError as error:
            found.bad.append(f"{record.where}: {error}")
        else:
            found.examples.append(example if facts else example._replace(facts={}))
        if count == limit:
            break
    return found


def listed(bad: Sequence[str]) -> str:
    """Sentences about bad records, one per line and per kind of fault.

    >>> print(listed(["x.jsonl, line 1: 'prompt' is empty", "x.jsonl, line 2: 'prompt' is empty", "x.jsonl, line 4: not JSON"]))
      x.jsonl, line 1: 'prompt' is empty (and 1 more record like it)
      x.jsonl, line 4: not JSON
    """
    kinds: dict[str, list[str]] = {}
    for sentence in bad:
        kinds.setdefault(sentence.partition(": ")[2], []).append(sentence)
    lines = []
    for same in list(kinds.values())[:SHOWN]:
        more = len(same) - 1
        lines.append(same[0] + (f" (and {more} more record{'s' * (more > 1)} like it)" if more else ""))
    if rest := sum(len(same) for same in list(kinds.values())[SHOWN:]):
        lines.append(f"and {rest} more")
    return "\n".join(f"  {line}" for line in lines)
