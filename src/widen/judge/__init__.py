"""Run programs in a sandbox and judge them, for pass@k (paper, sections 6.2 and 6.3).

There are three judges: MathQA-Python, assertions, and contest problems with stdin and stdout.

    with Sandbox(limits=Limits(wall_seconds=3.0)) as sandbox:
        verdicts = judge_programs(Assertions(), programs, sandbox=sandbox, verdicts_path="verdicts.jsonl")
    counts(programs, verdicts)        # (problem, n, c) for pass_at_k

Every program is assumed to be hostile. It runs behind bubblewrap, namespaces, seccomp and limits. It never sees an
expected answer, and nothing that it writes is a verdict. This package imports no other part of widen.
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
