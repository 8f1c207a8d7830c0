"""Claim: many small models train side by side at close to the cost of their memory traffic, and one alone twice as fast as a plain
Hugging Face loop.

    python benchmarks/bench_side_by_side.py                    # 2 CPU cores: LlamaForCausalLM + AdamW against us, M = 1 and M = 4
    python benchmarks/bench_side_by_side.py --device cuda      # one GPU: 37 models, several engines, and where the time goes

The paper's model and batch: 66,656 parameters, 512 sequences of 8 tokens. Variants take turns (interleaved rounds); medians are given
with the quartiles. Results go to benchmarks/results/side_by_side_<machine>.{json,md}.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from widen.data.mulmod import MulMod
from widen.models.tiny_llama import LlamaShape
from widen.train.engine import Engine
from widen.train.settings import Configuration, Train
from widen.train.side_by_side import CHUNK, SideBySide

LOSSES = (
    "nll", "gold", "cdiv:alpha=1.2", "cdiv:alpha=1.4", "cdiv:alpha=2", "tailr:gamma=0.01", "tailr:gamma=0.1",
    "lambda_pr:lam=0.9,gamma=0.1", "trunc:drop=0.1", "trunc:drop=0.25", "truncr:drop=0.1", "truncr:drop=0.25",
)  # fmt: skip
TARGET_MS = 9.0  # 37 models on one H200


def configurations(models: int) -> list[Configuration]:
    train = Train(steps=10**9, batch_size=512, ema=0.99)
    return [
        Configuration(data=MulMod(seed=m), loss=LOSSES[m % len(LOSSES)], train=train, seed=m) for m in range(models)
    ]


def hugging_face_step(models: int) -> Callable[[], None]:
    """One step of `models` plain loops: LlamaForCausalLM, cross entropy, AdamW."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaShape()
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.dim, intermediate_size=shape.hidden, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.heads, tie_word_embeddings=False, use_cache=False,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    nets = [LlamaForCausalLM(config) for _ in range(models)]
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-3) for net in nets]
    tokens = torch.from_numpy(MulMod().train_tokens())
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        for net, optimizer in zip(nets, optimizers, strict=True):
            batch = tokens[torch.randint(len(tokens), (512,), generator=generator)]
            logits = net(input_ids=batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def one_step(trainer: SideBySide) -> Callable[[], None]:
    return lambda: list(trainer.advance(1)) and None


def one_chunk(trainer: SideBySide) -> Callable[[], None]:
    """CHUNK more steps of one endless run at each call: figures come in chunks, and the next batches are prepared meanwhile."""
    logs = trainer.advance()
    return lambda: [next(logs) for _ in range(CHUNK)] and None


def interleaved(variants: dict[str, tuple[Callable[[], None], int]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds a step of each variant (a function and how many steps it makes), in turns."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for round_ in range(rounds + 2):
        for name, (run, steps) in variants.items():
            start = time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if round_ >= 2:
                times[name].append(1e3 * (time.perf_counter() - start) / steps)
    return times


def summary(times: dict[str, list[float]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, values in times.items():
        low, median, high = statistics.quantiles(values, n=4)
        rows.append({"variant": name, "median_ms": median, "q1_ms": low, "q3_ms": high, "best_ms": min(values)})
    return rows


def traffic_bytes(models: int, rows: int) -> int:
    """What has to move if every kernel is perfect: activations written once and read once a direction, per row and layer."""
    shape = LlamaShape()
    D, F, V = shape.dim, shape.hidden, shape.vocab
    kept = 2 * D + 3 * D + D + 2 * F  # two stream states, q k v, attention's output, gate and up
    per_row = shape.layers * kept * 4 * 3 + 4 * V * 4  # written; read by the backward; its gradients once
    return models * (rows * per_row + shape.num_parameters * 4 * 11)


def bandwidth() -> float:
    """Bytes a second of a large copy on this GPU."""
    source = torch.empty(2**28, device="cuda")
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        target.copy_(source)
    torch.cuda.synchronize()
    return 10 * 2 * source.numel() * 4 / (time.perf_counter() - start)


def first_losses(trainer: SideBySide) -> torch.Tensor:
    """The loss of every model at each of its first five steps."""
    return torch.tensor([log.loss_M for log in trainer.advance(5)], dtype=torch.float64)


def profile(run: Callable[[], None], steps: int) -> str:
    """Where a GPU's time goes: kernels by total time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    torch.cuda.synchronize()
    with record(activities=[ProfilerActivity.CUDA]) as trace:
        run()
        torch.cuda.synchronize()
    kernels = [event for event in trace.key_averages() if event.self_device_time_total > 0]
    kernels.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in kernels) / 1e3 / steps
    count = sum(event.count for event in kernels) / steps
    lines = [f"kernels: {total:.2f} ms a step in all, {count:.0f} launches a step"]
    for event in kernels[:45]:
        name = re.sub(r"\s+", " ", event.key)[:110]
        lines.append(f"{event.self_device_time_total / 1e3 / steps:8.3f} ms  {event.count / steps:6.1f} x  {name}")
    return "\n".join(lines)


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name().replace(" ", "_")
    return f"cpu{torch.get_num_threads()}"


Variants = dict[str, tuple[Callable[[], None], int]]


def on_cpu(args: argparse.Namespace) -> Variants:
    torch.set_num_threads(args.threads)
    variants: Variants = {}
    for models in args.models or [1, 4]:
        variants[f"Hugging Face loop, M={models}"] = (hugging_face_step(models), 1)
        variants[f"side by side, M={models}"] = (one_step(SideBySide(configurations(models))), 1)
    return variants


def on_gpu(args: argparse.Namespace) -> Variants:
    engines = {
        "compiled, graph": Engine(device="cuda", compile=True, graph=True),
        "compiled, graph, tf32": Engine(device="cuda", compile=True, graph=True, tf32=True),
        "eager, graph": Engine(device="cuda", graph=True),
        "compiled, graph, nothing shared": Engine(device="cuda", compile=True, graph=True, share=False),
    }
    variants: Variants = {}
    models = (args.models or [37])[0]
    exact = first_losses(SideBySide(configurations(models), engine=Engine(dtype=torch.float64)))
    for name, engine in engines.items():
        if args.only and args.only not in name:
            continue
        try:
            start = time.perf_counter()
            trainer = SideBySide(configurations(models), engine=engine)
            difference = (first_losses(trainer) - exact).abs().max().item()
            print(
                f"{name}: loss differs from float64 on the CPU by {difference:.1e}; {time.perf_counter() - start:.0f} s to start"
            )
            run = one_chunk(trainer)
            times = summary(interleaved({name: (run, CHUNK)}, 3))[0]
            print(f"{name}: {times['median_ms']:.2f} ms a step, alone", flush=True)
            if args.profile:
                print(profile(run, CHUNK), flush=True)
            variants[f"{name}, M={models}"] = (run, CHUNK)
        except Exception as error:  # one engine that fails must not cost the others their turn on the machine
            print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
            traceback.print_exc()
    return variants


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--models", type=int, nargs="*", help="how many side by side; default 1 4 on a CPU, 37 on a GPU"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="GPU engines whose name holds this")
    parser.add_argument("--profile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    variants = on_gpu(args) if args.device == "cuda" else on_cpu(args)
    rows = summary(interleaved(variants, args.rounds))
    lines = [f"# Small models side by side: {machine(args.device)}", ""]
    lines += [
        f"`python {' '.join(sys.argv)}`",
        "",
        f"{platform.platform()}, {_cpu()}, Python {platform.python_version()}, torch {torch.__version__}",
        "",
    ]
    lines += ["| variant | median ms/step | quartiles | best |", "|---|---|---|---|"]
    lines += [
        f"| {r['variant']} | {r['median_ms']:.2f} | {r['q1_ms']:.2f}-{r['q3_ms']:.2f} | {r['best_ms']:.2f} |"
        for r in rows
    ]
    if args.device == "cuda":
        models = (args.models or [37])[0]
        speed = bandwidth()
        for what, rows in (("nothing shared", 512 * 8), ("shared prefixes", 104 * 4 + 512 * 4)):
            floor = traffic_bytes(models, rows)
            bound = f"{floor / 1e9:.2f} GB at {speed / 1e12:.2f} TB/s = {1e3 * floor / speed:.2f} ms"
            lines += ["", f"Traffic bound for M={models}, {what}: {bound}."]
        lines += ["", f"Target: {TARGET_MS} ms."]
    else:
        by_name = {str(r["variant"]): float(str(r["median_ms"])) for r in rows}
        for models in args.models or [1, 4]:
            ratio = by_name[f"Hugging Face loop, M={models}"] / by_name[f"side by side, M={models}"]
            lines += ["", f"M={models}: {ratio:.2f} times as fast as the Hugging Face loop."]
    print("\n".join(lines))
    args.out.mkdir(parents=True, exist_ok=True)
    stem = args.out / f"side_by_side_{machine(args.device)}"
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n")
    stem.with_suffix(".json").write_text(
        json.dumps({"command": sys.argv, "torch": torch.__version__, "rows": rows}, indent=1)
    )


def _cpu() -> str:
    try:
        names = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        return re.search(r"Model name:\s*(.*)", names).group(1)  # type: ignore[union-attr]
    except (OSError, subprocess.CalledProcessError, AttributeError):
        return platform.processor()


if __name__ == "__main__":
    main()
