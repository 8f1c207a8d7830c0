"""Sampling: `LocalEngine` against `generate(num_return_sequences=...)` of transformers, an earlier version and vLLM.

    python benchmarks/bench_sample.py                    a small Llama on this CPU: 8 prompts x 32 samples x 64 tokens
    python benchmarks/bench_sample.py --device cuda      SmolLM2-135M's shape in bfloat16: 64 prompts x 100 samples x 160 tokens
    python benchmarks/bench_sample.py --model PATH       a real model at its own entropy
    python benchmarks/bench_sample.py --before OLD/src   also the `LocalEngine` of another version, in a process of its own
    VENV/bin/python benchmarks/bench_sample.py --vllm    also vLLM, in the same process; VENV has vLLM, and PYTHONPATH is `src`

Weights are random. The head is scaled so that the next-token entropy has a given mean: the lower it is, the longer samples share their
tokens. "flat" is the unscaled model, whose samples share nothing. "ends" is "flat" with 1 % of the vocabulary as end tokens. All engines
draw the same number of samples of the same prompts at temperature 1, in turns. "forward tokens" counts the tokens that the model was run
on, prompts included; those of vLLM are not counted. "ids" is a digest of the samples of `LocalEngine`: two versions
that draw the same samples have the same digest.
"""

import argparse
import hashlib
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import transformers

from widen.sample import Decoding, LocalEngine, Prompt, Settings, VllmEngine

FIELDS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
)  # fmt: skip
SHAPES = {"cpu": (8192, 256, 704, 6, 8, 4), "cuda": (49152, 576, 1536, 30, 9, 3)}
SIZES = {"cpu": (8, 32, 64), "cuda": (64, 100, 160)}
ENTROPIES = {"entropy 0.02": 0.02, "entropy 0.2": 0.2, "flat": None, "ends": None}


class Ids:
    """Prompts are ids, and texts are their numbers."""

    bos_token_id, eos_token_id = 1, None

    def batch_decode(self, rows, skip_special_tokens=True):
        return [" ".join(map(str, row)) for row in rows]


def make_model(options):
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    if options.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
    else:
        torch.manual_seed(0)
        shape = dict(zip(FIELDS, SHAPES[options.device], strict=True))
        config = transformers.LlamaConfig(**shape, max_position_embeddings=2048, initializer_range=0.05)
        model = transformers.LlamaForCausalLM(config).to(dtype)
    return model.to(options.device).eval()


def make_prompts(count, vocab):
    rng = np.random.default_rng(0)
    lengths = rng.integers(30, 91, count)
    return [Prompt(id=str(i), ids=tuple(rng.integers(3, vocab, n).tolist())) for i, n in enumerate(lengths)]


@torch.inference_mode()
def scale_head(model, entropy):
    """Scale the head so that the next-token entropy on random tokens has this mean; returns the scale."""
    ids = torch.randint(3, model.config.vocab_size, (8, 64), generator=torch.Generator().manual_seed(0))
    logits = model(input_ids=ids.to(model.device)).logits.float()
    low, high = 0.0, 12.0
    for _ in range(30):
        middle = (low + high) / 2
        found = torch.distributions.Categorical(logits=logits * 2**middle).entropy().mean()
        low, high = (middle, high) if found > entropy else (low, middle)
    model.lm_head.weight.mul_(2**low)
    return 2**low


def from_engine(engine, prompts, samples, tokens):
    settings = [Settings(decoding=Decoding(), max_tokens=tokens)]
    drawn = [s for d in engine.draw(prompts, settings, num=samples) for s in d.samples]
    ids = repr(sorted((s.prompt, s.index, s.ids) for s in drawn))
    return sum(s.num_tokens for s in drawn), hashlib.sha256(ids.encode()).hexdigest()[:8]


def widen(model, prompts, samples, tokens):
    return from_engine(LocalEngine(model, Ids(), batch=len(prompts) * samples), prompts, samples, tokens)


def vllm(model, prompts, samples, tokens):
    tokens, _ = from_engine(_vllm_engine(model), prompts, samples, tokens)
    return tokens, ""


@lru_cache(maxsize=1)
def _vllm_engine(model):
    """vLLM with the weights that `model` has now."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # in this process, whose CPU seconds are counted
    folder = tempfile.mkdtemp()
    model.save_pretrained(folder)
    return VllmEngine(
        folder, skip_tokenizer_init=True, dtype=str(model.dtype)[6:], max_model_len=1024, disable_log_stats=True
    )


@torch.inference_mode()
def generate(model, prompts, samples, tokens):
    width, ends = max(len(p.ids) for p in prompts), model.generation_config.eos_token_id or []
    ids = torch.tensor([[0] * (width - len(p.ids)) + list(p.ids) for p in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(p.ids)) + [1] * len(p.ids) for p in prompts], device=model.device)
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
    out = model.generate(ids, attention_mask=mask, num_return_sequences=samples, max_new_tokens=tokens, **settings)
    new = out[:, width:]
    ended = torch.isin(new, torch.tensor(ends, dtype=torch.long, device=new.device)).cumsum(1)
    return int((ended == 0).sum() + (ended[:, -1] > 0).sum()), ""


def timed(who, model, *arguments):
    """Seconds, CPU seconds, forward tokens, peak GiB, and what `who` returns."""
    seen = []
    hook = model.register_forward_pre_hook(lambda _, a, k: seen.append(k["input_ids"].numel()), with_kwargs=True)
    cuda = model.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start, cpu = time.perf_counter(), time.process_time()
    found = who(model, *arguments)
    if cuda:
        torch.cuda.synchronize()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    hook.remove()
    return seconds, cpu, sum(seen), torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan"), *found


class Cases:
    """The model and the prompts; `run` measures one engine on one case."""

    def __init__(self, options):
        transformers.logging.set_verbosity_error()
        self.options, self.model, self.case, self.scale = options, make_model(options), None, 1.0
        self.prompts = make_prompts(options.prompts, self.model.config.vocab_size)

    def run(self, case, name, tokens):
        if case != self.case:
            self._prepare(case)
        return timed(globals()[name], self.model, self.prompts, self.options.samples, tokens)

    def _prepare(self, case):
        self.model.lm_head.weight.data.div_(self.scale)
        entropy, vocab = ENTROPIES.get(case), self.model.config.vocab_size
        self.case, self.scale = case, scale_head(self.model, entropy) if entropy is not None else 1.0
        if case in ENTROPIES:  # not a real model
            ends = np.random.default_rng(1).choice(vocab, vocab // 100, replace=False).tolist()
            self.model.config.eos_token_id = self.model.generation_config.eos_token_id = (
                ends if case == "ends" else None
            )
        _vllm_engine.cache_clear()


def start_other_version(options):
    global other_version
    other_version = Cases(options)


def run_other_version(case, tokens):
    return other_version.run(case, "widen", tokens)


def compare(options):
    """Rows of (case, engine, runs); the engines take turns."""
    here, before = Cases(options), None
    if options.before:
        sys.path.insert(0, str(options.before.resolve()))  # a spawned process takes over this path
        spawn = multiprocessing.get_context("spawn")
        before = ProcessPoolExecutor(1, spawn, start_other_version, (options,))
    names = ["widen"] + ["before"] * bool(before) + ["generate"] * (not options.widen_only) + ["vllm"] * options.vllm

    def run(name, case, tokens):
        if name == "before":
            return before.submit(run_other_version, case, tokens).result()
        return here.run(case, name, tokens)

    for case in ["the model"] if options.model else options.cases:
        found = {name: [] for name in names}
        for name in names:
            run(name, case, 3)  # warm-up
        for _ in range(options.repeats):
            for name, runs in found.items():
                runs.append(run(name, case, options.tokens))
        yield from ((case, name, runs) for name, runs in found.items())
    if before:
        before.shutdown()


def report(options, rows):
    cuda = options.device == "cuda"
    machine = torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    lines = [
        "# Sampling",
        "",
        f"Command: `python benchmarks/bench_sample.py {' '.join(sys.argv[1:])}`. Machine: {machine}. torch {torch.__version__}, "
        f"transformers {transformers.__version__}, Python {platform.python_version()}. Date: {time.strftime('%Y-%m-%d')}.",
        "",
        f"{options.model or 'Random Llama'}: {options.prompts} prompts x {options.samples} samples x up to {options.tokens} tokens, "
        f"one batch, temperature 1. CPU s is the processor time of the process.",
        "",
        "| case | engine | median s | runs | CPU s | sample tokens | forward tokens | tokens/s | samples/CPU s | peak GiB | ids |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case, who, runs in rows:
        seconds = [run[0] for run in runs]
        median = statistics.median(seconds)
        _, _, forward, gigabytes, tokens, digest = runs[-1]
        cpu = statistics.median(run[1] for run in runs)
        spread = ", ".join(f"{s:.2f}" for s in seconds)
        cells = [case, who, f"{median:.2f}", spread, f"{cpu:.2f}", f"{tokens:,}", f"{forward:,}" if forward else ""]
        rate = options.prompts * options.samples / cpu
        lines.append(
            "| " + " | ".join([*cells, f"{tokens / median:,.0f}", f"{rate:,.1f}", f"{gigabytes:.1f}", digest]) + " |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="", help="a real model in place of random weights")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=list(ENTROPIES), choices=list(ENTROPIES))
    parser.add_argument("--widen-only", action="store_true", help="do not run generate")
    parser.add_argument("--before", type=Path, help="`src` of another version")
    parser.add_argument("--vllm", action="store_true", help="also run vLLM")
    parser.add_argument("--out", type=Path, help="folder for the table (default: print only)")
    options = parser.parse_args()
    for name, value in zip(("prompts", "samples", "tokens"), SIZES[options.device], strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    text = report(options, list(compare(options)))
    print(text)
    if options.out:
        name = "cpu" if options.device == "cpu" else torch.cuda.get_device_name().lower().replace(" ", "_")
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"sample_{name}.md").write_text(text)


if __name__ == "__main__":
    main()
