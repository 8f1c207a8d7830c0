"""Sampling: our local engine against `generate` of transformers at the same batch, and the small Llama's hundred thousand sequences.

    python benchmarks/bench_sample.py                    SmolLM2-135M's shape (random weights) on this CPU, a few rows
    python benchmarks/bench_sample.py --device cuda      64 prompts x 100 samples x 160 tokens in bfloat16, one batch
    python benchmarks/bench_sample.py --model PATH       a real model

Both draw the same number of samples of the same padded prompts at temperature 1, in turns, in one process. "no ends": every sample has
all its tokens. "ends": one token of the vocabulary in a hundred ends a sample, so they have 1 to `tokens` of them.
"""

import argparse
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers

from widen.data import MulMod
from widen.models import TinyLlama
from widen.sample import UNPROMPTED, Decoding, LocalEngine, MulModEngine, Prompt, Settings, collect

SMOLLM2 = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


class Ids:
    """No text in this benchmark: prompts are ids, and texts are their numbers."""

    bos_token_id, eos_token_id = 1, None

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(map(str, row)) for row in rows]


def make_model(options):
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    if options.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    else:
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM2)).to(dtype)
    return model.to(options.device).eval()


def make_prompts(options, vocab):
    rng = np.random.default_rng(0)
    lengths = rng.integers(30, 91, options.prompts)  # MathQA questions have about as many tokens
    return [Prompt(id=str(i), ids=tuple(rng.integers(3, vocab, n).tolist())) for i, n in enumerate(lengths)]


def timed(device, work):
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    tokens = work()
    if device == "cuda":
        torch.cuda.synchronize()
    gigabytes = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    return time.perf_counter() - start, tokens, gigabytes


def ours(model, prompts, options, tokens):
    engine = LocalEngine(model, Ids(), batch=options.prompts * options.samples)
    settings = [Settings(decoding=Decoding(), max_tokens=tokens)]
    return sum(s.num_tokens for d in engine.draw(prompts, settings, num=options.samples) for s in d.samples)


@torch.inference_mode()
def theirs(model, prompts, options, tokens):
    width, ends = max(len(p.ids) for p in prompts), model.generation_config.eos_token_id or []
    ids = torch.tensor([[0] * (width - len(p.ids)) + list(p.ids) for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p in prompts], device=model.device)
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
    out = model.generate(
        ids, attention_mask=mask, num_return_sequences=options.samples, max_new_tokens=tokens, **settings
    )
    new = out[:, width:]
    if not ends:
        return new.numel()
    ended = torch.isin(new, torch.tensor(ends, device=new.device)).cumsum(1)
    return int((ended == 0).sum() + (ended.clamp(max=1).sum(1) > 0).sum())


def compare(model, prompts, options, began):
    """Rows of (scenario, who, seconds of each run, tokens, gigabytes)."""
    vocab = model.config.vocab_size
    ends = np.random.default_rng(1).choice(vocab, vocab // 100, replace=False).tolist()
    rows = []
    for scenario, tokens_that_end in (("no ends", None), ("ends", ends)):
        model.generation_config.eos_token_id = tokens_that_end
        for who in (ours, theirs):
            timed(options.device, lambda who=who: who(model, prompts, options, 3))  # warm-up: kernels, memory
        found = {ours: [], theirs: []}
        for repeat in range(options.repeats):
            for who in (ours, theirs):
                expected = max((run[0] for run in found[who]), default=0.0)
                limit = options.seconds * (
                    0.5 if tokens_that_end is None else 1.0
                )  # half of the time for each scenario
                if repeat and time.perf_counter() - began + expected > limit:
                    continue
                found[who].append(timed(options.device, lambda who=who: who(model, prompts, options, options.tokens)))
        for who, runs in found.items():
            seconds = [run[0] for run in runs]
            rows.append((scenario, {ours: "widen", theirs: "generate"}[who], seconds, runs[0][1], runs[0][2]))
    return rows


def profile(model, prompts, options):
    """Where our time goes: the operations that take longest, over 24 tokens."""
    kinds = [torch.profiler.ProfilerActivity.CPU] + (
        [torch.profiler.ProfilerActivity.CUDA] if options.device == "cuda" else []
    )
    model.generation_config.eos_token_id = None
    with torch.profiler.profile(activities=kinds) as found:
        timed(options.device, lambda: ours(model, prompts, options, 24))
    key = "self_cuda_time_total" if options.device == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=key, row_limit=25, max_name_column_width=60))


def integers():
    """A hundred thousand sequences of the small Llama into a file; untrained, so that nearly all of them differ: the slowest case."""
    engine = MulModEngine(TinyLlama(seed=0), MulMod())
    settings = [Settings(decoding=Decoding())]
    with tempfile.TemporaryDirectory() as folder:
        return timed("cpu", lambda: len(collect(engine, [UNPROMPTED], settings, num=100_000, folder=folder)))[0]


def report(options, rows, small):
    machine = (
        torch.cuda.get_device_name()
        if options.device == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    name = options.model or "SmolLM2-135M's shape, random weights"
    lines = [
        "# Sampling",
        "",
        f"Command: `python benchmarks/bench_sample.py {' '.join(sys.argv[1:])}`. Machine: {machine}. torch {torch.__version__}, "
        f"transformers {transformers.__version__}, Python {platform.python_version()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        f"{name}: {options.prompts} prompts x {options.samples} samples x up to {options.tokens} tokens, one batch of "
        f"{options.prompts * options.samples} rows, temperature 1, no filters. Runs alternate in one process after a warm-up.",
        "",
        "| | who | median s | runs | tokens | tokens/s | peak GiB | times faster |",
        "|---|---|---|---|---|---|---|---|",
    ]
    medians = {(scenario, who): statistics.median(seconds) for scenario, who, seconds, _, _ in rows}
    for scenario, who, seconds, tokens, gigabytes in rows:
        median, ratio = medians[scenario, who], medians[scenario, "generate"] / medians[scenario, who]
        spread = ", ".join(f"{s:.2f}" for s in seconds)
        cells = [
            scenario,
            who,
            f"{median:.2f}",
            spread,
            f"{tokens:,}",
            f"{tokens / median:,.0f}",
            f"{gigabytes:.1f}",
            f"{ratio:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if small is not None:
        lines += [
            "",
            f"The small Llama (untrained, the slowest case): 100,000 sequences of 8 tokens into a file in {small:.1f} s.",
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="", help="a real model in place of random weights")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--profile", action="store_true", help="only show where our time goes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=70.0, help="no new repeat once it would end after this (default 70)"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    began = time.perf_counter()
    small = (
        {"prompts": 8, "samples": 8, "tokens": 24}
        if options.device == "cpu"
        else {"prompts": 64, "samples": 100, "tokens": 160}
    )
    for name, value in small.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    transformers.logging.set_verbosity_error()
    model = make_model(options)
    prompts = make_prompts(options, model.config.vocab_size)
    if options.profile:
        profile(model, prompts, options)
    else:
        rows = compare(model, prompts, options, began)
        save(options, report(options, rows, integers() if options.device == "cpu" else None))


def save(options, text):
    name = (
        "cpu" if options.device == "cpu" else torch.cuda.get_device_name().lower().replace(" ", "_").replace("/", "_")
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"sample_{name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
