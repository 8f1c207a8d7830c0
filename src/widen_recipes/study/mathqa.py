"""MathQA-Python, category "gain", on templates that no training question has (`templates.py`): every program is run.

NLL trains for six epochs. The held-out NLL, on templates that training does not have, is lowest after the first epoch, when almost no
program is right: so it does not choose the epoch here. Each method goes on for two epochs. Use the same paths on all machines: they are
part of the run folders' names.
"""

from __future__ import annotations

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ProgramScore

from .methods import every_method, nll_model, path_of

DECODINGS = ("t=0.6", "t=1", "t=1.5,min_p=0.05,order=temperature_last", "t=1.5,min_p=0.1", "t=1,top_p=0.95")
"""The same for every method. All of them are sampled and all programs run, so they are few."""
NOT_IN_PAPER = {
    "data": "category gain, split by the words of the questions: 200 test questions, each of a template that training does not have",
    "model": "SmolLM2-135M in place of Olmo-1B",
    "epochs": "NLL for 6, then 2 of each loss (NLL 2x: 4); the held-out NLL of other templates rises from the second epoch on, while more "
    "programs become right",
    "lr": "1e-4, falling to a tenth along a cosine after 10 steps of warm-up; batches of 64",
    "max_tokens": "192; a few of the reference programs are longer",
    "coverage": "distinct right programs among 32: names, unused variables, `print` and the order of terms do not count",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start is one for all",
}


def mathqa() -> list[Experiment]:
    """Every method from one NLL model, on unseen templates of MathQA-Python; pass@1 to pass@32 and distinct right programs."""
    return every_method(nll_start(), experiment_of, epochs=2)


def nll_start() -> FineTune:
    """The NLL model that every method goes on from."""
    model, train, dev = path_of("WIDEN_SMOLLM2"), source_of("train"), source_of("dev")
    return nll_model(model, train, dev, batch_size=64, micro_batch=32, max_length=512, lr=1e-4, epochs=6, patience=None)


def source_of(name: str) -> Source:
    """A file of `templates`."""
    return Source(task="mathqa_python", path=f"{path_of('WIDEN_TEMPLATES')}/{name}.jsonl")


def experiment_of(
    name: str,
    model: FineTune | str,
    seed: int,
    *,
    num: int = 32,
    decoding: tuple[str, ...] = DECODINGS,
    not_in_paper: dict[str, str] = NOT_IN_PAPER,
) -> Experiment:
    """Programs for each of 200 test questions under every decoding."""
    return Experiment(
        name=name,
        model=model,
        prompts=source_of("test"),
        num_prompts=200,
        num_samples=num,
        decoding=decoding,
        max_tokens=192,
        seed=seed,
        score=ProgramScore(
            ks=tuple(k for k in (1, 4, 8, 16, 32) if k <= num), wall_seconds=5.0, cpu_seconds=5, distinct=True
        ),
        not_in_paper=not_in_paper,
    )
