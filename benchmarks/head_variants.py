"""Variants of the product that writes exponentials, and of the call around it, at the two narrow heads.

    python benchmarks/head_variants.py --out DIR                 # one GPU, bfloat16, under 50 seconds once compiled
    python benchmarks/head_variants.py --compile 0 --of 8        # only compile every eighth variant, into Triton's cache
    TRITON_INTERPRET=1 python benchmarks/head_variants.py --out DIR --quick      # the check alone, on a CPU

First every variant is checked against float64 at a small shape. Then each is timed alone on one chunk, in turns with cuBLAS's product.
Last come whole calls: the fastest variants in the place of the head's kernel, other chunks, no early launch, and a CUDA graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from bench_head import QUICK
from head_candidates import Head
from head_limits import SHAPES

import widen.head.exp_product_triton as product
from widen.head import fused_nll, head_config
from widen.head.exp_product_triton import ExpRowOps, _place
from widen.head.row_ops import RowStats
from widen.head.softmax_triton import LOG2E

NAMES = ("SmolLM2-135M, 32k tokens", "Qwen2.5-0.5B, 8k tokens")


class Variant(NamedTuple):
    """Tile, and how the kernel runs. ``each`` programs per multiprocessor; 0: one program per tile."""

    m: int
    n: int
    k: int
    stages: int
    warps: int
    each: int = 1
    group: int = 8
    parts: int = 1
    """Pieces of columns in which a tile is finished and stored: fewer registers and less shared memory."""
    fused: bool = True
    """One fma for the exponent, and no mask where the vocabulary is whole tiles."""
    flat: bool = True

    def __str__(self) -> str:
        words = [
            f"{self.m}x{self.n}x{self.k}",
            f"{self.stages} stages",
            f"{self.warps} warps",
            f"groups of {self.group}",
        ]
        words += [f"{self.each} per SM" if self.each else "one per tile"]
        words += [f"{self.parts} pieces"] * (self.parts > 1)
        words += ["not fused"] * (not self.fused) + ["not flat"] * (not self.flat)
        return ", ".join(words)


VARIANTS = [
    Variant(128, 256, 64, 3, 8),
    Variant(128, 128, 64, 2, 4, each=2),
    Variant(128, 128, 64, 3, 4, each=2, parts=2),
    Variant(128, 128, 32, 4, 4, each=2),
    Variant(64, 256, 64, 2, 4, each=2, parts=2),
    Variant(128, 256, 64, 4, 8, parts=2),
    Variant(128, 256, 64, 3, 8, group=16),
    Variant(128, 256, 64, 3, 8, flat=False),
    Variant(128, 128, 64, 3, 4, each=0),
    Variant(128, 128, 64, 3, 4, each=2, parts=2, group=16),
    Variant(256, 128, 64, 3, 8),
]
PRESENT = "the head's kernel"


@triton.jit
def _finish(acc, c2, row, column, bias_ptr, C, V, BIAS: tl.constexpr, EVEN: tl.constexpr, FUSED: tl.constexpr, c):
    if BIAS:
        acc += tl.load(bias_ptr + column, mask=column < V, other=0.0).to(tl.float32)[None, :]
    if FUSED:
        below = acc * LOG2E - c2[:, None]
    else:
        below = (acc - c[:, None]) * LOG2E
    if BIAS:
        below = tl.maximum(below, -1e4, propagate_nan=tl.PropagateNan.ALL)
    if not EVEN:
        below = tl.where((column < V)[None, :], below, -1e4)
    e = tl.exp2(below)
    return e, tl.max(below, axis=1), tl.sum(e, axis=1), tl.sum(e * below, axis=1)


@triton.jit
def _tile(
    tile, x_desc, w_desc, z_desc, bias_ptr, c_ptr, part_ptr, C, V, D, TILES, rows,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, BIAS: tl.constexpr, EVEN: tl.constexpr,
    FUSED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    pm, pn = _place(tile, rows, TILES, GROUP)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, D, K):
        acc = tl.dot(x_desc.load([pm * M, k]), w_desc.load([pn * N, k]).T, acc)
    row = pm * M + tl.arange(0, M)
    c = tl.load(c_ptr + row, mask=row < C, other=0.0)
    c2 = c * LOG2E
    at = part_ptr + pn.to(tl.int64) * C + row
    size = tl.cast(TILES, tl.int64) * C
    if PARTS == 1:
        e, m, s, t = _finish(acc, c2, row, pn * N + tl.arange(0, N), bias_ptr, C, V, BIAS, EVEN, FUSED, c)
        z_desc.store([pm * M, pn * N], e.to(z_desc.dtype))
    else:
        both = tl.permute(tl.reshape(acc, (M, 2, N // 2)), (0, 2, 1))
        left, right = tl.split(both)
        half = tl.arange(0, N // 2)
        e, m, s, t = _finish(left, c2, row, pn * N + half, bias_ptr, C, V, BIAS, EVEN, FUSED, c)
        z_desc.store([pm * M, pn * N], e.to(z_desc.dtype))
        e, m2, s2, t2 = _finish(right, c2, row, pn * N + N // 2 + half, bias_ptr, C, V, BIAS, EVEN, FUSED, c)
        z_desc.store([pm * M, pn * N + N // 2], e.to(z_desc.dtype))
        m, s, t = tl.maximum(m, m2), s + s2, t + t2
    tl.store(at, m, mask=row < C)
    tl.store(at + size, s, mask=row < C)
    tl.store(at + 2 * size, t, mask=row < C)


@triton.jit
def variant_product(
    x_desc, w_desc, z_desc, bias_ptr, c_ptr, part_ptr, C, V, D, TILES,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr, BIAS: tl.constexpr,
    EVEN: tl.constexpr, FUSED: tl.constexpr, PARTS: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """The head's `_exp_product`, with switches."""
    rows = tl.cdiv(C, M)
    if PROGRAMS == 0:
        _tile(
            tl.program_id(0), x_desc, w_desc, z_desc, bias_ptr, c_ptr, part_ptr, C, V, D, TILES, rows,
            M, N, K, GROUP, BIAS, EVEN, FUSED, PARTS,
        )  # fmt: skip
    else:
        for tile in tl.range(tl.program_id(0), rows * TILES, PROGRAMS, flatten=FLAT):
            _tile(
                tile, x_desc, w_desc, z_desc, bias_ptr, c_ptr, part_ptr, C, V, D, TILES, rows,
                M, N, K, GROUP, BIAS, EVEN, FUSED, PARTS,
            )  # fmt: skip


class Kernel:
    """Takes the place of `product._exp_product` in the head."""

    def __init__(self, variant: Variant, processors: int) -> None:
        self.variant, self.processors = variant, processors

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        v = self.variant

        def launch(
            left: Any, right: Any, into: Any, bias: Any, c_C: Any, part: Any, rows: int, vocabulary: int, hidden: int, tiles: int,
            **kw: Any,
        ) -> None:  # fmt: skip
            into.block_shape = [v.m, v.n // v.parts]
            count = -(-rows // v.m) * tiles
            programs = v.each * self.processors
            variant_product[(min(programs, count) if programs else count,)](
                left, right, into, bias, c_C, part, rows, vocabulary, hidden, tiles,
                M=v.m, N=v.n, K=v.k, GROUP=v.group, PROGRAMS=programs, BIAS=kw["BIAS"], EVEN=vocabulary % v.n == 0, FUSED=v.fused,
                PARTS=v.parts, FLAT=v.flat, num_warps=v.warps, num_stages=v.stages,
            )  # fmt: skip

        return launch


@contextmanager
def using(variant: Variant | None) -> Iterator[None]:
    """The head with a variant in the place of its kernel."""
    names = ("M", "N", "DEPTH", "GROUP", "_exp_product")
    before = {name: getattr(product, name) for name in names}
    if variant is not None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        kernel = Kernel(variant, product._multiprocessors(device))
        for name, value in zip(names, (*variant[:3], variant.group, kernel), strict=True):
            setattr(product, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(product, name, value)


@contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def errors(variant: Variant | None, device: torch.device, hidden: int = 200) -> dict[str, float]:
    """Largest differences from float64: log q, entropy, and the residual over the largest entry of its row."""
    torch.manual_seed(1)
    cuda = device.type == "cuda"
    n, v, d = (300, 1104, hidden) if cuda else (70, 300, 72)
    dtype = torch.bfloat16 if cuda else torch.float32  # the interpreter multiplies no bfloat16
    h = torch.randn(n, d, device=device).to(dtype)
    w = (torch.randn(v, d, device=device) * 3 / d**0.5).to(dtype)
    target = torch.randint(0, v, (n,), device=device)
    ops, stats = ExpRowOps(one_read=True), RowStats.empty(n, w, plain=True)
    memory = torch.full((n, ops.pitch(v)), float("nan"), device=device, dtype=dtype)[:, :v]
    with using(variant):
        ops.product_(memory, h, ops.right_factor(w), None, target, stats)
    z = h.double() @ w.double().t()
    logp = z.log_softmax(1)
    p = logp.exp()
    residual = p.clone()
    residual[torch.arange(n, device=device), target] -= 1
    got = memory.double() * stats.factor_C.double()[:, None]
    top = residual.abs().amax(1, keepdim=True)
    logq = logp.gather(1, target[:, None])[:, 0]
    return {
        "log q": float((stats.logq_C - logq).abs().max()), "entropy": float((stats.entropy_C + (p * logp).sum(1)).abs().max()),
        "residual": float(((got - residual).abs() / top).max()),
        "top 1": float((stats.top1_C.bool() != (z.argmax(1) == target)).sum()),
    }  # fmt: skip


def right(found: dict[str, float]) -> bool:
    return found["log q"] < 1e-4 and found["entropy"] < 1e-3 and found["residual"] < 0.006 and found["top 1"] == 0


def chunk_runs(head: Head, variants: dict[str, Variant | None]) -> dict[str, Callable[[], Any]]:
    """One chunk by cuBLAS and by each variant. Compiles them."""
    h, w, v = head.hidden.detach(), head.head.detach(), head.shape.vocabulary
    rows = min(len(h), 2**31 // (2 * v))
    rows = -(-len(h) // -(-len(h) // rows))
    memory, stats = h.new_empty(rows, v), RowStats.empty(rows, w, plain=True)
    h, target, ops = h[:rows], head.target[:rows], ExpRowOps(one_read=True)

    def by(variant: Variant | None) -> Callable[[], None]:
        def run() -> None:
            with using(variant):
                ops.product_(memory, h, ops.right_factor(w), None, target, stats)

        return run

    return {"cuBLAS": lambda: torch.mm(h, w.t(), out=memory), **{name: by(x) for name, x in variants.items()}}


def timed(runs: dict[str, Callable[[], Any]], seconds: float, most: int = 12) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.monotonic()
    torch.cuda.synchronize()
    number = 0
    while number < 3 or (time.monotonic() - begun < seconds and number < most):
        marks = []
        torch.cuda._sleep(4_000_000)  # the host gets ahead
        for name in list(runs) if number % 2 else list(runs)[::-1]:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            runs[name]()
            end.record()
            marks.append((name, begin, end))
        torch.cuda.synchronize()
        for name, begin, end in marks if number else ():
            times[name].append(begin.elapsed_time(end))
        number += 1
    return times


def table(title: str, times: dict[str, list[float]], base: str) -> list[str]:
    lines = [f"## {title}", "", f"| | ms | over {base}, same round | quartiles |", "|---|---|---|---|"]
    for name, values in times.items():
        ratio = [a / b for a, b in zip(values, times[base], strict=True)]
        low, middle, high = statistics.quantiles(ratio, n=4)
        lines.append(f"| {name} | {statistics.median(values):.3f} | {middle:.3f} | {low:.3f}-{high:.3f} |")
    return [*lines, ""]


class AllRows:
    """`TargetRows` without its wait, for a graph."""

    def __init__(self, *_: Any) -> None:
        self.row_N = None

    def rows(self) -> None:
        return None


def graph(run: Callable[[], Any], *around: Callable[[], Any]) -> Callable[[], Any]:
    """A call as one CUDA graph: what its kernels take without the host."""

    def inside() -> Any:
        with patched(fused_nll, TargetRows=AllRows), patched(head_config, EARLY_LAUNCH=None):
            return run()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            inside()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        kept = inside()

    def replay() -> Any:
        captured.replay()
        return kept

    return replay


def whole_runs(head: Head, best: list[str], variants: dict[str, Variant | None]) -> dict[str, Callable[[], Any]]:
    """Builders of whole calls."""
    v, n = head.shape.vocabulary, head.shape.tokens
    call = head.weighted("cdiv:alpha=1.4")
    late = head_config.EarlyLaunch(8, 10**18)

    def with_(variant: Variant | None, run: Callable[[], Any] = call) -> Callable[[], Any]:
        def inside() -> Any:
            with using(variant):
                return run()

        return inside

    def no_early() -> Any:
        with patched(head_config, EARLY_LAUNCH=late):
            return call()

    def logits() -> Any:
        with patched(head_config, LEAST_EXP_LOGITS=10**15):
            return call()

    # Chunks of whole tiles; "one chunk" is above 2 GB and shows what the chunks cost.
    sizes = {f"{k} chunks": 2 * v * (-(-n // (k * 128)) * 128) for k in (1, 3, 4)}
    return {
        "c-Div": lambda: call,
        "c-Div, logits": lambda: logits,
        "c-Div, no early launch": lambda: no_early,
        "c-Div, as a graph": lambda: graph(call),
        **{f"c-Div, {name}": lambda name=name: with_(variants[name]) for name in best},
        **{f"c-Div, graph, {name}": lambda name=name: graph(with_(variants[name])) for name in best[:1]},
        **{f"c-Div, {name}": lambda size=size: head.weighted("cdiv:alpha=1.4", workspace=size) for name, size in sizes.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("/tmp/variants"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--compile", type=int, default=-1, help="only compile the variants of this number")
    parser.add_argument("--of", type=int, default=8)
    parser.add_argument("--budget", type=float, default=45.0)
    args = parser.parse_args()
    begun, device = time.monotonic(), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    args.out.mkdir(parents=True, exist_ok=True)
    variants: dict[str, Variant | None] = {PRESENT: None, **{str(v): v for v in VARIANTS}}
    shapes = {shape.name: shape for shape in SHAPES}
    lines = [
        f"# Variants of the product that writes exponentials; torch {torch.__version__}, triton {triton.__version__}",
        "",
    ]
    result: dict[str, Any] = {"errors": {}, "chunk": {}, "whole": {}}

    def write(*more: str) -> None:
        lines.extend(more)
        print(*more, sep="\n", flush=True)
        (args.out / "variants.md").write_text("\n".join(lines) + f"\n{time.monotonic() - begun:.1f} s\n")
        (args.out / "variants.json").write_text(json.dumps(result, indent=1))

    if args.compile >= 0:
        variants = dict(list(variants.items())[args.compile :: args.of])
    usable: dict[str, Variant | None] = {}
    for name, variant in variants.items():
        try:
            found = errors(variant, device)
            result["errors"][name] = found
            if right(found):
                usable[name] = variant
            if args.compile < 0 or not right(found):
                shown = ", ".join(f"{k} {x:.1e}" for k, x in found.items())
                write(f"- {name}: {'right' if right(found) else 'WRONG'}: {shown}")
        except Exception as error:
            traceback.print_exc()
            write(f"- {name}: {type(error).__name__}: {str(error)[:200]}")
    if device.type == "cpu":
        return
    for shape in QUICK if args.quick else [shapes[name] for name in NAMES]:
        if time.monotonic() - begun > args.budget:
            write(f"{shape.name}: not begun, the budget is spent")
            continue
        head = Head(shape, device, torch.bfloat16)
        runs = {}
        for name, run in chunk_runs(head, usable).items():
            try:
                run()
                torch.cuda.synchronize()
                runs[name] = run
            except Exception as error:
                traceback.print_exc()
                write(f"- {name} at {shape.name}: {type(error).__name__}: {str(error)[:200]}")
        if args.compile >= 0:
            continue
        times = timed(runs, 3.0)
        result["chunk"][shape.name] = times
        write("", *table(f"{shape.name}: one chunk with its four kernels", times, "cuBLAS"))
        middle = {name: statistics.median(values) for name, values in times.items() if name not in ("cuBLAS", PRESENT)}
        best = sorted(middle, key=lambda name: middle[name])[:3]
        del runs
        torch.cuda.empty_cache()
        whole: dict[str, Callable[[], Any]] = {"three products": head.roof}
        for name, build in whole_runs(head, best, variants).items():
            if time.monotonic() - begun > args.budget:
                break
            try:
                run = build()
                run()
                torch.cuda.synchronize()
                whole[name] = run
            except Exception as error:
                traceback.print_exc()
                write(f"- {name} at {shape.name}: {type(error).__name__}: {str(error)[:300]}")
                torch.cuda.synchronize()
        times = timed(whole, 5.0, most=24)
        result["whole"][shape.name] = times
        write("", *table(f"{shape.name}: whole calls", times, "three products"))
        del head, whole
        torch.cuda.empty_cache()
    write(f"done after {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
