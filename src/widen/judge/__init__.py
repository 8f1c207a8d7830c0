"""Run programs in a sandbox and judge them, for pass@k (paper, sections 6.2 and 6.3).

    with Sandbox(limits=Limits(wall_seconds=3.0)) as sandbox:
        verdicts = judge_programs(Assertions(), programs, sandbox=sandbox, verdicts_path="verdicts.jsonl")
    counts(programs, verdicts)        # (problem, n, c) for pass_at_k

Every program is assumed to be hostile. Who starts whom:

    judge       your process. `judge_programs` makes jobs, `Sandbox` hands them to its workers, one per core.
    launch.py   one per worker: joins a memory cgroup, drops root, becomes bubblewrap.
    bubblewrap  namespaces, a read-only root, an empty environment, a seccomp filter for everything inside.
    zygote      pid 1 inside: forks a process per program, keeps the clock, kills what is left.
    program     runs one judged program under resource limits and a narrower seccomp filter.
    examiner    holds the tests, asks the program for values over two pipes, and compares. It serves many programs.

Everything travels as frames of JSON (`inside/wire.py`). The judge sends three frames per job to the zygote's stdin:
orders for the zygote, the program's text for its process, the tests for the examiner. Back come the examiner's report
and the zygote's account of how the program ended. A program never sees a test or an expected answer, and nothing that
it writes is a verdict. When a sandbox opens, it attacks itself (`selftest.py`) and refuses to serve if one attack works.
This package imports no other part of widen.
"""

from __future__ import annotations

from .checker import Checked, run_checker
from .judges import Assertions, Exchange, Judge, MathQAPython, Program, StdinStdout
from .judging import counts, judge_programs
from .limits import Limits
from .profile import SandboxUnavailable
from .sandbox import Protections, Sandbox
from .verdict import STATUSES, Count, Verdict, VerdictFile

__all__ = [
    "STATUSES",
    "Assertions",
    "Checked",
    "Count",
    "Exchange",
    "Judge",
    "Limits",
    "MathQAPython",
    "Program",
    "Protections",
    "Sandbox",
    "SandboxUnavailable",
    "StdinStdout",
    "Verdict",
    "VerdictFile",
    "counts",
    "judge_programs",
    "run_checker",
]
