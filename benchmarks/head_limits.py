"""The shapes that `bench_head.py` times, the limits that it checks, and what its tables say about them."""

from __future__ import annotations

import statistics
from typing import Any

from head_candidates import Shape

SHAPES = {  # and the limit for c-Div's ratio to the three products
    Shape("Llama-3.1-8B, 8k tokens", 8192, 4096, 128256): 1.03,
    Shape("Llama-3.1-8B, 16k tokens", 16384, 4096, 128256): 1.05,
    Shape("Llama-3.1-8B, 32k tokens", 32768, 4096, 128256): 1.05,
    Shape("Llama-3.2-3B, 8k tokens", 8192, 3072, 128256): 1.08,
    Shape("Qwen2.5-0.5B, 8k tokens", 8192, 896, 151936): 1.10,
    Shape("OLMo-1B, 8k tokens", 8192, 2048, 50304): 1.08,
    Shape("SmolLM2-135M, 32k tokens", 32768, 576, 49152): 1.10,
}
PEERS = (  # the shapes at which other people's heads are timed as well; the last one if time is left
    "Llama-3.1-8B, 8k tokens",
    "OLMo-1B, 8k tokens",
    "Qwen2.5-0.5B, 8k tokens",
    "SmolLM2-135M, 32k tokens",
    "Llama-3.2-3B, 8k tokens",
)
GOALS = (  # narrow heads first: there the rest of a call is the largest share
    "SmolLM2-135M, 32k tokens",
    "Qwen2.5-0.5B, 8k tokens",
    "OLMo-1B, 8k tokens",
    "Llama-3.1-8B, 8k tokens",
)
LOSSES = ["cdiv:alpha=1.4", "cdiv:alpha=1.3", "gold", "dft", "tailr:gamma=1e-5", "lambda_pr:lam=0.9,gamma=1e-5"]
REST = "where the rest goes, "


def bounds(bench: Any) -> None:
    """Notes on what no code around the products can beat."""
    for title, table in bench.result["tables"].items():
        ratio = {name: row["ratio"] for name, row in table["rows"].items() if "ratio" in row}
        if title.startswith(REST) and len(ratio) == 4:
            _, products, softmax, whole = ratio.values()
            bench.note(
                f"{title.removeprefix(REST)}: the products in our chunks cost {products:.3f} of the three whole ones, with the "
                f"softmax kernel {softmax:.3f}, the whole call {whole:.3f}"
            )
        if title.startswith("peers") and "CCE NLL" in ratio:
            bench.note(
                f"{title}: cut cross-entropy takes {ratio['CCE NLL']:.2f} times the three products, so no head that computes them can "
                f"be more than {ratio['CCE NLL']:.2f} times as fast as it here"
            )


CDIV = (
    "widen c-Div",
    "cdiv:alpha=1.4",
    "c-Div",
    "and weights, scaled rows, waits: c-Div",
)  # the same call in several tables


def pooled(bench: Any, shape: Shape) -> tuple[list[float], int]:
    """c-Div's ratios over all tables with its default settings, and the number of tables: one table resolves a hundredth, not less."""
    tables = [t["rows"] for t in bench.result["tables"].values() if t["shape"]["name"] == shape.name]
    found = [[r for name in CDIV for r in rows.get(name, {}).get("ratios", [])] for rows in tables]
    return [r for ratios in found for r in ratios], sum(bool(ratios) for ratios in found)


def pool(bench: Any) -> None:
    """Notes on c-Div at each shape over all rounds."""
    for shape, limit in SHAPES.items():
        ratios, tables = pooled(bench, shape)
        if len(ratios) > 1:
            low, middle, high = statistics.quantiles(ratios, n=4)
            bench.note(
                f"{shape.name}: c-Div takes {middle:.3f} times the three products ({low:.3f}-{high:.3f}) over all {len(ratios)} rounds of "
                f"{tables} tables; the limit is {limit}"
            )


def judge(bench: Any) -> None:
    """Check the limits against the tables."""
    tables = {title: table["rows"] for title, table in bench.result["tables"].items()}
    main, curve, every = next(iter(SHAPES)).name, "time against workspace", "every token-local loss"
    asked: list[tuple[str, str, float, tuple[str, str, str]]] = [
        ("linear_logprob to the products", "<=", 1.40, (main, "widen linear_logprob", "roof")),
        ("NLL at 63 MB to Liger's NLL", "<=", 1.0, (curve, "widen NLL, 63 MB", "Liger NLL")),
        ("Liger's NLL to c-Div at 250 MB", ">=", 1.25, (curve, "Liger NLL", "widen c-Div, 250 MB")),
        ("cut cross-entropy to c-Div", ">=", 3.5, ("peers, " + main, "CCE NLL", "widen c-Div")),
        *((f"{spec} to NLL", "<=", 1.02, (every, spec, "nll")) for spec in LOSSES),
        ("5 % of rows to NLL", "<=", 0.5, ("active rows", "5 %", "nll")),
    ]
    bench.result["targets"] = []

    def say(name: str, sense: str, limit: float, ratio: float | None) -> None:
        met = "-" if ratio is None else "yes" if (ratio <= limit if sense == "<=" else ratio >= limit) else "NO"
        value = "not measured" if ratio is None else f"{ratio:.3f}"
        bench.result["targets"].append({"name": name, "limit": f"{sense} {limit}", "measured": value, "met": met})
        print(f"{met:>3}  {name}: {value} ({sense} {limit})", flush=True)

    for shape, limit in SHAPES.items():
        ratios, _ = pooled(bench, shape)
        say(
            f"c-Div to the products, all rounds, {shape.name}",
            "<=",
            limit,
            statistics.median(ratios) if ratios else None,
        )
    for name, sense, limit, (title, above, below) in asked:
        rows = tables.get(title, {})
        measured = "ratio" in rows.get(above, {}) and "ratio" in rows.get(below, {})
        say(name, sense, limit, rows[above]["ratio"] / rows[below]["ratio"] if measured else None)
