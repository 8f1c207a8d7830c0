"""Values shared by the recipes on texts: models, data and training (App., "Models and training details").

Quotation marks hold the paper's words. All other choices are ours and listed in `NOT_IN_PAPER`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from widen.run.experiment import Experiment, Published
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import KnnScore, ProgramScore

OLMO_1B = "allenai/OLMo-1B-hf"
LLAMA_3B = "meta-llama/Llama-3.2-3B"
LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_8B_INSTRUCT = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B_INSTRUCT = "meta-llama/Llama-3.1-70B-Instruct"

SEEDS = range(3)
STORIES = KnnScore(
    embedder="gpt2-large",  # "embedding model GPT2-Large", "we averaged the embeddings"
    samples=2000,  # "we used 2,000 samples for the support estimation"
    k=4,  # "number of neighbors k=4"
    mauve=True,  # "We report the MAUVE score for reference"
)
PROGRAMS = ProgramScore(ks=(1, 10, 100))  # "pass@1 as a proxy for Precision", "pass@100 - pass@1 as Recall"

NOT_IN_PAPER = {
    "epochs": "3 of each loss, after 1 of NLL; the paper does not say whether the 3 include that one",
    "max_length": "1,024 tokens; longer stories are cut at their end",
    "precision": "bfloat16 autocast on float32 weights, gradients shortened to norm 1",
    "cap": "c-Div's weights end at 10,000; the paper has no cap (cap=inf)",
    "window": "Trunc and TruncR take their quantile over the last 10,000 sequences, with a lag of one optimizer step",
    "length": "lambda-PR counts L by sequence: the target tokens of each, the end token included",
    "seeds": "three; the paper shows one number each. --seeds 1 runs one",
}
STORY_CHOICES = {
    "prompts": "the first 2,000 of the test set, one story each; the references are the stories people wrote to them",
    "max_tokens": "512",
    "k-NN": "features scaled to length 1, PCA on both sets to 90 % of the variance, open balls: as the code of Le Bronnec et al. (2024)",
    "recall": "the share of references inside the model's balls; the printed algorithm divides by another number (PAPER.md, erratum 34)",
}
PROGRAM_CHOICES = {
    "num_samples": "100 of each problem, the minimum for pass@100; the paper does not state n",
    "max_tokens": "512",
    "judge": "the number in `answer` within 1 % of the reference; 10 s and 512 MiB a program, no network, no files",
    "recall": "pass@100 - pass@1 as printed; recall_normalised divides it by 1 - pass@1 (PAPER.md, erratum 36)",
}


def tuned(model: str, train: Source, loss: str, *, seed: int = 0) -> FineTune:
    """A model fine-tuned as in the paper: with NLL, or with another loss from an NLL checkpoint."""
    nll = FineTune(
        model=model,
        train=train,
        loss="nll",
        epochs=3,  # "trained for 3 epochs"
        lr=1e-6,  # "a constant learning rate of 1e-6"
        schedule="constant_with_warmup",
        warmup_steps=1000,  # "with 1000 linear warmup steps"
        batch_size=8,  # "a batch size of 8"
        micro_batch=8,
        max_length=1024,
        seed=seed,
    )
    if loss == "nll":
        return nll
    # "For non-NLL losses, fine-tuning started from a checkpoint obtained after one epoch of NLL training": one for all seeds.
    return replace(nll, loss=loss, after=replace(nll, epochs=1, seed=0))


def stories(name: str, model: FineTune, *, choices: Mapping[str, str] | None = None, **more: Any) -> Experiment:
    """A model asked for stories: k-NN precision and recall on WritingPrompts. ``more``: further fields of the experiment."""
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="writing_prompts", split="test"),
        num_prompts=2000,  # "Number of samples N=2000"
        max_tokens=512,
        seed=model.seed,
        score=STORIES,
        not_in_paper={**NOT_IN_PAPER, **STORY_CHOICES, **(choices or {})},
        **more,
    )


def programs(name: str, model: FineTune, *, choices: Mapping[str, str] | None = None, **more: Any) -> Experiment:
    """A model asked for programs: pass@k on the test set of MathQA-Python. ``more``: further fields of the experiment."""
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="mathqa_python", split="test"),
        num_samples=100,
        max_tokens=512,
        seed=model.seed,
        not_in_paper={**NOT_IN_PAPER, **PROGRAM_CHOICES, **(choices or {})},
        **{"score": PROGRAMS, **more},
    )


def column(
    ask: Callable[..., Experiment],
    model: str,
    train: Source,
    rows: Mapping[str, tuple[str, float, float]],
    *,
    where: str = "tab:pr-wp-mathqa",
    decoding: str = "t=1",
    **more: Any,
) -> list[Experiment]:
    """One column of a table: an experiment per row and seed. ``rows``: {name: (loss, printed precision, printed recall)}."""
    return [
        ask(
            name,
            tuned(model, train, loss, seed=seed),
            decoding=(decoding,),
            published=(printed(where, precision, recall, decoding=decoding),),
            **more,
        )
        for name, (loss, precision, recall) in rows.items()
        for seed in SEEDS
    ]


def printed(where: str, precision: float, recall: float, *, decoding: str = "t=1", **more: float) -> Published:
    """The scores that a table prints, as fractions."""
    return Published(where=where, decoding=decoding, values={"precision": precision, "recall": recall, **more})


def temperatures(values: Iterable[float], *, times: float = 1.0) -> tuple[str, ...]:
    """Plain sampling at each temperature, each once.

    >>> temperatures((0.5, 1.0), times=1.4)
    ('t=0.7', 't=1.4')
    """
    return tuple(dict.fromkeys(f"t={round(times * t, 6):g}" for t in values))
