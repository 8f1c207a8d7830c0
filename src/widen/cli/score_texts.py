"""`widen score REFERENCE GENERATED...` on texts: the metrics room's numbers as a table and as JSON.

Generated texts are files, or run folders, whose samples are scored file by file; those scores go into the run, where `widen report` finds
them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from .score_table import table_of
from .show import bars

if TYPE_CHECKING:
    from widen.metrics.text_scores import ScoreSettings, TextScores


def add_arguments(group: Any) -> None:
    """Flags for texts."""
    group.add_argument(
        "--metrics", nargs="+", metavar="NAME", help="of knn mauve prd distinct self_bleu vendi (default: all)"
    )
    group.add_argument(
        "--embedder", metavar="MODEL", help="Hugging Face name or folder (default: gpt2-large, as the paper)"
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help="the paper's settings: joint PCA .9, open balls, k = 4, 2,000 texts of each",
    )
    group.add_argument(
        "--samples",
        metavar="N",
        help="texts of each that are scored, drawn at random, or 'all' (default; --paper: 2000)",
    )
    group.add_argument("--k", type=int, help="neighbours (default: 4)")
    group.add_argument("--field", default="text", help="field of .jsonl, column of .csv (default: text)")
    group.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="keep embeddings here, so that a text is embedded once"
    )
    group.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the JSON goes (default: GENERATED.scores.json, or the run's scores/)",
    )


class Texts(NamedTuple):
    """Texts of one file, and how they were drawn where it is a samples file."""

    path: Path
    texts: list[str]
    decoding: str | None


def main(options: argparse.Namespace) -> int:
    """Read, score, print, write."""
    from widen.metrics.text_scores import score_texts

    settings = _settings(options)
    reference = _read(options.paths[0], options.field)
    sets = [_read(file, options.field) for path in options.paths[1:] for file in _files(path)]
    if options.json is not None and len(sets) > 1:
        raise ValueError(f"--json names one file, and {len(sets)} sets of texts are scored: leave it out")
    _enough(settings, reference, *sets)
    _quiet()
    console = Console()
    with ExitStack() as inside:
        # The reference is embedded once for all sets.
        cache = options.cache
        if cache is None and len(sets) > 1:
            cache = Path(inside.enter_context(tempfile.TemporaryDirectory()))
        for generated in sets:
            with bars() as (_, on_score):
                try:
                    scores = score_texts(
                        reference.texts,
                        generated.texts,
                        settings,
                        cache=cache,
                        device=options.device,
                        progress=on_score,
                    )
                except OSError as error:
                    raise ValueError(_no_embedder(settings, error)) from None
            path = options.json or _place(reference, generated, settings)
            _write(path, reference, generated, settings, scores)
            console.print(table_of(scores, f"{generated.path.name} against {reference.path.name}"))
            for note in scores.notes:
                console.print(f"note: {note}")
            console.print(f"scores: {path}", soft_wrap=True)
    return 0


def _settings(options: argparse.Namespace) -> ScoreSettings:
    from widen.metrics.text_scores import PAPER, ScoreSettings

    settings = PAPER if options.paper else ScoreSettings()
    changes = {"metrics": tuple(options.metrics or ()), "model": options.embedder, "k": options.k}
    settings = replace(settings, **{key: value for key, value in changes.items() if value})
    if options.samples == "all":
        return replace(settings, samples=None)
    if options.samples is not None:
        if not options.samples.isdecimal():
            raise ValueError(f"--samples {options.samples}: a number of texts, or 'all'")
        return replace(settings, samples=int(options.samples))
    return settings


def _enough(settings: ScoreSettings, *sets: Texts) -> None:
    """Before a model is loaded to embed them."""
    for one in sets:
        if "knn" in settings.metrics and len(one.texts) <= settings.k:
            raise ValueError(
                f"{one.path}: {len(one.texts)} texts, and k-NN scores need more than k = {settings.k}: give more, a smaller --k, or leave "
                "knn out of --metrics"
            )


def _quiet() -> None:
    """No report of the weights that an embedder leaves out of a language model: its head is not used."""
    try:
        from transformers.utils import logging
    except ImportError:
        return  # said by the embedder, where one is needed
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the samples of a run."""
    if path.is_file():
        yield path
        return
    found = sorted((path / "samples").glob("*.jsonl"))
    if not found:
        raise ValueError(f"{path} holds no samples yet: `widen sample {path} --prompts FILE` draws some")
    yield from found


def _read(path: Path, field: str) -> Texts:
    """A file of texts, or one that `widen sample` wrote."""
    from widen.data.texts import read_texts
    from widen.sample import read_samples

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


def _in_a_run(generated: Texts) -> bool:
    return generated.decoding is not None and generated.path.resolve().parent.name == "samples"


def _place(reference: Texts, generated: Texts, settings: ScoreSettings) -> Path:
    """Beside the texts; for the samples of a run among its scores, by a name that says what was compared and how."""
    if not _in_a_run(generated):
        return generated.path.with_name(generated.path.name + ".scores.json")
    from widen.metrics.plain import plain
    from widen.run.value import content_hash

    key = content_hash(plain(settings), reference.texts)
    return generated.path.resolve().parent.parent / "scores" / f"texts-{generated.path.stem}-{key}.json"


def _write(path: Path, reference: Texts, generated: Texts, settings: ScoreSettings, scores: TextScores) -> None:
    content = scores.to_json()
    if _in_a_run(generated):
        from widen.run.text_knn import values_of
        from widen.run.value import to_json
        from widen.sample import Decoding

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
            "detail": content,
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    part.replace(path)


def _no_embedder(settings: ScoreSettings, error: OSError) -> str:
    return (
        f"the texts could not be embedded with {settings.model}: {str(error).splitlines()[0]} "
        "Give --embedder a folder that is here, or ask for --metrics distinct self_bleu, which need none"
    )
