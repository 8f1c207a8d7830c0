"""How long one optimizer step of M small models takes: our loop against a plain Hugging Face loop, and on a GPU stacked models.

    python benchmarks/bench_small_models.py                    # CPU: LlamaForCausalLM + AdamW against `widen.train.Loop`
    python benchmarks/bench_small_models.py --device cuda      # GPU: one model at a time, stacked, stacked and compiled

The paper's model and batch: 66,656 parameters, 512 sequences of 8 tokens, losses mixed. Variants take turns; medians are given with the
quartiles. Results go to benchmarks/results/small_models_<device>.md.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from widen.data.mulmod import MulMod
from widen.models.tiny_llama import TinyLlama
from widen.train.settings import Configuration, Train
from widen.train.small_models import loop_of

LOSSES = ("nll", "cdiv:alpha=1.5", "tailr:gamma=0.1", "truncr:drop=0.1", "lambda_pr:lam=0.9,gamma=0.1")


def configurations(models: int) -> list[Configuration]:
    train = Train(steps=10**9, batch_size=512, ema=0.99)
    return [Configuration(loss=LOSSES[m % len(LOSSES)], train=train, seed=m) for m in range(models)]


def hugging_face_step() -> Callable[[], None]:
    """One step of a plain loop: LlamaForCausalLM, cross entropy, AdamW."""
    from widen.models.convert import to_transformers

    net = to_transformers(TinyLlama())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    tokens = torch.from_numpy(MulMod().train_tokens())

    def step() -> None:
        batch = tokens[torch.randint(len(tokens), (512,))]
        logits = net(input_ids=batch[:, :-1]).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def on_cpu(models: int) -> dict[str, Callable[[], None]]:
    loop = loop_of(configurations(2)[1])
    return {"Hugging Face loop, NLL, 1 model": hugging_face_step(), "widen, c-Div, 1 model": loop.advance}


def on_gpu(models: int) -> dict[str, Callable[[], None]]:
    from widen.train.stacked import Stacked

    made = configurations(models)
    variants: dict[str, Callable[[], None]] = {"one model at a time, 1 model": loop_of(made[1], device="cuda").advance}
    for compiled in (False, True):
        name = f"stacked{', compiled' if compiled else ''}, {models} models"
        variants[name] = Stacked([loop_of(c, device="cuda") for c in made], made, compile=compiled).advance
    return variants


def timed(step: Callable[[], None], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeat * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", type=int, nargs="*", default=[37, 155], help="how many are stacked on a GPU")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)  # `train_models` runs one model per core
    lines = [
        f"# Small models, one optimizer step: {options.device}", "", f"`python {' '.join(sys.argv)}`", "",
        f"{platform.platform()}, {torch.cuda.get_device_name() if options.device == 'cuda' else 'one CPU thread'}, torch "
        f"{torch.__version__}, {time.strftime('%Y-%m-%d')}. {options.rounds} rounds, variants in turn.", "",
        "| variant | median ms | quartiles |", "|---|---|---|",
    ]  # fmt: skip
    for models in options.models if options.device == "cuda" else [1]:
        variants = (on_gpu if options.device == "cuda" else on_cpu)(models)
        for step in variants.values():
            timed(step, 5)
        times: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds):
            for name, step in variants.items():
                times[name].append(timed(step, 8 if options.device == "cuda" else 2))
        for name, found in times.items():
            low, middle, high = statistics.quantiles(found, n=4)
            lines.append(f"| {name} | {middle:.2f} | {low:.2f}-{high:.2f} |")
            print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"small_models_{options.device}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
