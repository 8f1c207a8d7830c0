"""The demo: fine-tune copies of one NLL model of the integer task, and score each under the same decodings.

One copy learns each training sequence once, the others have different losses.

The starting model is ``checkpoints/mulmod_nll``: NLL at seed 0 of recipe ``mulmod:temperature``, trained on one H200 (provenance.json).
"""

from __future__ import annotations

from importlib.resources import files

from widen.data.mulmod import MulMod
from widen.models.tiny_llama import LlamaShape
from widen.run.experiment import Experiment
from widen.train.settings import AdamW, Configuration, Schedule, Train

STEPS = 100
DECODINGS = ("grid",)
LOSSES = {
    "NLL": "nll",
    "TruncR 0.5": "truncr:drop=0.5,window=4096",
    "c-Div 1.25": "cdiv:alpha=1.25,cap=1e4",
    "c-Div 1.5": "cdiv:alpha=1.5,cap=1e4",
}


def start() -> str:
    """Folder of the shipped NLL checkpoint."""
    return str(files("widen_recipes") / "checkpoints" / "mulmod_nll")


def fine_tune() -> list[Experiment]:
    """One copy per loss and one on each sequence once; one seed, the same learning rate and decodings."""
    train = Train(
        steps=STEPS,
        batch_size=512,
        optimizer=AdamW(lr=2e-4, max_grad_norm=1.0),
        schedule=Schedule(decay="linear", warmup_steps=min(20, STEPS)),
    )
    model = LlamaShape(init_std=0.08)
    copies = {name: (loss, MulMod()) for name, loss in LOSSES.items()}
    copies["NLL, each once"] = ("nll", MulMod(distinct=True))
    return [
        Experiment(
            name=name,
            model=Configuration(data=data, model=model, loss=loss, train=train, seed=1),
            start=start(),
            decoding=DECODINGS,
            not_in_paper={"fine-tuning": f"{STEPS} steps from an NLL model; the paper trains this task from scratch"},
        )
        for name, (loss, data) in copies.items()
    ]
