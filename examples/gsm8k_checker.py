"""A checker for GSM8K: an answer is right if its final number is that of the reference solution.

    widen score --checker examples/gsm8k_checker.py:check --checker-file test.jsonl runs/NAME

test.jsonl is GSM8K's own file: one object per line with "question" and "answer", which ends with "#### 72". The checker
runs in a sandbox, and the files named on the command line are in its working folder.
"""

from __future__ import annotations

import json
import re
from functools import cache

NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


@cache
def solutions() -> dict[str, str]:
    """Return the reference solutions by question."""
    with open("test.jsonl", encoding="utf-8") as lines:
        return {one["question"]: one["answer"] for one in map(json.loads, lines)}


def final_number(text: str) -> float | None:
    """Return the last number after the last "####", or of the whole text if there is no "####"."""
    found = NUMBER.findall(text.rpartition("####")[2])
    return float(found[-1].replace("$", "").replace(",", "")) if found else None


def check(prompt: str, answer: str) -> bool:
    """Return whether the answer ends with the right number; the prompt contains the question."""
    question = next((one for one in solutions() if one in prompt), None)
    if question is None:
        raise ValueError(f"no solution for the prompt {prompt[:60]!r}")
    return final_number(answer) == final_number(solutions()[question])


def key(answer: str) -> str:
    """Return the final number: two answers with the same number count as one."""
    number = final_number(answer)
    return "" if number is None else f"{number:.12g}"
