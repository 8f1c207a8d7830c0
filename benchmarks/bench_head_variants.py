"""The head with and without each of its internal decisions, in one run: which are worth it, and what is left to gain.

The baseline has none of them and 1 GB of logits; "as shipped" is what `widen.head` does by itself.

    python benchmarks/bench_head_variants.py            # one GPU, bfloat16, under two minutes
    python benchmarks/bench_head_variants.py --quick    # a smoke run, seconds on a CPU (set TRITON_INTERPRET=1)

First the walk alone over one chunk of logits, against a plain copy of as many bytes; the fastest right launch of each vocabulary goes
on. Then whole calls at every shape, in rounds with the three products as in bench_head.py; where the device stands still inside one
call; and what is not shipped: a walk that reads the logits twice, rows held in registers, a walk beside the products on a stream of
its own, and the log-sum-exp in the epilogue of a Triton product. Every variant's numbers are compared with the baseline's; a variant that
fails is noted with the end of its traceback, and the others go on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from bench_head import MB, Bench, attempt
from head_candidates import Head, Run, Shape
from head_held import Hold, describe_held
from head_prototypes import logits_and_lse, overlapped
from head_targets import SHAPES

from widen import losses
from widen.head import linear_logprob, logprob, one_read, plan, rows_torch, rows_triton, weighted_linear_nll
from widen.head.gradients import logits_
from widen.head.stats import RowStats

HOLDS = {  # the best of those that were tried
    128256: [Hold(8192, 32, 8, evict=False), Hold(8192, 32, 0)],
    50304: [Hold(4096, 8, 13, 128, evict=False), Hold(4096, 16, 6, 64)],
    49152: [Hold(4096, 8, 12, 128, evict=False), Hold(4096, 16, 6, 64), Hold(2048, 4, 12, 128)],
}
TINY = Shape("tiny", 12, 16, 251)
LOGPROB = {4096, 576, TINY.hidden}  # hidden sizes of the shapes at which `linear_logprob` is timed
LAUNCHES = [
    one_read.Launch(*sizes) for sizes in ((4096, 8), (8192, 8), (8192, 16), (16384, 16), (16384, 32), (32768, 32))
]
PLAIN = {"lead": None, "keep": False, "hold": None, "once": False, "pick": rows_torch.pick}
SHIPPED = {"lead": plan.LEAD, "keep": True, "hold": None, "once": True, "pick": rows_triton.pick}
FAR = 2e-2  # relative distance of a gradient from the baseline's beyond which a variant is wrong; two roundings differ by 4e-3


@contextlib.contextmanager
def knobs(lead: plan.Lead | None, keep: bool, hold: Hold | None, once: bool, pick: Any) -> Iterator[None]:
    """The decisions of one variant, in place of what is shipped, which is put back afterwards."""
    before = plan.LEAD, plan.ONE_READ, logprob._Kept, rows_triton.describe, rows_triton.pick
    plan.LEAD, rows_triton.pick = lead, pick
    if not once:
        plan.ONE_READ = ()
    if not keep:
        logprob._Kept = lambda *chunk: None  # type: ignore[assignment,misc]
    if hold is not None:
        rows_triton.describe = lambda z, target, stats, **_: describe_held(z, target, stats, hold)
    try:
        yield
    finally:
        plan.LEAD, plan.ONE_READ, logprob._Kept, rows_triton.describe, rows_triton.pick = before


@contextlib.contextmanager
def launched(launch: one_read.Launch) -> Iterator[None]:
    """Another launch of the walk that is shipped."""
    before, one_read.launch_for = one_read.launch_for, lambda *_: launch
    try:
        yield
    finally:
        one_read.launch_for = before


class Variants(Bench):
    """Tables of variants, each checked against the first."""

    heading = "Variants of the LM head"
    most_rounds = 60  # differences of one in a hundred are looked for

    def __init__(self, device: torch.device, out: Path, deadline: float) -> None:
        super().__init__(device, out, deadline)
        self.stem = self.stem.replace("head_", "head_variants_", 1)
        self.best: dict[int, Hold | None] = {}
        self.copy_rate = 0.0

    def calls(
        self, head: Head, title: str, call: Callable[..., Any], variants: dict[str, dict[str, Any]], seconds: float
    ) -> None:
        """Whole calls under knobs; a variant's own key ``workspace`` goes to the call."""
        first: list[torch.Tensor] = []
        distances: list[str] = []

        def build(name: str, options: dict[str, Any]) -> Run:
            workspace = options.get("workspace", 1024 * MB)
            setting = PLAIN | {k: v for k, v in options.items() if k != "workspace"}

            def run() -> Any:
                with knobs(**setting):
                    return call(workspace)

            got = run()
            if not first:
                first.extend(got)
            far = max(distance(a, b) for a, b in zip(got, first, strict=True))
            distances.append(f"{name} {far:.1e}")
            if not far < FAR:
                raise ValueError(f"gradients are {far:.2e} away from the baseline's")
            return run

        self.table(title, head, {name: (lambda n=name, o=o: build(n, o)) for name, o in variants.items()}, seconds)
        self.note(f"{title}: distance of the gradients to the baseline's: {', '.join(distances)}")


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Relative, row blocks at a time: a gigabyte in float32 twice over would be a peak of its own."""
    up = down = 0.0
    for x, y in zip(a.split(16384), b.split(16384), strict=True):
        up += (x.float() - y.float()).square().sum().item()
        down += y.float().square().sum().item()
    return (up / max(down, 1e-30)) ** 0.5


def walks(bench: Variants, shape: Shape, device: torch.device) -> None:
    """The walk over one chunk of logits, by launch, against a copy of the same bytes."""
    vocabulary = shape.vocabulary
    rows = max(8, min(shape.tokens, 1024 * MB // (2 * vocabulary)) // 128 * 128) if bench.cuda else 8
    like = torch.empty(vocabulary, 1, device=device, dtype=torch.bfloat16)
    the_plan = plan.plan_for("triton", like, torch.bfloat16, None, None, None)
    z, fresh = the_plan.buffer(rows, like), the_plan.buffer(rows, like)
    fresh.copy_(2 * torch.randn(rows, vocabulary, device=device, dtype=torch.bfloat16))
    target = torch.randint(0, vocabulary, (rows,), device=device)
    stats = RowStats.empty(rows, like)
    runs: dict[str, Run] = {"roof": lambda: z.copy_(fresh)}
    holds: dict[str, Hold | None] = {"two walks": None}
    for hold in HOLDS.get(vocabulary, [Hold(128, 4, 2)]):
        holds[str(tuple(hold))] = hold
    expected: list[torch.Tensor] = []
    for name, hold in holds.items():

        def run(hold: Hold | None = hold) -> None:
            with knobs(**PLAIN | {"hold": hold}):
                the_plan.ops.describe(z, target, stats, softcap=None, residual=True)

        if keep(bench, f"walk V={vocabulary} {name}", lambda run=run: same(run, z, fresh, stats, expected)):
            runs[name] = run
    for programs in (16, 32, 66) if bench.cuda else (3,):
        some = HOLDS.get(vocabulary, [Hold(128, 4, 2)])[0]
        few = lambda some=some, n=programs: describe_held(z, target, stats, some, programs=n)  # noqa: E731
        if keep(
            bench, f"walk V={vocabulary} {programs} programs", lambda few=few: same(few, z, fresh, stats, expected)
        ):
            runs[f"{tuple(some)} by {programs} programs"] = few
    for launch in LAUNCHES if bench.cuda else [one_read.Launch(128, 4)]:

        def read_once(launch: one_read.Launch = launch) -> None:
            with launched(launch):
                one_read.describe_once(z, target, stats)

        check = lambda run=read_once: same(run, z, fresh, stats, expected)  # noqa: E731
        if keep(bench, f"walk V={vocabulary} read once {tuple(launch)}", check):
            runs[f"read once {tuple(launch)}"] = read_once
    table = bench.rounds(runs, {}, seconds=1.0)
    title = f"walk, {rows} rows of {vocabulary}"
    moved = 2 * z.numel() * z.element_size()
    for row in table.values():
        row["tb_per_s"] = moved / row["ms"] / 1e9
    bench.copy_rate = max(bench.copy_rate, table["roof"]["tb_per_s"])
    bench.result["tables"][title] = {"shape": shape._asdict(), "roof": "a copy of as many bytes", "rows": table}
    bench.show(title, table)
    best = min((n for n in table if n in holds), key=lambda n: table[n]["ms"])
    bench.best[vocabulary] = holds[best]
    rates = ", ".join(f"{n} {r['tb_per_s']:.2f}" for n, r in table.items())
    bench.note(
        f"V={vocabulary}: fastest launch that reads twice or holds rows: {best}; TB/s with one read and one write counted: {rates}"
    )
    bench.write()


def keep(bench: Variants, name: str, check: Callable[[], None]) -> bool:
    if bench.spent() > bench.deadline:
        bench.note(f"{name}: over the budget")
        return False
    try:
        check()
    except Exception as error:
        print(*traceback.format_exc().splitlines()[-4:], sep="\n", flush=True)
        bench.note(f"FAILED {name}: {type(error).__name__}: {str(error)[:200]}")
        return False
    return True


def same(run: Run, z: torch.Tensor, fresh: torch.Tensor, stats: RowStats, expected: list[torch.Tensor]) -> None:
    """Run once on fresh logits; the first variant's numbers become those of all."""
    z.copy_(fresh)
    for x in stats:
        x.fill_(7)
    run()
    if not expected:
        expected.extend(x.clone() for x in (*stats[:-1], z))
        return
    for x, y in zip(stats, expected[:-1], strict=False):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
    z *= stats.factor_C[:, None]
    far = distance(z, expected[-1])
    if not far < 1e-2:
        raise ValueError(f"the residual is {far:.2e} away")


def weighted_call(head: Head, impl: str) -> Callable[[int | None], Any]:
    weight = losses.parse("cdiv:alpha=1.4")
    return lambda workspace: head.gradient(
        weighted_linear_nll(
            head.hidden, head.head, head.target, weight, position_N=head.position, length_N=head.length,
            num_tokens=len(head.target), impl=impl, workspace=workspace,
        ).loss
    )  # fmt: skip


def logprob_call(head: Head, impl: str) -> Callable[[int | None], Any]:
    def call(workspace: int | None) -> Any:
        logq_N = linear_logprob(head.hidden, head.head, head.target, impl=impl, workspace=workspace)
        return head.gradient(-logq_N.mean())

    return call


def whole(bench: Variants, head: Head, impl: str) -> None:
    """c-Div and `linear_logprob` at one shape."""
    shape = head.shape
    hold, pick = bench.best.get(shape.vocabulary), rows_triton.pick
    sixteenth, eighth = (plan.Lead(one_in=n, least=0) for n in (16, 8))
    bench.calls(head, f"c-Div, {shape.name}", weighted_call(head, impl), {
        "baseline": {},
        "targets in one launch": {"pick": pick},
        "lead 1/16": {"lead": sixteenth, "pick": pick},
        "lead 1/8": {"lead": eighth, "pick": pick},
        "rows in registers": {"hold": hold},
        "logits read once": {"once": True},
        "all but the one read": SHIPPED | {"once": False, "workspace": None},
        "as shipped": SHIPPED | {"workspace": None},
    }, seconds=5)  # fmt: skip
    if shape.hidden in LOGPROB:
        bench.calls(head, f"linear_logprob, {shape.name}", logprob_call(head, impl), {
            "baseline": {},
            "last chunk kept": {"keep": True},
            "as shipped": SHIPPED | {"workspace": None},
        }, seconds=3)  # fmt: skip


def beside(bench: Variants, head: Head) -> None:
    """The products and the walk of each chunk, one after the other and on two streams."""
    hold = bench.best.get(head.shape.vocabulary) or HOLDS[head.shape.vocabulary][0]

    def serial(**setting: Any) -> Run:
        with knobs(**PLAIN | setting):
            run = head.chunked(walk=True)

        def walked() -> Any:
            with knobs(**PLAIN | setting):
                return run()

        return walked

    def checked(run: Run) -> Run:
        with knobs(**PLAIN):
            expected = head.chunked(walk=True)()
        far = max(distance(a, b) for a, b in zip(run(), expected, strict=True))
        if not far < FAR:
            raise ValueError(f"gradients are {far:.2e} away")
        return run

    variants: dict[str, Callable[[], Run]] = {
        "the products in our chunks": lambda: head.chunked(walk=False),
        "and a walk that reads twice": serial,
        "and a walk in registers": lambda: serial(hold=hold),
        "and the walk": lambda: serial(once=True),
    }
    for programs, carve in ((0, 0), (12, 0), (12, 12), (24, 24)):
        name = f"two streams, {programs or 'all'} programs, {carve} multiprocessors left free"
        variants[name] = lambda p=programs, c=carve: checked(overlapped(head, hold, p, c))
    title = f"products and walk, {head.shape.name}"
    rows = bench.table(title, head, variants, seconds=4)
    if "ratio" in rows.get("the products in our chunks", {}) and bench.copy_rate:
        floor = 4 * head.shape.tokens * head.shape.vocabulary / bench.copy_rate / 1e9
        share, products = floor / rows["roof"]["ms"], rows["the products in our chunks"]["ratio"]
        bench.note(
            f"{head.shape.name}: one read and one write of all logits at the copy's {bench.copy_rate:.2f} TB/s take {floor:.2f} ms, "
            f"{share:.3f} of the products; the products in our chunks {products:.3f}; so no head whose walk stands apart from the "
            f"products can be under {products + share:.3f} unless it overlaps them"
        )


def epilogue(bench: Variants, head: Head) -> None:
    """Logits and their log-sum-exp: product then walk, against one Triton product that sums up in its epilogue."""
    h, w = head.hidden.detach(), head.head.detach()
    the_plan = plan.plan_for("triton", w, w.dtype, None, None, None)
    rows = the_plan.rows(len(h), len(w))
    h, target = h[:rows], head.target[:rows]
    z, stats = the_plan.buffer(rows, w), RowStats.empty(rows, w)

    def walked() -> None:
        the_plan.ops.normalise(logits_(z, h, w, None), target, stats, softcap=None)

    def fused(tile: tuple[int, int, int], warps: int, stages: int) -> Run:
        walked()
        lse_C = logits_and_lse(z, h, w, tile=tile, warps=warps, stages=stages)
        torch.testing.assert_close(lse_C, stats.lse_C, rtol=1e-3, atol=1e-3)
        return lambda: logits_and_lse(z, h, w, tile=tile, warps=warps, stages=stages)

    bench.table(f"logits of {rows} rows and their log-sum-exp, {head.shape.name}", head, {
        "cuBLAS, logits alone": lambda: lambda: logits_(z, h, w, None),
        "cuBLAS, then the walk": lambda: walked,
        "Triton, 128 x 256 x 64": lambda: fused((128, 256, 64), 8, 3),
        "Triton, 128 x 128 x 64": lambda: fused((128, 128, 64), 4, 4),
        "Triton, 256 x 128 x 64": lambda: fused((256, 128, 64), 8, 3),
    }, seconds=1)  # fmt: skip


def idle(bench: Variants, head: Head, name: str, setting: dict[str, Any], call: Callable[[int | None], Any]) -> None:
    """Where the device stands still inside one call that follows the three products."""
    kind = torch.profiler.ProfilerActivity.CUDA
    with knobs(**setting):
        call(None)
        bench.sync()
        with torch.profiler.profile(activities=[kind]) as seen:
            head.roof()
            call(None)
            bench.sync()
    events = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    end, busy, gaps = events[0].time_range.start, 0.0, []
    for e in events:
        start = max(e.time_range.start, end)
        if start > end:
            gaps.append((start - end, e.key[:50]))
        busy += max(0.0, e.time_range.end - start)
        end = max(end, e.time_range.end)
    text = ", ".join(f"{us:.0f} us before {key}" for us, key in sorted(gaps, reverse=True)[:5])
    small = sum(e.time_range.end - e.time_range.start for e in events if e.time_range.end - e.time_range.start < 60)
    bench.note(
        f"idle, {head.shape.name}, {name}: {sum(g for g, _ in gaps):.0f} us in {len(gaps)} gaps, kernels under 60 us {small:.0f} us; {text}"
    )


def gaps(bench: Variants, head: Head) -> None:
    call = weighted_call(head, "auto")
    for name, setting in (("baseline", PLAIN), ("as shipped", SHIPPED)):
        attempt(bench, lambda n=name, s=setting: idle(bench, head, n, s, call))


def everything(bench: Variants, device: torch.device, quick: bool) -> None:
    impl = "triton" if quick else "auto"
    shapes = [TINY] if quick else [s for s in SHAPES if s.tokens <= 8192 or s.hidden < 1024]
    for vocabulary in {s.vocabulary: s for s in shapes}:
        shape = next(s for s in shapes if s.vocabulary == vocabulary)
        attempt(bench, lambda s=shape: walks(bench, s, device))
    parts: list[tuple[list[Shape], Callable[[Head], None]]] = [(shapes, lambda head: whole(bench, head, impl))]
    if bench.cuda:
        small = [s for s in shapes if s.hidden <= 2048]
        parts += [(shapes, lambda head: gaps(bench, head)), ([shapes[0], *small], lambda head: beside(bench, head))]
        parts += [(small, lambda head: epilogue(bench, head))]
    for some, part in parts:
        for shape in some:
            if bench.cuda:
                torch.cuda.empty_cache()
            attempt(bench, lambda s=shape, part=part: part(Head(s, device, torch.bfloat16)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, for a smoke run under Triton's interpreter")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    parser.add_argument("--budget", type=float, default=100.0, help="seconds after which no variant is started")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        raise SystemExit("no CUDA device here: pass --quick for a smoke run on the CPU")
    bench = Variants(device, args.out, args.budget)
    print(json.dumps({k: v for k, v in bench.result.items() if k not in ("tables", "notes")}), flush=True)
    attempt(bench, lambda: everything(bench, device, args.quick))
    bench.write()
    print("\n".join(bench.result["notes"]))
    print(f"wrote {bench.out / bench.stem}.json and .md after {bench.spent():.0f} s")


if __name__ == "__main__":
    sys.exit(main())
