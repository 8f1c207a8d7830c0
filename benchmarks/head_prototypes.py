"""Ways of computing the head that are timed and not shipped: the walk on a stream beside the products, the log-sum-exp in a product."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from head_candidates import Head, Run
from head_held import Hold, describe_held

from widen.head import plan
from widen.head.gradients import add_product_, logits_
from widen.head.stats import RowStats

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _logits(
    h_ptr, w_ptr, z_ptr, m_ptr, s_ptr, rows, pitch,
    V: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of the logits, and of each of its rows the maximum and the sum of exponentials, to the base 2."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(rows, BM)
    # GROUP tiles of rows share each tile of the head while it is in L2.
    group = pid // (GROUP * TILES)
    first = group * GROUP
    high = tl.minimum(tiles_m - first, GROUP)
    tile_m, tile_n = first + (pid % (GROUP * TILES)) % high, (pid % (GROUP * TILES)) // high
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a = h_ptr + (m % rows).to(tl.int64)[:, None] * D + k[None, :]
    b = w_ptr + (n % V).to(tl.int64)[None, :] * D + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, D, BK):
        inside = start + k < D
        acc += tl.dot(
            tl.load(a + start, mask=inside[None, :], other=0.0), tl.load(b + start, mask=inside[:, None], other=0.0)
        )
    z = acc.to(z_ptr.dtype.element_ty)
    at = z_ptr + m.to(tl.int64)[:, None] * pitch + n[None, :]
    tl.store(at, z, mask=(m < rows)[:, None] & (n < V)[None, :])
    real = tl.where((n < V)[None, :], z.to(tl.float32) * LOG2E, -float("inf"))
    top = tl.max(real, axis=1)
    total = tl.sum(tl.exp2(real - top[:, None]), axis=1)
    part = m.to(tl.int64) * TILES + tile_n
    tl.store(m_ptr + part, top, mask=m < rows)
    tl.store(s_ptr + part, total, mask=m < rows)


def logits_and_lse(
    z_CV: torch.Tensor, hidden_CD: torch.Tensor, head_VD: torch.Tensor, *, tile: tuple[int, int, int], warps: int, stages: int
) -> torch.Tensor:  # fmt: skip
    """Fill ``z_CV``; the log-sum-exp of each row."""
    rows, vocabulary = z_CV.shape
    bm, bn, bk = tile
    tiles = triton.cdiv(vocabulary, bn)
    m, s = (torch.empty(rows, tiles, device=z_CV.device) for _ in range(2))
    _logits[(triton.cdiv(rows, bm) * tiles,)](
        hidden_CD, head_VD, z_CV, m, s, rows, z_CV.stride(0), V=vocabulary, D=hidden_CD.shape[1], TILES=tiles,
        BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    top = m.amax(1, keepdim=True)
    return (top[:, 0] + (s * (m - top).exp2()).sum(1).log2()) * 0.6931471805599453


def overlapped(head: Head, hold: Hold, programs: int, carve: int) -> Run:
    """Walk of one chunk beside the products of its neighbours: two buffers of half the rows."""
    h, w = head.hidden.detach(), head.head.detach()
    the_plan = plan.plan_for("triton", w, w.dtype, None, None, None)
    rows = max(128, the_plan.rows(len(h), len(w)) // 256 * 128)
    cut = list(plan.chunks(len(h), rows))
    side = torch.cuda.Stream(priority=-1)
    limit = getattr(torch._C, "_set_sm_carveout_experimental", None)
    if carve and limit is None:
        raise RuntimeError("this torch cannot leave multiprocessors free")

    def run() -> tuple[torch.Tensor, ...]:
        main = torch.cuda.current_stream()
        dx, dw, stats = torch.empty_like(h), torch.empty_like(w), RowStats.empty(len(h), w)
        buffers = [the_plan.buffer(rows, w) for _ in range(2)]
        zs = [buffers[i % 2][: s.stop - s.start] for i, s in enumerate(cut)]
        made, walked = ([torch.cuda.Event() for _ in cut] for _ in range(2))
        logits_(zs[0], h[cut[0]], w, None)
        made[0].record(main)
        for i, chunk in enumerate(cut):
            with torch.cuda.stream(side):
                side.wait_event(made[i])
                describe_held(zs[i], head.target[chunk], stats.part(chunk), hold, programs=programs)
                walked[i].record(side)
            if i + 1 < len(cut):
                logits_(zs[i + 1], h[cut[i + 1]], w, None)
                made[i + 1].record(main)
            main.wait_event(walked[i])
            add_product_(dx[chunk], zs[i], w, alpha=1.0, fresh=True)
            add_product_(dw, zs[i].t(), h[chunk], alpha=1.0, fresh=i == 0)
        return dx, dw

    def carved() -> tuple[torch.Tensor, ...]:
        if not carve:
            return run()
        library = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library("cublaslt")
        limit(carve)
        try:
            return run()
        finally:
            limit(None)
            torch.backends.cuda.preferred_blas_library(library)

    return carved
