"""What a loss costs in the head beyond NLL: other row statistics, other residuals, whole-sequence weights, for four heads.

    python benchmarks/bench_head_losses.py             # one GPU, bfloat16, under four minutes
    python benchmarks/bench_head_losses.py --quick     # tiny shapes on a CPU, for a smoke run

`bench_head.py` describes the timing. Trunc runs as in the trainers, on sequences of 128 targets, of which a share is kept: one call of
`Objective.through_head` describes all rows, weighs the sequences and multiplies the active rows. "token-local, 50 %" has as many active
rows, known chunk by chunk.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from bench_head import MB, QUICK, Bench
from head_candidates import Active, Head, Run, Shape

from widen.data.rows import Rows
from widen.data.targets import Sequences
from widen.losses import TokenWeight
from widen.train.objective import Objective

SHAPES = [
    Shape("Llama-3.1-8B, 8k tokens", 8192, 4096, 128256),
    Shape("OLMo-1B, 8k tokens", 8192, 2048, 50304),
    Shape("Qwen2.5-0.5B, 8k tokens", 8192, 896, 151936),
    Shape("SmolLM2-135M, 32k tokens", 32768, 576, 49152),
]
LOSSES = {  # and how far above NLL each may be
    "nll": None,
    "cdiv:alpha=1.4": 1.02,
    "eaft": 1.03,
    "gem:beta=0.7": 1.05,
    "tofu:gamma=3,beta=0.8": 1.05,
    "smooth:eps=0.1": None,
    "entropy:bonus=0.01": None,
}
LENGTH = 128


class KeepShare(TokenWeight):
    """Trunc with a given share of sequences kept, so that every round multiplies as many rows."""

    token_local = False

    def __init__(self, share: float) -> None:
        self.share = share

    def apply(self, rows: Rows, mask_BL: torch.Tensor, state: Any) -> Any:
        score_B = torch.where(mask_BL, rows.logq, 0.0).double().sum(-1)
        kept_B = score_B >= score_B.quantile(1 - self.share)
        return torch.where(mask_BL & kept_B[:, None], 1.0, 0.0), state


def trunc(head: Head, share: float) -> Run:
    """Trunc as a trainer runs it."""
    objective, sequences = (
        Objective(KeepShare(share)),
        Sequences(head.target.view(-1, min(LENGTH, len(head.target) // 8))),
    )
    return lambda: head.gradient(
        objective.through_head(head.hidden, head.head, sequences, num_tokens=len(head.target)).loss
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, float32, for a smoke run")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    parser.add_argument("--seconds", type=float, default=15.0, help="time for the rounds of one table")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        raise SystemExit("no CUDA device here: pass --quick for a smoke run on the CPU")
    bench = Bench(device, args.out, 210.0)
    bench.stem = bench.stem.replace("head_", "head_losses_", 1)
    bench.result["heading"] = "LM head + loss, by loss,"
    for shape in QUICK if args.quick else SHAPES:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        head = Head(shape, device, torch.float32 if args.quick else torch.bfloat16)
        rows = bench.table(shape.name, head, {
            **{spec: lambda spec=spec, h=head: h.weighted(spec) for spec in LOSSES},
            "linear_logprob": lambda h=head: h.logprob(),
            **{f"token-local, {100 * a:g} %": lambda a=a, h=head: h.weighted(Active(a)) for a in (0.5, 0.9)},
            **{f"Trunc, {100 * a:g} %": lambda a=a, h=head: trunc(h, a) for a in (0.5, 0.9)},
        }, seconds=0.5 if args.quick else args.seconds)  # fmt: skip
        judge(bench, shape, rows)
        del head
    bench.write()
    print(f"wrote {bench.out / bench.stem}.json and .md after {bench.spent():.0f} s")


def judge(bench: Bench, shape: Shape, rows: dict[str, Any]) -> None:
    """Check the limits, each against NLL in the same table."""
    targets = bench.result.setdefault("targets", [])
    for spec, limit in LOSSES.items():
        if "ratio" in rows[spec] and "ratio" in rows["nll"] and spec != "nll":
            ratio = rows[spec]["ratio"] / rows["nll"]["ratio"]
            met = "-" if limit is None else "yes" if ratio <= limit else "NO"
            asked = "-" if limit is None else f"<= {limit}"
            targets.append(
                {"name": f"{spec} to NLL, {shape.name}", "limit": asked, "measured": f"{ratio:.3f}", "met": met}
            )
    logits = shape.tokens * shape.vocabulary * 2 / MB
    bench.note(
        f"{shape.name}: the logits of all rows take {logits:.0f} MB in bfloat16; the default workspace is 2048 MB"
    )


if __name__ == "__main__":
    main()
