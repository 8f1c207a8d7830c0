"""Two versions of our head on one GPU: time, launches, waits and memory. Run it before you merge a change to `widen.head`.

    git worktree add /tmp/before main && python benchmarks/compare_head.py /tmp/before/src        # under four minutes
    python benchmarks/compare_head.py /tmp/before/src --quick                                     # a smoke run on a CPU

Each version runs in processes of its own, in alternation (before, after, after, before), through the public functions alone. "ratio" is the
median over rounds of the time over the three matrix products of the same round; "host ms" is the time until the call returns, which is what
a small model pays. Launches, copies and waits (of one call, from the profiler) and the peak memory must not grow.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHAPES = {  # tokens, hidden, vocabulary, workspace
    "Llama-3.1-8B, 8k tokens": (8192, 4096, 128256, None),
    "Llama-3.1-8B, 8k tokens, 63 MB": (8192, 4096, 128256, 256 * 128256 * 2),
    "OLMo-1B, 8k tokens": (8192, 2048, 50304, None),
    "Qwen2.5-0.5B, 8k tokens": (8192, 896, 151936, None),
    "SmolLM2-135M, 32k tokens": (32768, 576, 49152, None),
    "SmolLM2-135M, 1k tokens": (1024, 576, 49152, None),
}
QUICK = {"tiny": (96, 16, 503, None), "tiny, small chunks": (96, 16, 503, 32 * 503 * 8)}


def measure(source: str, quick: bool, seconds: float) -> dict[str, Any]:
    """One version, in this process."""
    sys.path.insert(0, source)
    import torch

    import widen.head

    assert Path(widen.head.__file__).is_relative_to(Path(source).resolve()), widen.head.__file__
    cuda = torch.cuda.is_available()
    found: dict[str, Any] = {}
    for name, shape in (QUICK if quick else SHAPES).items():
        runs = candidates(shape, "cuda" if cuda else "cpu", torch.float32 if quick else torch.bfloat16)
        for run in runs.values():
            run()
            run()
        for candidate, values in timed(runs, cuda, seconds).items():
            found[f"{name}: {candidate}"] = values | counted(runs[candidate], cuda)
        del runs, run
        if cuda:
            torch.cuda.empty_cache()
    return found


def candidates(shape: tuple[int, int, int, int | None], device: str, dtype: Any) -> dict[str, Any]:
    """What is timed at one shape; "products" is the baseline."""
    import torch

    from widen.head import linear_logprob, weighted_linear_nll

    tokens, size, vocabulary, workspace = shape
    torch.manual_seed(0)
    hidden = torch.randn(tokens, size, device=device, dtype=dtype).requires_grad_()
    head = (torch.randn(vocabulary, size, device=device, dtype=dtype) / size**0.5).requires_grad_()
    target = torch.randint(0, vocabulary, (tokens,), device=device)
    target[torch.rand(tokens, device=device) < 0.1] = -100
    position = torch.randperm(tokens, device=device)

    class Weight:
        token_local = True

        def __init__(self, share: float) -> None:
            self.share, self.never_zero = share, share == 1

        def weigh(self, rows: Any) -> Any:
            w_N = (-0.4 * rows.logq).exp()
            return w_N if self.share == 1 else torch.where(rows.position < self.share * tokens, w_N, 0.0)

    def fused(share: float) -> Any:
        weight, at = Weight(share), {"position_N": position, "length_N": position}
        return lambda: torch.autograd.grad(
            weighted_linear_nll(hidden, head, target, weight, num_tokens=tokens, workspace=workspace, **at).loss, (hidden, head)
        )  # fmt: skip

    def logprob(share: float) -> Any:
        w_N = (position < share * tokens).float()
        return lambda: torch.autograd.grad(
            (w_N * linear_logprob(hidden, head, target, workspace=workspace)).sum(), (hidden, head)
        )

    h, w = hidden.detach(), head.detach()

    def products() -> None:
        z = h @ w.t()
        z @ w, z.t() @ h

    return {
        "products": products,
        "weighted_linear_nll": fused(1),
        "weighted_linear_nll, 50 % active": fused(0.5),
        "linear_logprob": logprob(1),
        "linear_logprob, 50 % active": logprob(0.5),
    }


def timed(runs: dict[str, Any], cuda: bool, seconds: float) -> dict[str, dict[str, Any]]:
    """Times of every candidate but the baseline, in rounds of random order."""
    import torch

    whole: dict[str, list[float]] = {name: [] for name in runs}
    host: dict[str, list[float]] = {name: [] for name in runs}
    begun, shuffle = time.monotonic(), random.Random(0)
    while len(whole["products"]) < 5 or time.monotonic() - begun < seconds:
        for name in shuffle.sample(list(runs), len(runs)):
            if cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            runs[name]()
            host[name].append(1e3 * (time.perf_counter() - start))
            if cuda:
                torch.cuda.synchronize()
            whole[name].append(1e3 * (time.perf_counter() - start))
    return {
        name: {
            "ms": whole[name],
            "host ms": host[name],
            "ratio": [a / b for a, b in zip(whole[name], whole["products"], strict=True)],
        }
        for name in runs
        if name != "products"
    }


def counted(run: Any, cuda: bool) -> dict[str, Any]:
    """Launches, copies, waits and peak memory of one call."""
    import torch

    if not cuda:
        return {}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        run()
    calls = {event.key: event.count for event in seen.key_averages()}
    count = lambda *words: sum(n for key, n in calls.items() if any(word in key for word in words))  # noqa: E731
    return {
        "launches": count("cudaLaunchKernel", "cuLaunchKernel"),
        "copies and sets": count("cudaMemcpyAsync", "cudaMemsetAsync"),
        "waits": count("cudaStreamSynchronize", "cudaEventSynchronize"),
        "peak MB": round(peak, 1),
    }


def table(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """One line per candidate, before -> after."""
    lines = [
        "| | ratio | ms | host ms | launches | copies and sets | waits | peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in before[0]:
        cells = [name]
        for key in ("ratio", "ms", "host ms"):
            a, b = (statistics.median(x for run in runs for x in run[name][key]) for runs in (before, after))
            cells.append(f"{a:.3f} -> {b:.3f} ({100 * (b / a - 1):+.1f} %)")
        for key in ("launches", "copies and sets", "waits", "peak MB"):
            old, new = (sorted({run[name].get(key) for run in runs}, key=str) for runs in (before, after))
            cells.append(str(old[0]) if old == new else f"**{old} -> {new}**")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the src folder of the version to compare with")
    parser.add_argument("after", type=Path, nargs="?", default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, for a smoke run")
    parser.add_argument("--seconds", type=float, default=4.0, help="time per shape and process")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print("\n" + json.dumps(measure(str(args.before.resolve()), args.quick, args.seconds)))
        return
    results: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    for version in ("before", "after", "after", "before"):
        command = [sys.executable, __file__, str(getattr(args, version)), "--measure", "--seconds", str(args.seconds)]
        begun = time.monotonic()
        done = subprocess.run(command + ["--quick"] * args.quick, stdout=subprocess.PIPE, text=True, check=True)
        results[version].append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{version}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    print(*table(results["before"], results["after"]), sep="\n")


if __name__ == "__main__":
    main()
