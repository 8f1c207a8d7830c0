"""Where a step of the Trainer spends its time, on the host and on the device: the stock loss and ours, one step each in turn.

    python benchmarks/trainer_timeline.py                       SmolLM2-135M's shape with random weights, 8,192 tokens a step, on the GPU
    python benchmarks/trainer_timeline.py --device cpu --small  the shape of it

At every mark the host's clock is read and an event is recorded on the device; both are shown from the start of the step. Where the two
agree the device waits for the host, where the device is later it has work in hand. Every trainer has a model of its own here. First comes
what calls of ``model.train()`` and ``model.parameters()`` take.
"""

import argparse
import statistics
import time

import accelerate
import bench_trainer
import torch
import transformers
from bench_trainer import SMOLLM2
from transformers.models.llama.modeling_llama import LlamaModel

VARIANTS = ("stock loss", "stock loss, no nan filter", "widen, nll", "widen, cdiv:alpha=1.4")
SMALL = SMOLLM2 | {"vocab_size": 500, "hidden_size": 72, "intermediate_size": 64, "num_hidden_layers": 2}
MARKS = ("start", "inputs", "layers", "loss", "backward", "clipped", "stepped", "end")

step = []  # marks of the step at work: only one trainer is at a time


def mark(name):
    event = torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else None
    if event is not None:
        event.record()
    step.append((name, time.perf_counter(), event))


def marked(owner, method, *, after, before=None):
    """Have a method leave marks."""
    plain = getattr(owner, method)

    def wrapper(*args, **kwargs):
        if before:
            mark(before)
        result = plain(*args, **kwargs)
        mark(after)
        return result

    setattr(owner, method, wrapper)


class Marked(bench_trainer.Turns):
    """Marks both ends of a step and hands its marks over."""

    steps = ()

    def wait(self):
        super().wait()
        step.clear()
        mark("start")

    def on_step_end(self, *args, **kwargs):
        mark("end")
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps = [*self.steps, list(step)]
        super().on_step_end(*args, **kwargs)


def milliseconds(steps):
    """For every mark: medians over the steps of the host's and the device's time since the start."""
    whole = [marks for marks in steps if tuple(name for name, *_ in marks) == MARKS]
    for at, name in enumerate(MARKS):
        host = statistics.median(1e3 * (marks[at][1] - marks[0][1]) for marks in whole)
        device = [marks[0][2].elapsed_time(marks[at][2]) for marks in whole if marks[0][2] is not None]
        yield name, host, statistics.median(device) if device else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="a model of two small layers")
    parser.add_argument("--steps", type=int, default=90, help="of each variant; the first 10 are not counted")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    given = parser.parse_args()
    if given.steps < 13:
        parser.error(f"--steps {given.steps}: at least 13, as the first 10 are not counted")
    options = argparse.Namespace(
        model="", data="", turns=given.steps, turn=1, length=512 if not given.small else 64, compile=False, cores=0,
        tokens=8192 if not given.small else 256, device=given.device,
    )  # fmt: skip
    shape = transformers.LlamaConfig(**(SMALL if given.small else SMOLLM2))
    marked(LlamaModel, "forward", before="inputs", after="layers")
    marked(transformers.Trainer, "compute_loss", after="loss")
    marked(accelerate.Accelerator, "backward", after="backward")
    marked(accelerate.Accelerator, "clip_grad_norm_", after="clipped")
    marked(accelerate.optimizer.AcceleratedOptimizer, "step", after="stepped")
    turns = []
    bench_trainer.Turns = lambda *args: turns.append(Marked(*args)) or turns[-1]
    running = {}
    for name in given.only:
        torch.manual_seed(0)
        running[name] = bench_trainer.Variant(name, options, transformers.LlamaForCausalLM(shape))
        running[name].pipe.recv()
    for number in range(given.steps - 1):
        for variant in running.values():
            variant.begin()
            variant.end(counts=number >= 10)
    for (name, variant), own in zip(running.items(), turns, strict=True):
        print(f"{name}: {1e3 * statistics.median(variant.turns):.1f} ms a step")
        for mark_name, host, device in milliseconds(own.steps[10:]):
            print(f"  {mark_name:9} host {host:7.2f}   device {device:7.2f}")
        variant.pipe.send("end")
        variant.worker.join()


if __name__ == "__main__":
    main()
