"""What a row of weight 0 saves: the head's time against the share of active rows, for three heads and a small workspace.

    python benchmarks/bench_head_rows.py             # one GPU, bfloat16, under a minute

`bench_head.py` describes the timing. "100 %" is a weight that does not promise `never_zero`: its distance from NLL, which does, is the cost
of counting the active rows, one wait for the device per chunk.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from bench_head import MB, Bench, active_rows
from head_candidates import Head
from head_limits import SHAPES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: on a CPU `bench_head.py --quick` has such a table")
    device = torch.device("cuda")
    bench = Bench(device, args.out, 300.0)
    bench.stem = bench.stem.replace("head_", "head_rows_", 1)
    bench.result["heading"] = "LM head + loss, by the share of active rows,"
    main_shape, *_, middle, small = SHAPES
    room = 256 * main_shape.vocabulary * 2
    for shape, workspaces in ((main_shape, (None, room)), (small, (None,)), (middle, (None,))):
        torch.cuda.empty_cache()
        head = Head(shape, device, torch.bfloat16)
        for workspace in workspaces:
            title = shape.name if workspace is None else f"{shape.name}, {workspace / MB:.0f} MB"
            active_rows(bench, head, title, **({} if workspace is None else {"workspace": workspace}))
        del head


if __name__ == "__main__":
    main()
