"""Scores of samples files, for `widen score`: texts against texts, and programs that are run. Records go into the run of the samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.texts import read_texts
from widen.disk.inside import inside
from widen.metrics.plain import plain
from widen.metrics.text_scores import ScoreSettings, TextScores
from widen.sample import Decoding, read_samples

from .folder import RunFolder, StageProgress
from .questions import Question
from .record import write_records
from .score_settings import ProgramScore
from .scoring import neighbours
from .scoring.checked import CheckedSamples, Checker
from .scoring.harness import HarnessTask
from .scoring.marks import write_marks
from .scoring.programs import Judged, Judges
from .scoring.score_files import Measured, records_of
from .value import content_hash, to_json


class Texts(NamedTuple):
    """Texts of one file, and how they were drawn if it is a samples file."""

    path: Path
    texts: list[str]
    decoding: Decoding | None
    cut: int = 0  # samples that max-tokens ended

    @property
    def run(self) -> RunFolder | None:
        """The run that the samples belong to."""
        return run_of(self.path) if self.decoding is not None else None


def run_of(samples: Path) -> RunFolder | None:
    """The run that a samples file is in."""
    above = samples.resolve().parent
    return RunFolder(above.parent) if above.name == "samples" else None


def files_of(path: Path) -> Iterator[Path]:
    """The file itself, or the samples files of a run."""
    if path.is_file():
        yield path
        return
    found = [inside(path, file) for file in sorted((path / "samples").glob("*.jsonl"))]
    if not found:
        raise ValueError(f"{path} holds no samples yet: `widen sample {path} --prompts FILE` draws some")
    yield from found


def texts_in(path: Path, *, field: str) -> Texts:
    """The texts of a file, or of a samples file."""
    if not _is_samples(path):
        return Texts(path, read_texts(path, field=field), None)
    found = read_samples(path)
    if not len(found):
        raise ValueError(f"{path}: holds no sample yet")
    return Texts(path, [sample.text for sample in found], found.settings.decoding, found.cut)


def _is_samples(path: Path) -> bool:
    if path.suffix.lower() != ".jsonl":
        return False
    with path.open("rb") as lines:
        try:
            first = json.loads(lines.readline())
        except ValueError:
            return False
    return isinstance(first, dict) and first.get("kind") == "header" and "settings" in first


def keep_texts(run: RunFolder, generated: Texts, reference: Texts, settings: ScoreSettings, scores: TextScores) -> Path:
    """Write the scores of one samples file into its run."""
    score = {"kind": "knn", "embedder": Path(settings.model).name}
    score |= {name: getattr(settings, name) for name in ("k", "samples", "pca")}
    return keep(
        run,
        f"texts-{generated.path.stem}-{content_hash(plain(settings), reference.texts)}",
        neighbours.measured(scores),
        samples=generated.path,
        task=f"texts against {reference.path.name}",
        decoding=generated.decoding,
        score=score,
        detail={"precision": {"scores": scores.to_json(), "cut": generated.cut}},
    )


def keep_programs(path: Path, found: Judged, task: str, score: ProgramScore, decoding: Decoding) -> Path | None:
    """Write the scores of one samples file of programs into its run; None if it is in no run."""
    run = run_of(path)
    if run is None:
        return None
    key = content_hash(to_json(score), task, sorted(found.counts))
    return keep(
        run,
        f"programs-{path.stem}-{key}",
        found.measured(),
        samples=path,
        task=task,
        decoding=decoding,
        score={**to_json(score), "num_samples": found.passes.samples[0]},
        detail=found.detail,
    )


def keep_checked(found: CheckedSamples, by: Checker | HarnessTask) -> Path | None:
    """Write the records of one samples file that a checker, or a task of the harness, has scored into its run; None if it is in no run."""
    run = run_of(found.path)
    if run is None:
        return None
    if isinstance(by, HarnessTask):
        task, name, what = by.name, f"lm_eval:{by.name}:{by.filter}", (by.name, by.filter)
    else:
        task, name, what = by.file.stem, f"{by.file.name}:{by.function}", (by.file.read_text(), by.function)
    score = {"kind": "checker", "checker": name, "ks": list(found.passes.ks)}
    key = content_hash(*what, [c.problem for c in found.counts], score)
    return keep(
        run,
        f"checked-{found.path.stem}-{key}",
        found.measured(),
        samples=found.path,
        task=task,
        decoding=found.decoding,
        score={**score, "num_samples": found.passes.samples[0]},
        detail=found.detail(),
    )


def keep(run: RunFolder, name: str, values: dict[str, Measured], *, samples: Path, **about: Any) -> Path:
    """Write records of a samples file into its run, with model, loss and seed from the run's config."""
    config = run.read(run.config)["experiment"] if run.config.exists() else {}
    model = config.get("model", {}) if isinstance(config.get("model"), dict) else {}
    base = str(model["model"]) if isinstance(model.get("model"), str) else run.path.name
    seed = model.get("seed") if isinstance(model.get("seed"), int) else None
    records = records_of(values, model=Path(base).name, loss=str(model.get("loss", "")), seed=seed, **about)
    asked = read_samples(samples).settings.asked
    return write_records(run, name, [replace(one, detail={**one.detail, "asked": asked}) for one in records])


def judge_samples(
    path: Path,
    questions: Sequence[Question],
    score: ProgramScore,
    *,
    judges: Judges,
    task: str,
    progress: StageProgress,
) -> tuple[Judged, Decoding]:
    """Run every program of a samples file. Every sample must belong to a question; a question may have no sample.

    Verdicts are kept under the name of the task, in the run or beside the file.
    """
    samples = read_samples(path)
    if not len(samples):
        raise ValueError(f"{path}: holds no sample yet")
    by_id, by_text = {one.id: one for one in questions}, {one.example.prompt: one for one in questions}
    own = {}
    for name in dict.fromkeys(sample.prompt for sample in samples):
        text = samples.prompts[name].text
        if name not in by_id and text not in by_text:  # a user may give prompts ids of their own
            raise ValueError(
                f"{path}: the prompt {name!r} ({text[:50]!r}) is of none of the {len(questions)} problems; draw the samples with "
                "`widen sample --task` of the same task and file"
            )
        own[name] = by_id.get(name) or by_text[text]
    run = run_of(path)
    verdicts = run.path / "verdicts" / f"{task}.jsonl" if run else path.with_name(f"{path.name}.verdicts.jsonl")
    inside(run.path if run else path.parent, verdicts)
    answers = [(own[one.prompt], one.text) for one in samples]
    found = judges.judge(answers, score, verdicts=verdicts, what=f"judging {path.name}", progress=progress)
    write_marks(path, zip(samples, found.right, strict=True))
    return found._replace(cut=samples.cut), samples.settings.decoding
