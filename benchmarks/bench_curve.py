"""Claim: the exact PR-curve of ten million atoms costs at most 1.5 times one np.argsort of their ratios, and is right to 1e-14.

    python benchmarks/bench_curve.py                # 10 million atoms, 7 interleaved rounds, about three minutes on one core
    python benchmarks/bench_curve.py --atoms 1000000 --rounds 3

Each round times np.argsort(q / p), with the ratios already there, and then the curve from p and q: `pr_curve` alone, with
precision at 1000 lam, and with the area as well. Seconds are the process's own (CPU time). The rounds alternate, so that a slow
minute falls on all; the factor is the median over rounds of that round's own quotient. Memory that was never touched is touched
first: on a virtual machine a first touch costs the host's allocation, which is nobody's sort. Peak memory is numpy's own count
(tracemalloc) in a run of its own. Writes benchmarks/results/curve_<machine>.md.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from widen.theory import pr_curve

LAM = np.geomspace(1e-4, 1e4, 1000)
STAGES = {
    "pr_curve(p, q)": lambda p, q: pr_curve(p, q),
    "and precision at 1000 lam": lambda p, q: pr_curve(p, q).precision(LAM),
    "and the area": lambda p, q: (lambda c: (c.precision(LAM), c.auc))(pr_curve(p, q)),
}
TARGET = 1.5


def laws(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    p = rng.exponential(size=n)
    if kind == "unrelated":
        q = rng.exponential(size=n) ** 2
    elif kind == "close (1e-6)":
        q = p * (1 + 1e-6 * rng.standard_normal(n))
    else:
        p, q = np.ones(n), rng.integers(1, 11, size=n).astype(np.float64)
    return p / p.sum(), q / q.sum()


def seconds(call, *args) -> float:
    start = time.process_time()  # all of it runs on one core; a busy neighbour lengthens the wall clock, not this
    call(*args)
    return time.process_time() - start


def timings(p: np.ndarray, q: np.ndarray, rounds: int) -> dict[str, list[float]]:
    ratio = q / p
    times: dict[str, list[float]] = {"np.argsort(q / p)": [], **{name: [] for name in STAGES}}
    for turn in range(rounds + 1):
        row = {
            "np.argsort(q / p)": seconds(np.argsort, ratio),
            **{name: seconds(f, p, q) for name, f in STAGES.items()},
        }
        if turn:  # the first round warms up
            for name, value in row.items():
                times[name].append(value)
    return times


def peak(call, *args) -> float:
    """MB that numpy allocated at its highest, beyond the arguments."""
    tracemalloc.start()
    call(*args)
    value = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return value / 1e6


def worst_error(p: np.ndarray, q: np.ndarray) -> float:
    """Largest relative error of precision over five lam, against sums without rounding (math.fsum)."""
    lam = [1e-3, 0.3, 1.0, 3.0, 1e3]
    got = pr_curve(p, q).precision(lam)
    return max(abs(x / math.fsum(np.minimum(at * p, q)) - 1) for at, x in zip(lam, got, strict=True))


def table(kind: str, times: dict[str, list[float]]) -> tuple[list[str], float]:
    base, lines, factor = times["np.argsort(q / p)"], [], 0.0
    for name, values in times.items():
        quotients = [x / y for x, y in zip(values, base, strict=True)]
        factor = statistics.median(quotients)
        low, _, high = statistics.quantiles(values, n=4)
        lines.append(
            f"| {kind} | {name} | {statistics.median(values):.3f} | {low:.3f}-{high:.3f} | {factor:.2f} | "
            f"{min(quotients):.2f}-{max(quotients):.2f} |"
        )
    return lines, factor


def cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [x.split(":")[1].strip() for x in info.read_text().splitlines() if x.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--atoms", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    np.ones(80 * options.atoms)  # touched and given back
    lines = ["| atoms | what | median CPU s | quartiles | times argsort | range |", "|---|---|---|---|---|---|"]
    factors, notes = {}, []
    for kind in ("unrelated", "close (1e-6)", "ten ratios"):
        p, q = laws(kind, options.atoms)
        rows, factors[kind] = table(kind, timings(p, q, options.rounds))
        lines += rows
        if kind != "ten ratios":
            memory = peak(STAGES["and the area"], p, q)
            notes.append(
                f"- {kind}: largest relative error of precision {worst_error(p, q):.1e}; peak memory {memory:.0f} MB beyond "
                f"p and q, which hold {(p.nbytes + q.nbytes) / 1e6:.0f} MB"
            )
    met = "met" if factors["unrelated"] <= TARGET else "NOT met"
    head = [
        f"# The PR-curve of {options.atoms:,} atoms",
        "",
        f"`python benchmarks/bench_curve.py --atoms {options.atoms} --rounds {options.rounds}`",
        f"on {cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; Python {platform.python_version()}, "
        f"numpy {np.__version__}; {time.strftime('%Y-%m-%d')}; load average meanwhile {os.getloadavg()[1]:.1f}.",
        f"Aim: at most {TARGET} times one argsort, area included, for unrelated laws: {met} ({factors['unrelated']:.2f}).",
        "Ten exact ratios (P uniform) sort much faster and are gathered no faster: fewer seconds, a larger quotient.",
        "",
    ]
    text = "\n".join([*head, *lines, "", *notes, ""])
    print(text)
    name = f"curve_{cpu().split('@')[0]}_{os.cpu_count()}cores".replace("(R)", "").replace(" ", "_").lower()
    (Path(__file__).parent / "results" / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
