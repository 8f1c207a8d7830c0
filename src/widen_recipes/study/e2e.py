"""E2E NLG: texts about a restaurant, many human ones per meaning; a right text mentions every slot of its meaning.

Models are trained on the development set and asked about meanings of the test set; no meaning is in both. From one NLL model, each method
goes on for one epoch over the same data.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from widen.data.tasks.e2e import wrong_slots
from widen.run.experiment import Experiment
from widen.run.finetune import FineTune, Source
from widen.run.score_settings import SlotScore

from .methods import every_method, nll_model, path_of, sampled_decodings, write_files

NUM_VALID = 48
"""Training meanings that growth holds out."""
NOT_IN_PAPER = {
    "task": "E2E NLG: 4,672 texts about 547 meanings to train on, 128 other meanings to test on, in the order of their hashes",
    "num_samples": "8 per meaning, as many as it has human texts",
    "epochs": "2 of NLL, then 1 of each loss; NLL 2x goes on for 2",
    "lr": "2e-4, then 1e-4, falling to a tenth along a cosine after 10 steps of warm-up; SmolLM2-135M in bf16; batches of 64",
    "max_tokens": "96; a text that does not end is wrong",
    "seeds": "three; they change the order of the last phase and the samples; the NLL start is one for all",
}


def e2e() -> list[Experiment]:
    """Every method from one NLL model, on E2E NLG, under the same decodings."""
    start = nll_model(path_of("WIDEN_SMOLLM2"), source_of("train"), batch_size=64, max_length=192, epochs=2, lr=2e-4)
    return every_method(start, partial(experiment_of, not_in_paper=NOT_IN_PAPER), epochs=1, lr=1e-4)


def source_of(name: str) -> Source:
    """A file of `write_e2e`."""
    return Source(task="e2e", path=f"{path_of('WIDEN_E2E')}/{name}.jsonl")


def experiment_of(name: str, model: FineTune | str, seed: int, *, not_in_paper: dict[str, str]) -> Experiment:
    """Eight texts for each of 128 test meanings under every decoding."""
    return Experiment(
        name=name,
        model=model,
        prompts=source_of("test"),
        num_prompts=128,
        num_samples=8,
        decoding=sampled_decodings(),
        max_tokens=96,
        seed=seed,
        score=SlotScore(embedder=path_of("WIDEN_MPNET")),
        not_in_paper=not_in_paper,
    )


def write_e2e(source: str | Path, folder: str | Path, *, num_valid: int = NUM_VALID) -> None:
    """The data set as files: ``train`` has one text per row, ``test`` one meaning per row with all its texts.

    The files for growth have right texts only, one per row. ``valid`` has those of some training meanings. Of the other meanings,
    ``one`` has the first text and ``all`` every text.
    """
    train = _rows(Path(source) / "devset.csv")
    texts: dict[str, list[str]] = {}
    for row in _rows(Path(source) / "testset_w_refs.csv"):
        texts.setdefault(row["mr"], []).append(row["ref"])
    trained = {row["mr"] for row in train}
    held_out = set(_by_hash(trained)[:num_valid])
    right = [row for row in train if not wrong_slots(row["mr"], row["ref"])]
    every = [row for row in right if row["mr"] not in held_out]
    files: dict[str, list[dict[str, Any]]] = {
        "train": train,
        "test": [{"mr": mr, "refs": texts[mr]} for mr in _by_hash(texts.keys() - trained)],
        "valid": [row for row in right if row["mr"] in held_out],
        "one": list({row["mr"]: row for row in reversed(every)}.values())[::-1],
        "all": every,
    }
    write_files(folder, files)


def _by_hash(meanings: Iterable[str]) -> list[str]:
    return sorted(meanings, key=lambda mr: hashlib.sha256(mr.encode()).digest())


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{"mr": row["mr"], "ref": row["ref"]} for row in csv.DictReader(file)]
