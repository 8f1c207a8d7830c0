"""Texts from a file or from the samples of a run, and their scores kept in the run, where the page finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from widen.data.texts import read_texts
from widen.disk.inside import inside
from widen.metrics.plain import plain
from widen.metrics.text_scores import ScoreSettings, TextScores
from widen.sample import Decoding, read_samples

from .folder import RunFolder
from .text_knn import values_of
from .value import content_hash, to_json


class Texts(NamedTuple):
    """Texts of one file, and how they were drawn where it is a samples file."""

    path: Path
    texts: list[str]
    decoding: str | None

    @property
    def run(self) -> RunFolder | None:
        """The run whose samples they are."""
        return run_of(self.path) if self.decoding is not None else None


def run_of(samples: Path) -> RunFolder | None:
    """The run that a samples file lies in."""
    above = samples.resolve().parent
    return RunFolder(above.parent) if above.name == "samples" else None


def files_of(path: Path) -> Iterator[Path]:
    """The file itself, or the samples of a run."""
    if path.is_file():
        yield path
        return
    found = [inside(path, file) for file in sorted((path / "samples").glob("*.jsonl"))]
    if not found:
        raise ValueError(f"{path} holds no samples yet: `widen sample {path} --prompts FILE` draws some")
    yield from found


def texts_in(path: Path, *, field: str) -> Texts:
    """A file of texts, or one that `widen sample` wrote."""
    if not _is_samples(path):
        return Texts(path, read_texts(path, field=field), None)
    found = read_samples(path)
    if not len(found):
        raise ValueError(f"{path}: holds no sample yet")
    return Texts(path, [sample.text for sample in found], found.settings.decoding.spec)


def _is_samples(path: Path) -> bool:
    if path.suffix.lower() != ".jsonl":
        return False
    with path.open("rb") as lines:
        try:
            first = json.loads(lines.readline())
        except ValueError:
            return False
    return isinstance(first, dict) and first.get("kind") == "header" and "settings" in first


def keep_scores(
    run: RunFolder, generated: Texts, reference: Texts, settings: ScoreSettings, scores: TextScores
) -> Path:
    """Write the scores of one samples file into its run, by a name that says what was compared and how."""
    assert generated.decoding is not None
    some = "" if settings.samples is None else f", {settings.samples:,} of each"
    content = {
        "kind": f"texts against {reference.path.name} ({Path(settings.model).name}, k = {settings.k}{some})",
        "settings": {
            "temperature": Decoding.parse(generated.decoding).temperature,
            "decoding": generated.decoding,
            "reference": scores.n_reference,
            "samples": scores.n_generated,
            "embedder": settings.model,
            "k": settings.k,
            "pca": settings.pca,
        },
        "scores": to_json(values_of(scores)),
        "detail": scores.to_json(),
    }
    key = content_hash(plain(settings), reference.texts)
    path = run.scores(f"texts-{generated.path.stem}-{key}")
    run.write(path, content)
    return path
