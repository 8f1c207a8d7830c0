"""Where the time of a c-Div call goes beyond the three products: every kernel, the gaps between them, and the parts timed alone.

    python benchmarks/head_profile.py --out DIR         # one GPU, bfloat16, under 40 seconds
    python benchmarks/head_profile.py --out DIR --quick  # tiny shapes on a CPU: the timings alone

A trace holds, several times in turn and without a wait between them: the three products, c-Div with exponentials, the three products,
c-Div with logits, and the three products in our chunks. So the host is as far ahead as in `bench_head.py`. Short kernels that only spin
mark where one ends and the next begins. The attribution is the median over the repetitions:

    call - products = (first product - cuBLAS's) + (backward products in chunks - whole) + other kernels + gaps
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench_head import QUICK
from head_candidates import Head, Shape
from head_limits import SHAPES

from widen.head import head_config
from widen.head.gradients import add_product_
from widen.head.head_config import HeadCall, config_for
from widen.head.row_ops import RowOps, RowStats

NAMES = ("SmolLM2-135M, 32k tokens", "Qwen2.5-0.5B, 8k tokens", "Llama-3.1-8B, 8k tokens", "OLMo-1B, 8k tokens")
MARK = "spin"  # torch.cuda._sleep's kernel


def path_of(run: Callable[[], Any], least: int) -> Callable[[], Any]:
    """``run`` with exponentials from ``least`` logits on."""

    def wrapper() -> Any:
        before, head_config.LEAST_EXP_LOGITS = head_config.LEAST_EXP_LOGITS, least
        try:
            return run()
        finally:
            head_config.LEAST_EXP_LOGITS = before

    return wrapper


def segments(trace: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Device events of the trace in order, cut at the marks."""
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    events = sorted((e for e in trace["traceEvents"] if e.get("cat") in kinds), key=lambda e: e["ts"])
    cut: list[list[dict[str, Any]]] = [[]]
    for event in events:
        if MARK in event["name"]:
            cut.append([])
        else:
            cut[-1].append(event)
    return cut[1:]


def is_product(name: str) -> bool:
    return any(word in name for word in ("nvjet", "gemm", "cutlass", "xmma", "_exp_product", "cublas"))


def seen(events: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds of one segment: its span, first products, backward products, other kernels and gaps."""
    span = max(e["ts"] + e["dur"] for e in events) - events[0]["ts"]
    product = [e for e in events if is_product(e["name"])]
    exp = [e for e in product if "_exp_product" in e["name"]]
    # With logits cuBLAS computes all three: per chunk the first (the first chunk may take two, one of them early), then dX and dW.
    other = sum(e["dur"] for e in events) - sum(e["dur"] for e in product)
    return {
        "span": span / 1e3, "products": sum(e["dur"] for e in product) / 1e3, "exp products": sum(e["dur"] for e in exp) / 1e3,
        "other kernels": other / 1e3, "gaps": (span - sum(e["dur"] for e in events)) / 1e3,
    }  # fmt: skip


def by_name(events: list[dict[str, Any]]) -> list[str]:
    """One line per kernel, the longest first."""
    found: dict[str, list[float]] = {}
    for event in events:
        found.setdefault(event["name"], []).append(event["dur"])
    lines = sorted(found.items(), key=lambda item: -sum(item[1]))
    return [
        f"{sum(v):9.1f} us in {len(v):3d} of {name[:120]}  [{', '.join(f'{x:.1f}' for x in v[:6])}]"
        for name, v in lines
    ]


def gaps(events: list[dict[str, Any]], least: float = 3.0) -> list[str]:
    """Gaps of ``least`` us and more, with the kernels on both sides and when they begin."""
    lines, end = [], events[0]["ts"]
    for before, event in zip([events[0], *events], events, strict=False):
        if event["ts"] - end >= least:
            at = (end - events[0]["ts"]) / 1e3
            lines.append(
                f"{event['ts'] - end:8.1f} us at {at:.3f} ms, after {before['name'][:50]}, before {event['name'][:50]}"
            )
        end = max(end, event["ts"] + event["dur"])
    return lines


def traced(
    runs: dict[str, Callable[[], Any]], repeats: int
) -> tuple[dict[str, list[list[dict[str, Any]]]], dict[str, Any]]:
    """The device events of each run, ``repeats`` times."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    for _ in range(2):
        for run in runs.values():
            run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(repeats + 1):
            for run in runs.values():
                torch.cuda._sleep(20000)
                run()
        torch.cuda._sleep(20000)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        trace = json.loads(Path(folder, "trace.json").read_text())
    cut = [events for events in segments(trace) if events]
    names = list(runs)
    found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    for place, events in enumerate(cut):
        if place >= len(names):  # the first turn begins on an idle device
            found[names[place % len(names)]].append(events)
    return found, {"segments": len(cut), "expected": (repeats + 1) * len(names)}


def parts(head: Head) -> dict[str, Callable[[], Any]]:
    """Each product whole and in chunks, the kernels of a chunk, and a plain copy of the logits."""
    h, w, target = head.hidden.detach(), head.head.detach(), head.target
    call = HeadCall(h, w, target, None, "auto", -100, None, None, RowOps())
    exp = path_of(lambda: config_for(call), 1)()
    plain = path_of(lambda: config_for(call), 10**15)()
    assert exp is not None
    assert plain is not None
    n, v = len(h), len(w)
    memory, full = exp.new_buffer(n, w), h.new_empty(n, v)
    dx, dw = torch.empty_like(h), torch.empty_like(w)
    stats = RowStats.empty(n, w, plain=True)
    rows = len(memory)
    slices = [slice(a, min(a + rows, n)) for a in range(0, n, rows)]
    right = exp.ops.right_factor(w)
    full.normal_()
    memory.normal_()
    other = torch.empty_like(memory)

    def each(act: Callable[[slice, torch.Tensor], Any]) -> Callable[[], None]:
        def run() -> None:
            for at in slices:
                act(at, memory[: at.stop - at.start])

        return run

    return {
        "logits, whole": lambda: torch.mm(h, w.t(), out=full),
        "dX, whole": lambda: torch.mm(full, w, out=dx),
        "dW, whole": lambda: torch.mm(full.t(), h, out=dw),
        f"logits, {len(slices)} chunks of {rows}": each(lambda at, z: torch.mm(h[at], w.t(), out=z)),
        "exponentials in chunks (4 kernels each)": each(
            lambda at, z: exp.ops.product_(z, h[at], right, None, target[at], stats.part(at))
        ),
        "softmax kernel in chunks": each(
            lambda at, z: plain.ops.fill_stats(z, target[at], stats.part(at), residual=True)
        ),
        "dX in chunks": each(lambda at, z: add_product_(dx[at], z, w, scale=0.5, fresh=True)),
        "dW in chunks, added up": each(lambda at, z: add_product_(dw, z.t(), h[at], scale=0.5, fresh=at.start == 0)),
        "scaled rows in chunks": each(lambda at, z: exp.ops.scale_rows(stats.factor_C[at], (dx[at], dx[at]), (h[at], dx[at]))),
        "a plain copy of the logits, in chunks": each(lambda at, z: other[: len(z)].copy_(z)),
        "three products": head.roof,
    }  # fmt: skip


def timed(runs: dict[str, Callable[[], Any]], rounds: int, cuda: bool) -> dict[str, float]:
    """Median milliseconds of each, in turns, without a wait inside a round."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        marks = []
        for name, run in runs.items():
            if cuda:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                run()
                end.record()
                marks.append((name, begin, end))
            else:
                start = time.perf_counter()
                run()
                times[name].append(1e3 * (time.perf_counter() - start))
        if cuda:
            torch.cuda.synchronize()
            for name, begin, end in marks if number else ():
                times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def describe(head: Head, repeats: int, cuda: bool) -> list[str]:
    lines = [f"## {head.shape.name}", ""]
    alone = timed(parts(head), repeats + 2, cuda)
    roof = alone["three products"]
    lines += ["| timed alone, in turns | ms | of the products |", "|---|---|---|"]
    lines += [f"| {name} | {ms:.3f} | {ms / roof:.3f} |" for name, ms in alone.items()] + [""]
    if not cuda:
        return lines
    torch.cuda.empty_cache()
    call = head.weighted("cdiv:alpha=1.4")
    runs = {
        "products": head.roof, "exponentials": path_of(call, 1), "products again": head.roof,
        "logits": path_of(call, 10**15), "products in chunks": head.chunked(softmax=False),
    }  # fmt: skip
    found, counts = traced(runs, repeats)
    lines += [f"{counts['segments']} segments in the trace, {counts['expected']} expected.", ""]
    rows = {name: [seen(events) for events in segment] for name, segment in found.items() if segment}
    columns = ("span", "products", "exp products", "other kernels", "gaps")
    lines += ["| in the trace, ms | " + " | ".join(columns) + " |", "|---" * 6 + "|"]
    for name, each in rows.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{statistics.median(r[c] for r in each):.3f}" for c in columns) + " |"
        )
    middle = {name: {c: statistics.median(r[c] for r in each) for c in columns} for name, each in rows.items()}
    whole = [[e["dur"] / 1e3 for e in events if is_product(e["name"])] for events in found["products"]]
    first = statistics.median(x[0] for x in whole)
    base = middle["products"]["span"]
    exp = middle["exponentials"]
    backward = exp["products"] - exp["exp products"] - (middle["products"]["products"] - first)
    lines += [
        "", f"Three products of the trace: {', '.join(f'{x:.3f}' for x in whole[-1])} ms.",
        f"Exponentials: {exp['span']:.3f} - {base:.3f} = {exp['span'] - base:.3f} ms above the products: first product "
        f"{exp['exp products'] - first:+.3f} (this {exp['exp products']:.3f}, cuBLAS {first:.3f}), backward products {backward:+.3f}, "
        f"other kernels {exp['other kernels']:+.3f}, gaps {exp['gaps'] - middle['products']['gaps']:+.3f}.", "",
    ]  # fmt: skip
    for name in ("exponentials", "logits", "products"):
        if found[name]:
            lines += [f"### {name}: kernels of one call", "", *(f"- {line}" for line in by_name(found[name][-1])), ""]
            lines += [f"### {name}: gaps of 3 us and more", "", *(f"- {line}" for line in gaps(found[name][-1])), ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--budget", type=float, default=33.0, help="seconds after which no shape is begun")
    args = parser.parse_args()
    begun, cuda = time.monotonic(), torch.cuda.is_available()
    found = {shape.name: shape for shape in SHAPES}
    shapes: list[Shape] = QUICK if args.quick else [found[name] for name in NAMES]
    args.out.mkdir(parents=True, exist_ok=True)
    lines = [f"# Where a c-Div call spends its time; torch {torch.__version__}", ""]
    for shape in shapes:
        if time.monotonic() - begun > args.budget:
            lines += [f"{shape.name}: not begun, the budget is spent", ""]
            continue
        try:
            head = Head(
                shape, torch.device("cuda" if cuda else "cpu"), torch.bfloat16 if not args.quick else torch.float32
            )
            lines += describe(head, args.repeats, cuda)
            del head
            if cuda:
                torch.cuda.empty_cache()
        except Exception:
            lines += ["```", traceback.format_exc(), "```", ""]
        (args.out / "profile.md").write_text("\n".join(lines))
        print("\n".join(lines), flush=True)
        print(f"{shape.name}: {time.monotonic() - begun:.1f} s", flush=True)
        lines_done = len(lines)
    print(f"{lines_done} lines after {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
