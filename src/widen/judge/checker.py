"""Run a checker of the user's own on (prompt, answer) pairs, in the sandbox.

A checker is a Python file with a function `check(prompt, answer) -> bool | float` and, optionally, a function
`key(answer) -> str` that gives the same text for answers that count as one, e.g. the final number.

    with Sandbox() as sandbox:
        checked = run_checker("gsm8k_checker.py", "check", pairs, sandbox=sandbox)
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .judging import ended
from .sandbox import Sandbox
from .verdict import VerdictFile, content_key
from .worker import Job, Outcome

_BATCH = 64  # pairs per process
_LONGEST = 3600


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What the checker said about one pair.

    Args:
        status: scored; error (it raised an exception, or its process died); timeout; wrong type (it returned something
            else than a bool, or a number from 0 to 1; or `key` returned no text).
        score: from 0 to 1; None unless scored.
        key: what `key` returned; None without that function.
        detail: one line about what went wrong.
    """

    status: str
    score: float | None = None
    key: str | None = None
    detail: str = ""


def run_checker(
    file: str | os.PathLike[str],
    function: str,
    pairs: Sequence[tuple[str, str]],
    *,
    sandbox: Sandbox,
    files: Sequence[str | os.PathLike[str]] = (),
    verdicts_path: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Checked]:
    """Call `function` of `file` for every pair (prompt, answer); return one result per pair, in order.

    The sandbox's wall-clock limit holds for each pair. One process checks many pairs, so a checker must not keep state
    between calls. It may import the standard library and the sandbox's packages. Its working folder holds `files`,
    UTF-8 texts such as reference solutions, and it can read no other file of yours.

    Equal pairs are checked once. Every result is appended to `verdicts_path`, a JSON-lines file, at once; a pair that
    has a result there under the same checker and limits is not checked again. `progress` is called with (pairs checked,
    all pairs). Raises ValueError if the file cannot be read or loaded, or does not define the function.
    """
    source = _text(file)
    try:
        compile(source, os.fspath(file), "exec", dont_inherit=True)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"checker {os.fspath(file)}: not Python ({error})") from None
    texts = {Path(one).name: _text(one) for one in files}
    if (size := sum(len(text.encode()) for text in texts.values())) > sandbox.limits.tmp_bytes // 2:
        raise ValueError(f"files of the checker take {size} bytes; at most {sandbox.limits.tmp_bytes // 2} fit")
    settings = content_key([sandbox.settings(), source, function, texts])
    keys = [content_key([settings, prompt, answer]) for prompt, answer in pairs]
    seconds, cpu = sandbox.limits.wall_seconds, sandbox.limits.cpu_seconds

    # The limits hold for each pair and for loading, also in a batch.
    seconds_each = max(seconds, cpu)
    size = min(_BATCH, max(1, int(_LONGEST // seconds_each) - 1))

    def job(batch: list[str]) -> Job:
        exam = {"pairs": [left[key] for key in batch], "function": function, "seconds": seconds}
        wall_seconds = min(_LONGEST, seconds * (len(batch) + 1))
        # A pair that computes all its time must leave the others theirs.
        cpu_seconds = min(_LONGEST, math.ceil(seconds_each * (len(batch) + 1)))
        return Job(source, exam, wall_seconds=wall_seconds, cpu_seconds=cpu_seconds, files=texts, tag=batch)

    with VerdictFile(verdicts_path, Checked, keys=keys, progress=progress) as store:
        left = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in store.known}
        names = list(left)
        jobs = deque(job(names[i : i + size]) for i in range(0, len(names), size))
        for one, outcome in sandbox.stream(jobs):
            found = _results(outcome, sandbox, Path(file), function)
            for key, result in zip(one.tag, found, strict=False):
                store.add(key, result)
            if len(found) < len(one.tag):
                jobs.appendleft(job(one.tag[len(found) :]))
    return store.verdicts()


def _text(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(f"checker: {os.fspath(file)} cannot be read ({error})") from None


def _results(outcome: Outcome, sandbox: Sandbox, file: Path, function: str) -> list[Checked]:
    """Return the results of the batch's first pairs, at least one; raise ValueError if no pair can be checked."""
    report: Any = outcome.report or {"status": "gone", "detail": ""}
    found = [Checked(status=s, score=score, key=key, detail=d) for s, score, key, d in report.get("results", ())]
    if found and found[-1].status == "died":
        status, detail = ended(outcome, sandbox.limits)
        found[-1] = Checked(status="timeout" if status == "timeout" else "error", detail=detail)
    if found:
        return found
    legal = f"def {function}(prompt: str, answer: str) -> bool | float, from 0 to 1"
    if report["status"] == "missing":
        raise ValueError(f"checker {file}: defines no {function!r}; legal is {legal}")
    if report["status"] == "raised":
        packages = ", ".join(["the standard library", *sandbox.interpreter.packages])
        raise ValueError(f"checker {file}: does not load ({report['detail']}); it may import {packages}")
    if outcome.report is not None:
        raise ValueError(
            f"checker {file}: ended, or took over {sandbox.limits.wall_seconds:g} s, before {function!r} ran"
        )
    return [Checked(status="error", detail=ended(outcome, sandbox.limits)[1])]
