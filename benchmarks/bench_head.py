"""LM head + weighted loss: time and memory against the three matrix products, and against other people's heads.

    python benchmarks/bench_head.py --peers DIR      # one GPU, bfloat16, under four minutes
    python benchmarks/bench_head.py --goals peers --peers DIR    # only the four heads that have a goal, under two minutes
    python benchmarks/bench_head.py --goals quack --peers DIR    # the same heads: c-Div beside QuACK, which tunes itself first
    python benchmarks/bench_head.py --quick          # a smoke run, seconds on a CPU

To compare two versions of our head, use `compare_head.py`.

Every candidate is timed in rounds together with the baseline ("roof"): the three products (logits, dX, dW) through cuBLAS on the same
random tensors. A ratio is the median over rounds of the candidate's time over the baseline's in the same round. Each round has a random
order: at its power limit a GPU slows down after a heavy kernel and recovers after a light one (the same products took 33 ms after a slow
peer and 37 ms after one another), so a fixed order would favour the first candidate by up to a tenth. Workspace is the peak memory above
the inputs and the two gradients that are returned. Peers (liger_kernel, cut_cross_entropy, quack with the CUTLASS DSL) are imported from
--peers or the environment. A peer that is absent or refuses a shape is skipped with a note. An error in one candidate is noted and the
others continue. The files are rewritten after every table.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
import random
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from head_candidates import Active, Head, Run, Shape, add_peers
from head_limits import GOALS, LOSSES, PEERS, REST, SHAPES, bounds, judge, pool

from widen.head import WORKSPACE

MB = 2**20


QUICK = [Shape("tiny", 96, 16, 503), Shape("small", 192, 32, 1009)]


class Bench:
    """Times candidates in rounds and writes the results after every table."""

    heading = "LM head + loss"
    most_rounds = 40

    def __init__(self, device: torch.device, out: Path, deadline: float) -> None:
        self.cuda, self.out, self.deadline, self.begun = device.type == "cuda", out, deadline, time.monotonic()
        name = torch.cuda.get_device_name(device) if self.cuda else f"cpu-{platform.machine()}"
        self.stem = "head_" + name.lower().replace(" ", "-").replace("/", "-")
        self.result: dict[str, Any] = {
            "heading": self.heading, "command": " ".join(["python", *sys.argv]), "machine": name, "torch": torch.__version__,
            "cuda": torch.version.cuda, "python": platform.python_version(), "versions": versions(), "tables": {}, "notes": [],
        }  # fmt: skip

    def spent(self) -> float:
        return time.monotonic() - self.begun

    def note(self, text: str) -> None:
        print(f"[{self.spent():6.1f} s] {text}", flush=True)
        self.result["notes"].append(text)

    def clock(self, run: Run) -> Callable[[], float]:
        """Run once; the returned function gives the milliseconds (after a synchronisation)."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            took = 1e3 * (time.perf_counter() - start)
            return lambda: took
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        return lambda: begin.elapsed_time(end)

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def workspace(self, run: Run) -> float | None:
        """Peak MB above what was there before, less the gradients that come back."""
        if not self.cuda:
            return None
        self.sync()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        returned = run()
        self.sync()
        peak = torch.cuda.max_memory_allocated() - before
        kept = sum(g.numel() * g.element_size() for g in returned) if isinstance(returned, tuple) else 0
        return (peak - kept) / MB

    def table(
        self, title: str, head: Head, candidates: dict[str, Callable[[], Run]], seconds: float = 2.5
    ) -> dict[str, Any]:
        """One table: build every candidate, warm it up, measure its memory, then time all in rounds."""
        rows: dict[str, Any] = {}
        runs: dict[str, Run] = {"roof": head.roof}
        memory: dict[str, float | None] = {}
        head.roof()
        for name, build in candidates.items():
            if self.spent() > self.deadline:
                rows[name] = {"skipped": f"over the budget of {self.deadline:.0f} s"}
                continue
            try:
                start = time.monotonic()
                run = build()
                run()
                memory[name] = self.workspace(run)
                run()
                self.sync()
                if time.monotonic() - start > 10:
                    self.note(f"{title}: {name} took {time.monotonic() - start:.0f} s to build and warm up")
                runs[name] = run
            except ModuleNotFoundError as error:
                rows[name] = {"skipped": f"{error.name} is not in this environment"}
            except Exception as error:
                traceback.print_exc()
                rows[name] = {"skipped": f"{type(error).__name__}: {str(error)[:200]}"}
        rows = self.rounds(runs, memory, seconds) | rows
        self.result["tables"][title] = {"shape": head.shape._asdict(), "rows": rows}
        self.show(title, rows)
        self.write()
        return rows

    def rounds(self, runs: dict[str, Run], memory: dict[str, float | None], seconds: float) -> dict[str, Any]:
        self.sync()
        times: dict[str, list[float]] = {name: [] for name in runs}
        start, shuffle = time.monotonic(), random.Random(0)
        while len(times["roof"]) < 6 or (time.monotonic() - start < seconds and len(times["roof"]) < self.most_rounds):
            clocks = {name: self.clock(runs[name]) for name in shuffle.sample(list(runs), len(runs))}
            self.sync()
            for name, read in clocks.items():
                times[name].append(read())
        rows = {}
        for name, values in times.items():
            ratio = [a / b for a, b in zip(values, times["roof"], strict=True)]
            low, _, high = statistics.quantiles(ratio, n=4)
            rows[name] = {
                "ms": statistics.median(values), "ratio": statistics.median(ratio), "ratio_quartiles": [low, high],
                "workspace_mb": memory.get(name), "rounds": len(values), "ratios": [round(r, 4) for r in ratio],
            }  # fmt: skip
        return rows

    def show(self, title: str, rows: dict[str, Any]) -> None:
        print(f"[{self.spent():6.1f} s] {title}")
        for line in markdown_rows(rows):
            print("   ", line)
        sys.stdout.flush()

    def write(self) -> None:
        self.result["seconds"] = round(self.spent(), 1)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / f"{self.stem}.json").write_text(json.dumps(self.result, indent=1) + "\n")
        (self.out / f"{self.stem}.md").write_text(markdown(self.result))


def versions() -> dict[str, str]:
    """Versions of the packages that are measured: as installed, or as the module says where a wheel's description is missing."""
    found = {}
    modules = {"triton": "triton", "liger_kernel": "liger_kernel", "cut_cross_entropy": "cut_cross_entropy",
               "quack_kernels": "quack", "nvidia_cutlass_dsl": "cutlass"}  # fmt: skip
    for name, module in modules.items():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            try:
                found[name] = str(getattr(importlib.import_module(module), "__version__", "present"))
            except Exception as error:
                found[name] = type(error).__name__
    return found


def markdown_rows(rows: dict[str, Any]) -> list[str]:
    lines = []
    for name, row in rows.items():
        if "skipped" in row:
            lines.append(f"| {name} | skipped: {row['skipped']} | | |")
            continue
        low, high = row["ratio_quartiles"]
        memory = "" if row["workspace_mb"] is None else f"{row['workspace_mb']:.1f}"
        lines.append(f"| {name} | {row['ms']:.2f} | {row['ratio']:.3f} ({low:.3f}-{high:.3f}) | {memory} |")
    return lines


def markdown(result: dict[str, Any]) -> str:
    found = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
    lines = [
        f"# {result['heading']} on {result['machine']}", "",
        f"`{result['command']}`; torch {result['torch']} (CUDA {result['cuda']}), Python {result['python']}, {found}; "
        f"{result.get('seconds', 0)} s in all. Forward and backward of head and loss, medians of rounds in shuffled order; the ratio is to "
        "the roof of the same round (quartiles in brackets), which is the three products unless the table says otherwise; workspace is "
        "the peak above inputs and returned gradients.", "",
    ]  # fmt: skip
    for title, table in result["tables"].items():
        roof = table.get("roof", "the three products")
        lines += [f"## {title}", "", f"| | ms | ratio to {roof} | workspace, MB |", "|---|---|---|---|"]
        lines += [*markdown_rows(table["rows"]), ""]
    if result.get("targets"):
        lines += ["## Targets", "", "| target | limit | measured | met |", "|---|---|---|---|"]
        lines += [f"| {t['name']} | {t['limit']} | {t['measured']} | {t['met']} |" for t in result["targets"]] + [""]
    for key, rows in result.get("kernels", {}).items():
        lines += [f"## kernels: {key}", ""] + [f"- {row}" for row in rows] + [""]
    return "\n".join([*lines, "## Notes", "", *(f"- {n}" for n in result["notes"]), ""])


def profile(bench: Bench, head: Head) -> None:
    """Where one call spends its time, by kernel."""
    run = head.weighted("cdiv:alpha=1.4")
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        bench.sync()
    events = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)[:14]
    lines = [f"{e.device_time_total / 1e3:8.3f} ms in {e.count:3d} of {e.key[:110]}" for e in events]
    bench.result.setdefault("kernels", {})[head.shape.name] = lines
    print(*lines, sep="\n", flush=True)


def rest(bench: Bench, head: Head) -> None:
    """From the three products to a whole call, one part at a time."""
    bench.table(REST + head.shape.name, head, {
        "the products in our chunks, dW added up": lambda: head.chunked(softmax=False),
        "and the softmax of each chunk": lambda: head.chunked(softmax=True),
        "and weights, scaled rows, waits: c-Div": lambda: head.weighted("cdiv:alpha=1.4"),
    })  # fmt: skip


def active_rows(bench: Bench, head: Head, title: str, **kw: Any) -> None:
    """Time against the share of active rows. 100 % shows what counting them costs. `bench_head_rows.py` has more shapes."""
    shares = (0.05, 0.25, 0.5, 0.75, 0.9, 1.0)
    bench.table(title, head, {
        "nll": lambda: head.weighted("nll", **kw),
        **{f"{100 * a:g} %": lambda a=a: head.weighted(Active(a), **kw) for a in shares},
        **{f"linear_logprob, {100 * a:g} %": lambda a=a: head.logprob(a, **kw) for a in (0.05, 0.5, 0.75)},
    }, seconds=4)  # fmt: skip


def tables(bench: Bench, shapes: list[Shape], device: torch.device, dtype: torch.dtype) -> None:
    main = shapes[0]

    def fresh(shape: Shape) -> Head:
        if bench.cuda:
            torch.cuda.empty_cache()
        return Head(shape, device, dtype)

    for shape in shapes:
        head = fresh(shape)
        bench.table(shape.name, head, {
            "widen c-Div": lambda h=head: h.weighted("cdiv:alpha=1.4"),
            "widen NLL": lambda h=head: h.weighted("nll"),
            "widen linear_logprob": lambda h=head: h.logprob(),
            "Liger NLL": lambda h=head: h.liger(),
        }, seconds=4)  # fmt: skip
        del head
    head = fresh(main)
    rooms = [
        rows * main.vocabulary * dtype.itemsize
        for rows in ((256, 512, 1024, 2048, 4096, 8192) if bench.cuda else (64,))
    ]
    least = {f"widen NLL, {rooms[0] / MB:.0f} MB": lambda: head.weighted("nll", workspace=rooms[0])}
    curve = {f"widen c-Div, {b / MB:.0f} MB": lambda b=b: head.weighted("cdiv:alpha=1.4", workspace=b) for b in rooms}
    bench.table("time against workspace", head, {"Liger NLL": head.liger} | least | curve, seconds=5)
    bench.table("every token-local loss", head, {s: lambda s=s: head.weighted(s) for s in ("nll", *LOSSES)}, seconds=5)
    active_rows(bench, head, "active rows")
    bench.table("dW summed in float32", head, {
        "c-Div": lambda: head.weighted("cdiv:alpha=1.4"),
        "c-Div, accumulate=float32": lambda: head.weighted("cdiv:alpha=1.4", accumulate=torch.float32),
        "Liger NLL, accum_dtype=float32": lambda: head.liger(accum_dtype=torch.float32),
    })  # fmt: skip
    if bench.cuda:
        attempt(bench, lambda: profile(bench, head))
    rest(bench, head)
    del head
    for shape in (
        shapes[-3:] if bench.cuda else shapes[-1:]
    ):  # small hidden sizes, where the rest takes more of the time
        head = fresh(shape)
        rest(bench, head)
    if bench.cuda:
        attempt(bench, lambda: profile(bench, head))
    del head
    peers = {
        "eager c-Div": "eager", "compiled c-Div": "compiled", "compiled NLL": "compiled_nll", "torch chunked": "torch_chunked",
        "CCE NLL": "cut", "QuACK NLL": "quack", "Liger CuTe NLL": "liger_cute", "Liger CuTe NLL per token": "liger_cute_tokens",
    }  # fmt: skip
    found = {shape.name: shape for shape in shapes}
    for name in [name for name in PEERS if name in found] or found:
        head = fresh(found[name])
        bench.table("peers, " + name, head, {
            "widen c-Div": lambda h=head: h.weighted("cdiv:alpha=1.4"),
            "widen NLL": lambda h=head: h.weighted("nll"),
            **{peer: getattr(head, method) for peer, method in peers.items()},
            "Liger NLL": head.liger,
            "Liger token-scaled (c-Div alpha 0)": lambda h=head: h.liger(use_token_scaling=True),
        })  # fmt: skip
        del head


def goals(
    bench: Bench, shapes: list[Shape], device: torch.device, dtype: torch.dtype, args: argparse.Namespace
) -> None:
    """c-Div and the peers at the shapes of `GOALS`, the narrow heads first. QuACK tunes for a while, so its tuned self is apart."""
    found = {shape.name: shape for shape in shapes}
    for name in [name for name in GOALS if name in found] or found:
        if bench.cuda:
            torch.cuda.empty_cache()
        head = Head(found[name], device, dtype)
        ours = {"widen c-Div": lambda h=head: h.weighted("cdiv:alpha=1.4")}
        peers: dict[str, Callable[[], Run]] = {
            "widen NLL": lambda h=head: h.weighted("nll"),
            "Liger CuTe NLL": head.liger_cute,
            "Liger NLL": head.liger,
            "torch chunked": head.torch_chunked,
            "compiled c-Div": head.compiled,
            "QuACK NLL, not tuned": lambda h=head: h.quack(tuned=False),
            "CCE NLL": head.cut,
        }
        bench.table(name, head, ours | (peers if args.goals == "peers" else {"QuACK NLL": head.quack}), args.seconds)
        del head


def attempt(bench: Bench, part: Callable[[], None]) -> None:
    try:
        part()
    except Exception as error:
        traceback.print_exc()
        bench.note(f"{type(error).__name__}: {str(error)[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, float32, for a smoke run")
    parser.add_argument(
        "--goals",
        choices=["peers", "quack"],
        help="only the four heads that have a goal, with the peers or with tuned QuACK",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="time for the rounds of one table of --goals")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    parser.add_argument("--peers", type=Path, help="folder with unpacked wheels, or with a site-packages of them")
    parser.add_argument("--budget", type=float, default=225.0, help="seconds after which no candidate is started")
    args = parser.parse_args()
    if args.peers:
        add_peers(args.peers)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        raise SystemExit("no CUDA device here: pass --quick for a smoke run on the CPU")
    bench = Bench(device, args.out, args.budget)
    print(json.dumps({k: v for k, v in bench.result.items() if k not in ("tables", "notes")}), flush=True)
    print("default workspace:", {k: f"{v // MB} MB" for k, v in WORKSPACE.items()}, flush=True)
    shapes, dtype = (QUICK, torch.float32) if args.quick else (list(SHAPES), torch.bfloat16)
    if args.goals:
        bench.stem = bench.stem.replace("head_", f"head_goals_{args.goals}_", 1)
        attempt(bench, lambda: goals(bench, shapes, device, dtype, args))
    else:
        attempt(bench, lambda: tables(bench, shapes, device, dtype))
    if not args.quick:
        attempt(bench, lambda: judge(bench))
        attempt(bench, lambda: pool(bench))
    attempt(bench, lambda: bounds(bench))
    bench.write()
    print(f"wrote {bench.out / bench.stem}.json and .md after {bench.spent():.0f} s")


if __name__ == "__main__":
    main()
