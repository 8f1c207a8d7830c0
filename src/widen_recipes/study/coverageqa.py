"""CoverageQA: 60 questions with all their right answers and aliases, so that precision and coverage are exact.

The file comes from CHATS-lab/verbalized-sampling: ``{question: {"answers": [[alias, ...], ...]}}``. Both models are asked in chat form, as
they are and after fine-tuning. A fine-tuned model learns the answers to the questions of one fold, one row per answer, until the NLL of
other questions of that fold stops falling, and is scored on the other fold. Both folds of a method have one name.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import ExactScore

from .methods import decodings, every_method, nll_model, path_of, two_families, write_files

FOLDS = (1, 2)
ASK = "{prompt} Answer with one name and nothing else."
"""How a model is asked that was not fine-tuned to answer with a name; otherwise it answers with a sentence."""
LINE = "{prompt}\n"
"""How a model is asked without a chat template."""
FEW = 5
"""Answers to a training question in the data of the growth; its other answers must be found."""
NOT_IN_PAPER = {
    "task": "60 questions, 20 to 114 right answers each; aliases, a capital first letter and a final period are spellings of one answer",
    "num_samples": "n = 100 samples per question for the coverage",
    "folds": "two, by the question's place in the file (odd, even); a model trained on one is scored on the other",
    "epochs": "NLL for 12 at most, until the held-out NLL of 5 other questions has not fallen for 2; then 1 of each loss; NLL 2x "
    "goes on for 2; one row per answer, its first alias",
    "lr": "1e-4, falling to a tenth along a cosine after 10 steps of warm-up; bf16; batches of 32",
    "seeds": "three; they change the order of the last phase; the NLL start is one for all",
}


def coverageqa() -> list[Experiment]:
    """SmolLM2 on CoverageQA: every method from one NLL model."""
    return _fine_tuned("WIDEN_SMOLLM2")


def coverageqa_qwen() -> list[Experiment]:
    """Qwen2.5-Coder-0.5B-Instruct on CoverageQA: every method from one NLL model."""
    return _fine_tuned("WIDEN_QWEN")


def coverageqa_zero_shot() -> list[Experiment]:
    """SmolLM2 as it is on CoverageQA: what decodings bring over temperature alone."""
    return _as_it_is("WIDEN_SMOLLM2")


def coverageqa_qwen_zero_shot() -> list[Experiment]:
    """Qwen2.5-Coder-0.5B-Instruct as it is on CoverageQA: what decodings bring over temperature alone."""
    return _as_it_is("WIDEN_QWEN")


def _as_it_is(variable: str) -> list[Experiment]:
    return [
        replace(experiment_of(name, path_of(variable), 0, fold=fold), decoding=specs, template=ASK)
        for name, specs in two_families().items()
        for fold in FOLDS
    ]


def _fine_tuned(variable: str) -> list[Experiment]:
    """Every method in every fold, three seeds each."""
    found = []
    for fold in FOLDS:
        train, valid = (
            Source(path=f"{path_of('WIDEN_COVERAGEQA')}/{name}-{fold}.jsonl") for name in ("train", "valid")
        )
        start = nll_model(path_of(variable), train, valid, batch_size=32, max_length=256, epochs=12, lr=1e-4)
        found += every_method(start, partial(experiment_of, fold=fold), epochs=1)
    return found


def experiment_of(
    name: str,
    model: FineTune | str,
    seed: int,
    *,
    fold: int,
    chat: bool = True,
    decoding: tuple[str, ...] | None = None,
    dtype: str = "float32",
    not_in_paper: dict[str, str] = NOT_IN_PAPER,
) -> Experiment:
    """The exact scores of one model on the questions of one fold, under all decodings unless some are given."""
    return Experiment(
        name=name,
        model=model,
        prompts=Source(task="answers", path=f"{path_of('WIDEN_COVERAGEQA')}/test-{fold}.jsonl"),
        decoding=decoding or decodings(),
        template="{prompt}" if chat else LINE,
        chat=chat,
        dtype=dtype,
        seed=seed,
        score=ExactScore(num_samples=100),
        not_in_paper=not_in_paper,
    )


def write_coverageqa(source: str | Path, folder: str | Path) -> None:
    """The questions as files, per fold: ``test`` with all answers. One row per answer of the other fold: ``valid`` has those of every sixth
    question, ``train`` the others.

    Growth asks without a chat template. ``few`` has `FEW` answers to each training question, ``few-all`` all of them, ``few-questions`` the
    questions with what a check needs, and ``few-valid`` the rows of ``valid``.
    """
    content = json.loads(Path(source).read_text(encoding="utf-8"))
    questions = [(question.strip(), merged(about["answers"])) for question, about in content.items()]
    for fold in FOLDS:
        others = questions[2 - fold :: 2]
        train, valid = ([one for place, one in enumerate(others) if bool(place % 6) == kept] for kept in (True, False))
        few = [
            (question, random.Random(question).sample(answers, min(FEW, len(answers)))) for question, answers in train
        ]
        files = {
            "test": _listed(questions[fold - 1 :: 2]),
            "train": _rows(train, chat=True),
            "valid": _rows(valid, chat=True),
            "few": _rows(few),
            "few-all": _rows(train),
            "few-valid": _rows(valid),
            "few-questions": _listed((LINE.replace("{prompt}", question), answers) for question, answers in train),
        }
        write_files(folder, {f"{name}-{fold}": records for name, records in files.items()})


def _listed(questions: Iterable[tuple[str, list[list[str]]]]) -> list[dict[str, Any]]:
    """Questions with every spelling of every answer."""
    return [{"prompt": question, "answers": [spelled(one) for one in answers]} for question, answers in questions]


def _rows(questions: Iterable[tuple[str, list[list[str]]]], *, chat: bool = False) -> list[dict[str, Any]]:
    """One row per answer, in its first spelling."""
    pairs = [(question, one[0]) for question, answers in questions for one in answers]
    if not chat:
        return [{"prompt": LINE.replace("{prompt}", question), "completion": answer} for question, answer in pairs]
    return [
        {
            "prompt": [{"role": "user", "content": question}],
            "completion": [{"role": "assistant", "content": answer}],
        }
        for question, answer in pairs
    ]


def merged(answers: Iterable[Iterable[str]]) -> list[list[str]]:
    """The answers, each once: two entries that share an alias are one answer. Case does not distinguish aliases.

    >>> merged([["He", "helium"], ["Neon "], ["Helium"]])
    [['He', 'helium'], ['Neon']]
    """
    found: list[dict[str, str]] = []
    for aliases in answers:
        own = {alias.strip().casefold(): alias.strip() for alias in aliases}
        first, *others = [*(one for one in found if one.keys() & own.keys()), own]
        for other in others:
            first |= {key: alias for key, alias in other.items() if key not in first}
        found = [one for one in found if not any(one is other for other in others)]
        if first is own:
            found.append(own)
    return [list(one.values()) for one in found]


def spelled(aliases: Iterable[str]) -> list[str]:
    """The spellings of one answer: every alias, also with a capital first letter, also with a period.

    >>> spelled(["helium"])
    ['helium', 'helium.', 'Helium', 'Helium.']
    """
    capital = [form for alias in aliases for form in (alias, alias[0].upper() + alias[1:])]
    return list(dict.fromkeys(form for text in capital for form in (text, text.removesuffix(".") + ".")))
