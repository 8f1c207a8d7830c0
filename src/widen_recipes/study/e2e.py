"""E2E NLG: texts about a restaurant, many human ones per meaning; a right text mentions every slot of its meaning.

No meaning is in two of the training, validation and test data. NLL trains until the held-out NLL stops falling. From its best epoch, each
method goes on for one epoch over the same data.
"""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from widen.data.tasks.e2e import slots_of, wrong_slots
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import SlotScore

from .methods import every_method, nll_model, path_of, sampled_decodings, write_files

NUM_TEST, NUM_VALID = 128, 48
"""Meanings that are held out."""
NUM_NEW = 1000
"""Meanings without texts, for growth."""
NOT_IN_PAPER = {
    "task": "E2E NLG, development and test set pooled: 3,864 texts about 521 meanings to train on, 48 other meanings for "
    "validation and 128 to test on, all of which differ from every training meaning in two slots or more",
    "num_samples": "8 per meaning, as many as it has human texts",
    "epochs": "NLL for 8 at most, until the held-out NLL has not fallen for 2; then 1 of each loss; NLL 2x goes on for 2",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 64",
    "max_tokens": "96; a text that does not end is wrong",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start is one for all",
}
SMALL_NOT_IN_PAPER = {
    **NOT_IN_PAPER,
    "num_samples": "8 per meaning; the first 48 test meanings",
    "epochs": "NLL for 1; then 24 batches of each loss; NLL 2x goes on for 48",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 32 texts of "
    "similar length",
}


def e2e() -> list[Experiment]:
    """Every method from one NLL model, on E2E NLG, under the same decodings."""
    start = _start(batch_size=64)
    return every_method(start, partial(experiment_of, not_in_paper=NOT_IN_PAPER), epochs=1, lr=1e-4)


def e2e_small() -> list[Experiment]:
    """The same for two CPU cores: shorter training, fewer meanings, no scores that need sentence embeddings."""
    start = _start(batch_size=32, epochs=1, group_by_length=True)
    score = partial(experiment_of, num_prompts=48, embedder="", not_in_paper=SMALL_NOT_IN_PAPER)
    return every_method(start, score, max_steps=24, lr=1e-4)


def _start(**more: Any) -> FineTune:
    """The NLL model on all texts that every loss goes on from."""
    train, valid = source_of("train"), source_of("valid")
    return nll_model(path_of("WIDEN_SMOLLM2"), train, valid, max_length=192, lr=2e-4, **more)


def source_of(name: str) -> Source:
    """A file of `write_e2e`."""
    return Source(task="e2e", path=f"{path_of('WIDEN_E2E')}/{name}.jsonl")


def experiment_of(
    name: str,
    model: FineTune | str,
    seed: int,
    *,
    num_prompts: int = NUM_TEST,
    embedder: str | None = None,
    not_in_paper: dict[str, str],
) -> Experiment:
    """Eight texts for each of the test meanings, under all decodings."""
    return Experiment(
        name=name,
        model=model,
        prompts=source_of("test"),
        num_prompts=num_prompts,
        num_samples=8,
        decoding=sampled_decodings(),
        max_tokens=96,
        seed=seed,
        score=SlotScore(embedder=path_of("WIDEN_MPNET") if embedder is None else embedder),
        not_in_paper=not_in_paper,
    )


def write_e2e(
    source: str | Path,
    folder: str | Path,
    *,
    num_test: int = NUM_TEST,
    num_valid: int = NUM_VALID,
    num_new: int = NUM_NEW,
) -> None:
    """The data set as files: ``test`` has one meaning per row with all its texts, the others one text per row.

    The development and the test set are pooled and split anew by meaning. A meaning that differs from a test or validation meaning in one
    slot only is left out, so that nothing tested is a near copy of what was learnt. ``train`` has every text of its meanings. The files
    for growth have right texts only: ``valid`` those of other meanings, ``one`` the first text of each training meaning.
    ``meanings`` has the meanings of ``one`` and new ones without a text (`new_meanings`).
    """
    texts: dict[str, list[str]] = {}
    for name in ("devset.csv", "testset_w_refs.csv"):
        for row in _rows(Path(source) / name):
            texts.setdefault(row["mr"], []).append(row["ref"])
    meanings = sorted(texts, key=lambda mr: hashlib.sha256(mr.encode()).digest())
    tested, held_out, others = meanings[:num_test], meanings[num_test:][:num_valid], meanings[num_test + num_valid :]
    trained = [mr for mr in others if all(slots_apart(mr, kept) > 1 for kept in (*tested, *held_out))]
    every = _texts(texts, trained)
    one = list({row["mr"]: row for row in reversed(_right(every))}.values())[::-1]
    new = new_meanings(trained, (*tested, *held_out), num=num_new)
    files: dict[str, list[dict[str, Any]]] = {
        "train": every,
        "test": [{"mr": mr, "refs": texts[mr]} for mr in tested],
        "valid": _right(_texts(texts, held_out)),
        "one": one,
        "meanings": [{"mr": mr} for mr in (*(row["mr"] for row in one), *new)],
    }
    write_files(folder, files)


def new_meanings(known: Sequence[str], held_out: Sequence[str], *, num: int, seed: int = 0) -> list[str]:
    """Meanings with the slots of a known one and values of others, all at least two slots away from every held-out meaning.

    A check can judge texts about them, though nobody wrote any.
    """
    random_, slots = random.Random(seed), [slots_of(mr) for mr in known]
    values = {
        name: sorted({one[name] for one in slots if name in one}) for name in sorted({n for one in slots for n in one})
    }
    found: dict[str, None] = {}
    for _ in range(100 * num):  # there may be fewer than ``num``
        if len(found) == num:
            break
        drawn = {name: random_.choice(values[name]) for name in random_.choice(slots)}
        mr = ", ".join(f"{name}[{value}]" for name, value in drawn.items())
        if mr not in known and all(slots_apart(mr, kept) > 1 for kept in held_out):
            found[mr] = None
    return list(found)


def slots_apart(one: str, other: str) -> int:
    """In how many slots two meanings differ.

    >>> slots_apart("name[A], food[French], area[riverside]", "name[A], food[Thai]")
    2
    """
    mine, theirs = (set(slots_of(mr).items()) for mr in (one, other))
    return max(len(mine - theirs), len(theirs - mine))


def _texts(texts: dict[str, list[str]], meanings: Iterable[str]) -> list[dict[str, str]]:
    return [{"mr": mr, "ref": text} for mr in meanings for text in texts[mr]]


def _right(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if not wrong_slots(row["mr"], row["ref"])]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{"mr": row["mr"], "ref": row["ref"]} for row in csv.DictReader(file)]
