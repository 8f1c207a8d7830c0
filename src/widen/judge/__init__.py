"""Programs are really run: sandboxed execution and three judges (MathQA-Python, assertions, contest stdin/stdout),
for pass@k (paper, sections 6.2 and 6.3).

    with Sandbox(limits=Limits(wall_seconds=3.0)) as sandbox:
        verdicts = judge_programs(Assertions(), programs, sandbox=sandbox, verdicts_path="verdicts.jsonl")
    counts(programs, verdicts)        # (problem, n, c) for pass_at_k

The judged program is taken to be hostile. It runs behind bubblewrap, namespaces, seccomp and limits; it never sees an
expected answer; nothing that it writes is a verdict.
"""

from __future__ import annotations

from .judges import Assertions, Exchange, Judge, MathQAPython, Program, StdinStdout
from .judging import counts, judge_programs
from .limits import Limits
from .profile import SandboxUnavailable
from .sandbox import Protections, Sandbox
from .verdict import STATUSES, Count, Verdict, VerdictFile

__all__ = [
    "STATUSES",
    "Assertions",
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
]
