"""MathQA-Python, category "gain", on templates that no training question has (`templates.py`): every program is run.

NLL trains until the held-out NLL stops falling. From its best epoch each method goes on for two epochs. Use the same paths on all machines:
they are part of the run folders' names.
"""

from __future__ import annotations

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ProgramScore

from .methods import every_method, nll_model, path_of

DECODINGS = (
    *("t=0.5", "t=0.8", "t=1", "t=1.3"),
    *("t=1.5,min_p=0.05,order=temperature_last", "t=2,min_p=0.1,order=temperature_last"),
    *("t=1.5,min_p=0.1", "t=1,top_p=0.95"),
)
"""The same for every method. All of them are sampled, so they are few."""
NOT_IN_PAPER = {
    "data": "category gain, split by the words of the questions: 300 test questions, each of a template that training does not have",
    "model": "SmolLM2-135M in place of Olmo-1B",
    "epochs": "NLL for 8 at most, until the held-out NLL of 60 other templates has not fallen for 2; then 2 of each loss (NLL 2x: 4)",
    "lr": "1e-4, falling to a tenth along a cosine after 10 steps of warm-up; batches of 64",
    "max_tokens": "192; 8 of the 300 reference programs are longer",
    "coverage": "distinct right programs among 64: names, unused variables, `print` and the order of terms do not count",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start is one for all",
}


def mathqa() -> list[Experiment]:
    """Every method from one NLL model, on unseen templates of MathQA-Python; pass@1 to pass@64 and distinct right programs."""
    train, dev = _source("train"), _source("dev")
    start = nll_model(path_of("WIDEN_SMOLLM2"), train, dev, batch_size=64, max_length=512, lr=1e-4)
    return every_method(start, _experiment, epochs=2)


def _source(name: str) -> Source:
    return Source(task="mathqa_python", path=f"{path_of('WIDEN_TEMPLATES')}/{name}.jsonl")


def _experiment(name: str, model: FineTune, seed: int) -> Experiment:
    """64 programs for every test question under every decoding."""
    return Experiment(
        name=name,
        model=model,
        prompts=_source("test"),
        num_samples=64,
        decoding=DECODINGS,
        max_tokens=192,
        seed=seed,
        score=ProgramScore(ks=(1, 4, 16, 64), wall_seconds=5.0, cpu_seconds=5, distinct=True),
        not_in_paper=NOT_IN_PAPER,
    )
