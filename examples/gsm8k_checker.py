"""A checker for GSM8K: an answer is right if its final number is that of the reference solution.

    widen score --checker examples/gsm8k_checker.py:check --checker-file test.jsonl runs/NAME

The checker runs in a sandbox. test.jsonl, GSM8K's own file of questions and answers, is in its working folder.
"""

import json
import re
from functools import cache

NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")


@cache
def solutions() -> dict[str, str]:
    with open("test.jsonl", encoding="utf-8") as lines:
        return {one["question"]: one["answer"] for one in map(json.loads, lines)}


def check(prompt: str, answer: str) -> bool:
    """Whether the answer ends with the right number; the prompt contains the question."""
    question = next((one for one in solutions() if one in prompt), None)
    if question is None:
        raise ValueError(f"no solution for the prompt {prompt[:60]!r}")
    return key(answer) == key(solutions()[question])


def key(answer: str) -> str:
    """The last number after "####", or of the whole text: two answers with the same number count as one."""
    found = NUMBER.findall(answer.rpartition("####")[2])
    return f"{float(found[-1].replace('$', '').replace(',', '')):.12g}" if found else ""


if __name__ == "__main__":
    print(key("Each box holds 1,250 nails, so two boxes hold 2 * 1,250 nails. #### 2,500"))
