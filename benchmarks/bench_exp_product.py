"""Can the head's first product write exp(z - c) itself? The answer decides whether the softmax kernel is needed.

    python benchmarks/bench_exp_product.py             # one GPU of compute capability 9.0, bfloat16, under three minutes
    TRITON_INTERPRET=1 python benchmarks/bench_exp_product.py --quick     # checks the kernels on a CPU

Today: cuBLAS writes the logits z, a kernel reads them and writes exp(z - c), and two products follow. Here: one Triton kernel computes
the product and writes exp(z - c), with c the logit of the target, and the sums of each row and tile beside it. A small kernel adds the
sums up, which gives log q, the entropy and the row's factor, and writes the target's entry. The table gives the time of each way to the
end of the two backward products, over the three products of cuBLAS.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
SHAPES = {
    "Llama-3.1-8B 8k": (8192, 4096, 128256),
    "OLMo-1B 8k": (8192, 2048, 50304),
    "Qwen2.5-0.5B 8k": (8192, 896, 151936),
    "SmolLM2 32k": (32768, 576, 49152),
}
WORKSPACE = 2 * 2**30


@triton.jit
@no_type_check
def target_logits(x_ptr, w_ptr, target_ptr, c_ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    """c = x . w[target], in float32: one program per row."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row).to(tl.int64)
    d = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + d, mask=d < D, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + target * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(c_ptr + row, tl.sum(x * w, axis=0))


@triton.jit
@no_type_check
def _place(tile, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile: GROUP rows of tiles share the columns that they read."""
    width = GROUP * columns
    first = (tile // width) * GROUP
    height = tl.minimum(rows - first, GROUP)
    return first + (tile % width) % height, (tile % width) // height


@triton.jit
@no_type_check
def _exp_tile(acc, c_ptr, part_ptr, e_desc, pm, pn, C, V, TILES, M: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr):
    """Write exp(z - c) of one tile, and its largest entry, sum and first moment for each row."""
    row = pm * M + tl.arange(0, M)
    c = tl.load(c_ptr + row, mask=row < C, other=0.0)
    below = (acc - c[:, None]) * LOG2E
    column = pn * N + tl.arange(0, N)
    below = tl.where((column < V)[None, :], below, -1e4)
    e = tl.exp2(below)
    at = part_ptr + pn.to(tl.int64) * C + row
    tl.store(at, tl.max(below, axis=1), mask=row < C)
    tl.store(at + TILES.to(tl.int64) * C, tl.sum(e, axis=1), mask=row < C)
    tl.store(at + 2 * TILES.to(tl.int64) * C, tl.sum(e * below, axis=1), mask=row < C)
    if SPLIT:
        left, right = tl.reshape(e, (M, 2, N // 2)).permute(0, 2, 1).split()
        e_desc.store([pm * M, pn * N], left.to(e_desc.dtype))
        e_desc.store([pm * M, pn * N + N // 2], right.to(e_desc.dtype))
    else:
        e_desc.store([pm * M, pn * N], e.to(e_desc.dtype))


@triton.jit
@no_type_check
def _tile(
    x_desc, w_desc, e_desc, c_ptr, part_ptr, pm, pn, C, V, D, TILES,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Multiply one tile, and write its exponentials."""
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, D, K):
        acc = tl.dot(x_desc.load([pm * M, k]), w_desc.load([pn * N, k]).T, acc)
    _exp_tile(acc, c_ptr, part_ptr, e_desc, pm, pn, C, V, TILES, M, N, SPLIT)


@triton.jit
@no_type_check
def exp_product(
    x_desc, w_desc, e_desc, c_ptr, part_ptr, C, V, D, TILES,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One tile of exp(x w' - c) per program. Two programs share a multiprocessor: one multiplies while the other takes exponentials."""
    pm, pn = _place(tl.program_id(0), tl.cdiv(C, M), TILES, GROUP)
    _tile(x_desc, w_desc, e_desc, c_ptr, part_ptr, pm, pn, C, V, D, TILES, M, N, K, SPLIT)


@triton.jit
@no_type_check
def exp_product_persistent(
    x_desc, w_desc, e_desc, c_ptr, part_ptr, C, V, D, TILES,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """The same with one program per multiprocessor, which loads the next tile while it takes exponentials."""
    rows = tl.cdiv(C, M)
    for tile in tl.range(tl.program_id(0), rows * TILES, PROGRAMS, flatten=True):
        pm, pn = _place(tile, rows, TILES, GROUP)
        _tile(x_desc, w_desc, e_desc, c_ptr, part_ptr, pm, pn, C, V, D, TILES, M, N, K, SPLIT)


@triton.jit
@no_type_check
def finish_rows(
    part_ptr, e_ptr, target_ptr, logq_ptr, entropy_ptr, top1_ptr, factor_ptr, C, TILES, PITCH,
    R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """log q, entropy, top-1 and factor of R rows from the sums of their tiles; the target's entry becomes 1 - sum."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    tile = tl.arange(0, B)
    size = TILES.to(tl.int64) * C
    m = tl.full((B, R), -1e4, tl.float32)
    s = tl.zeros((B, R), tl.float32)
    t = tl.zeros((B, R), tl.float32)
    for start in range(0, TILES, B):
        at = part_ptr + (start + tile).to(tl.int64)[:, None] * C + row[None, :]
        here = ((start + tile) < TILES)[:, None] & (row < C)[None, :]
        m = tl.maximum(m, tl.load(at, mask=here, other=-1e4))
        s += tl.load(at + size, mask=here, other=0.0)
        t += tl.load(at + 2 * size, mask=here, other=0.0)
    top, total, moment = tl.max(m, axis=0), tl.sum(s, axis=0), tl.sum(t, axis=0)
    log_total = tl.log(total)
    good = row < C
    tl.store(logq_ptr + row, -log_total, mask=good)
    tl.store(entropy_ptr + row, log_total - moment * LN2 / total, mask=good)
    tl.store(top1_ptr + row, (top < 1e-5).to(tl.float32), mask=good)
    entry = 1.0 - total
    rounded = entry.to(e_ptr.dtype.element_ty)
    back = rounded.to(tl.float32)
    sure = back == 0.0
    tl.store(factor_ptr + row, tl.where(sure, 1.0, entry) / (tl.where(sure, 1.0, back) * total), mask=good)
    target = tl.load(target_ptr + row, mask=good, other=0).to(tl.int64)
    tl.store(e_ptr + row.to(tl.int64) * PITCH + target, rounded, mask=good)


Setting = tuple[bool, int, int, int, int, int, bool]
"""Persistent or not, tile M and N, warps, stages, group, whether the tile is stored in two halves."""


def settings() -> list[Setting]:
    """The launches to try."""
    small = [(False, 128, 128, warps, 3, group, False) for warps, group in product((4, 8), (8, 16))]
    wide = [(True, 128, 256, 8, 3, 8, split) for split in (False, True)]
    return [*small, (False, 128, 256, 8, 3, 8, True), (False, 256, 128, 8, 3, 8, False), *wide]


def run(
    x: Tensor, w: Tensor, target: Tensor, e: Tensor, part: Tensor, stats: Tensor, setting: Setting, k: int = 64
) -> None:
    """Fill ``e`` with a multiple of the residual, and ``stats`` with c, log q, entropy, top-1 and factor."""
    persistent, m, n, warps, stages, group, split = setting
    (rows, hidden), vocabulary = x.shape, len(w)
    tiles = triton.cdiv(vocabulary, n)
    c, logq, entropy, top1, factor = stats.unbind()
    target_logits[(rows,)](
        x, w, target, c, D=hidden, BLOCK=triton.next_power_of_2(hidden), num_warps=1 if hidden < 1024 else 4
    )
    x_desc, w_desc = TensorDescriptor.from_tensor(x, [m, k]), TensorDescriptor.from_tensor(w, [n, k])
    e_desc = TensorDescriptor.from_tensor(e, [m, n // 2 if split else n])
    shared: Any = {"M": m, "N": n, "K": k, "GROUP": group, "SPLIT": split, "num_warps": warps, "num_stages": stages}
    programs = triton.cdiv(rows, m) * tiles
    if persistent:
        most = torch.cuda.get_device_properties(0).multi_processor_count if x.is_cuda else 2
        grid: Any = (min(programs, most),)
        exp_product_persistent[grid](
            x_desc, w_desc, e_desc, c, part, rows, vocabulary, hidden, tiles, PROGRAMS=grid[0], **shared
        )
    else:
        exp_product[(programs,)](x_desc, w_desc, e_desc, c, part, rows, vocabulary, hidden, tiles, **shared)
    finish_rows[(triton.cdiv(rows, 32),)](
        part, e, target, logq, entropy, top1, factor, rows, tiles, e.stride(0), R=32, B=32, num_warps=4
    )


def check(x: Tensor, w: Tensor, target: Tensor, setting: Setting, k: int = 64) -> dict[str, float]:
    """The largest errors against float64 of log q, entropy and residual."""
    rows, vocabulary = len(x), len(w)
    e = torch.empty(rows, vocabulary, dtype=x.dtype, device=x.device)
    part = torch.empty(3, triton.cdiv(vocabulary, setting[2]), rows, device=x.device)
    stats = torch.empty(5, rows, device=x.device)
    run(x, w, target, e, part, stats, setting, k)
    logp = (x.double() @ w.double().t()).log_softmax(1)
    want = logp.exp()
    at = torch.arange(rows, device=x.device)
    entropy = -(want * logp).sum(1)
    want[at, target] -= 1
    got = e.double() * stats[4].double()[:, None]
    worst = (got - want).abs().amax(1) / want.abs().amax(1)
    return {
        "log q": float((stats[1] - logp[at, target]).abs().max()),
        "entropy": float((stats[2] - entropy).abs().max()),
        "top-1": float((stats[3].bool() != (logp.argmax(1) == target)).sum()),
        "residual": float(worst.max()),
    }


def timed(way: Callable[[], object], rounds: int = 7) -> float:
    """Median milliseconds."""
    found = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        way()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    return statistics.median(found)


def compare(name: str, rows: int, hidden: int, vocabulary: int) -> None:
    """Print the time of each way over the three products."""
    from widen.head import weighted_linear_nll
    from widen.losses import parse

    torch.manual_seed(0)
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(vocabulary, hidden, device="cuda", dtype=torch.bfloat16) * hidden**-0.5
    target = torch.randint(vocabulary, (rows,), device="cuda")
    chunk = min(rows, WORKSPACE // (2 * vocabulary) // 128 * 128)
    chunk = -(-rows // -(-rows // chunk))
    e = torch.empty(chunk, vocabulary, device="cuda", dtype=torch.bfloat16)
    dx, dw = torch.empty_like(x), torch.empty_like(w)
    stats = torch.empty(5, rows, device="cuda")

    def products(first: Callable[[slice], object]) -> None:
        for start in range(0, rows, chunk):
            at = slice(start, min(start + chunk, rows))
            here = e[: at.stop - at.start]
            first(at)
            torch.mm(here, w, out=dx[at])
            torch.addmm(dw, here.t(), x[at], beta=0 if start == 0 else 1, out=dw)

    def roof() -> None:
        products(lambda at: torch.mm(x[at], w.t(), out=e[: at.stop - at.start]))

    for _ in range(3):
        roof()
    base = timed(roof)
    first = timed(lambda: torch.mm(x[:chunk], w.t(), out=e))
    print(f"{name}: three products {base:.2f} ms; the first of {chunk} rows {first:.3f} ms", flush=True)
    xg, wg, loss = x.clone().requires_grad_(), w.clone().requires_grad_(), parse("cdiv:alpha=1.4")

    def today() -> None:
        xg.grad = wg.grad = None
        weighted_linear_nll(xg, wg, target, loss, num_tokens=rows).loss.backward()

    for _ in range(3):
        today()
    print(f"  today's head, c-Div: {timed(today) / base:.3f}", flush=True)
    for setting in settings():
        part = torch.empty(3, triton.cdiv(vocabulary, setting[2]), chunk, device="cuda")

        def ours(at: slice, setting: Setting = setting, part: Tensor = part) -> None:
            run(
                x[at],
                w,
                target[at],
                e[: at.stop - at.start],
                part,
                torch.empty(5, at.stop - at.start, device="cuda"),
                setting,
            )

        try:
            ours(slice(0, chunk))
            alone = timed(lambda: ours(slice(0, chunk)))
            whole = timed(lambda: products(ours))
        except Exception as error:
            print(f"  {setting}: {type(error).__name__} {str(error)[:90]}", flush=True)
            continue
        print(f"  {setting}: first product {alone:.3f} ms ({alone / first:.3f}), all {whole / base:.3f}", flush=True)
    del stats


def main() -> None:
    """Check the kernels, then time them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="check small shapes only; with TRITON_INTERPRET=1 on a CPU"
    )
    quick = parser.parse_args().quick
    if not quick and not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: pass --quick, with TRITON_INTERPRET=1, to check the kernels on the CPU")
    device = "cpu" if quick else "cuda"
    dtype = torch.float16 if quick else torch.bfloat16  # the interpreter's descriptors load bfloat16 as integers
    torch.manual_seed(0)
    x = torch.randn(70, 80, device=device, dtype=dtype) / 8
    w = torch.randn(200, 80, device=device, dtype=dtype)
    target = torch.randint(200, (70,), device=device)
    for setting in [(False, 64, 64, 4, 3, 8, False), (True, 64, 64, 4, 3, 2, True)]:
        print(setting, check(x, w, target, setting, 16 if quick else 64))
    if not quick:
        for name, shape in SHAPES.items():
            compare(name, *shape)


if __name__ == "__main__":
    main()
