"""Examples of a source: everything read and checked first, what is wrong said line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .catalogue import task
from .definition import LOSS_WEIGHTS, Example, weights_of
from .source_files import records

__all__ = ["Read", "listed", "read"]

SHOWN = 10
"""Kinds of bad records that are named; the others are counted."""


class Read(NamedTuple):
    """What a source holds: its examples in order, and a sentence for each record that is none."""

    examples: list[Example]
    bad: list[str]


def read(
    task_name: str,
    source: str = "",
    *,
    split: str = "train",
    limit: int | None = None,
    answered: bool = False,
    facts: bool = True,
) -> Read:
    """The examples of a file, a folder or a data set of the hub.

    Args:
      task_name: what a record is, a name of `TASKS`.
      source: a file (.jsonl, .json, .csv), a folder or hub name that `datasets` loads (``owner/name``, ``owner/name:config``); "" is the
        task's own data set on the hub.
      split: of a data set; a file has none.
      limit: only the first so many records.
      answered: an example without a completion counts as bad: there is nothing to learn from it.
      facts: keep what a judge needs; training does without, and tests of contests are large.

    Returns:
      Examples and sentences; a record that cannot be used never raises. A source that is not there, or is no list of records, does.

    Examples:
      >>> import pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.jsonl"
      >>> _ = file.write_text('{"prompt": "2 + 2 =", "completion": " 4"}\\n{"prompt": 4}\\n')
      >>> found = read("jsonl", str(file))
      >>> len(found.examples), found.bad[0].removeprefix(str(file.parent))
      (1, "/mine.jsonl, line 2: 'prompt' must be text, got int")
    """
    known = task(task_name)
    if not source and known.hub is None:
        raise ValueError(f"the task {task_name!r} has no data set of its own: give a file")
    if source.lower().endswith(".csv") and not known.csv:
        raise ValueError(f"{source}: records of {task_name!r} hold lists, which a .csv cannot: give .jsonl or .json")
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
    """Sentences about bad records, a line each; what is wrong with many in the same way is said once, of the first.

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
