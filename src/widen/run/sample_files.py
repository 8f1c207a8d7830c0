"""Scores of samples files, for `widen score`: texts against texts, and answers that are right or wrong.

Records go into the run of the samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.texts import read_texts
from widen.disk.inside import inside
from widen.judge import Limits
from widen.metrics.plain import plain
from widen.metrics.text_scores import ScoreSettings, TextScores
from widen.sample import Decoding, read_samples
from widen.sample.samples_file import Samples

from .folder import RunFolder
from .questions import Question
from .record import write_records
from .score_settings import ProgramScore
from .scoring import neighbours
from .scoring.answers import AnswerScores, score_answers
from .scoring.checked import Checker
from .scoring.harness import HarnessTask
from .scoring.job import ScoreTools
from .scoring.programs import program_scores, run_programs
from .scoring.score_files import Values, records_of
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
    return _keep(
        run,
        f"texts-{generated.path.stem}-{content_hash(plain(settings), reference.texts)}",
        neighbours.measured(scores),
        samples=generated.path,
        task=f"texts against {reference.path.name}",
        score=score,
        detail={"precision": {"scores": scores.to_json(), "cut": generated.cut}},
    )


def _keep(run: RunFolder, name: str, values: Values, *, samples: Path, **about: Any) -> Path:
    """Write records of a samples file into its run, with model, loss and seed from the run's config."""
    config = run.read(run.config)["experiment"] if run.config.exists() else {}
    model = config.get("model", {}) if isinstance(config.get("model"), dict) else {}
    base = str(model["model"]) if isinstance(model.get("model"), str) else run.path.name
    seed = model.get("seed") if isinstance(model.get("seed"), int) else None
    drawn = read_samples(samples).settings
    about |= {"model": Path(base).name, "loss": str(model.get("loss", "")), "decoding": drawn.decoding, "seed": seed}
    records = records_of(values, **about)
    return write_records(run, name, [replace(one, detail={**one.detail, "asked": drawn.asked}) for one in records])


class ProgramTask(NamedTuple):
    """Problems that are solved by programs, and how these are run."""

    name: str
    questions: list[Question]
    score: ProgramScore


def judge_file(
    path: Path, by: ProgramTask | Checker | HarnessTask, ks: Sequence[int], limits: Limits, tools: ScoreTools
) -> AnswerScores:
    """Judge every answer of a samples file. Verdicts are kept in the run of the samples, or beside the file.

    Args:
      by: what judges. With a task, every sample must belong to one of its problems; a problem may have no sample.
      ks: of pass@k; every prompt needs as many samples as the largest.
      limits: for one program or one call of the checker.
    """
    samples = read_samples(path)
    if not len(samples):
        raise ValueError(f"{path}: holds no sample yet")
    if isinstance(by, HarnessTask):
        hint = f"of {by.name}; draw the samples with `widen sample MODEL --lm-eval {by.name}`"
        judged = by.check(_asked(path, samples, by.questions, hint))
    elif isinstance(by, Checker):
        judged = by.check(
            [(samples.prompts[one.prompt].text, one.text) for one in samples],
            sandbox=tools.sandbox(limits),
            verdicts=_verdicts(path, by.file.stem, "checked"),
            progress=partial(tools.progress, f"checking {path.name}"),
        )
    else:
        hint = "of the task; draw the samples with `widen sample --task` of the same task and file"
        ran = run_programs(
            _asked(path, samples, by.questions, hint),
            fenced=by.score.fenced,
            sandbox=tools.sandbox(limits),
            verdicts=_verdicts(path, by.name, "verdicts"),
            progress=partial(tools.progress, f"judging {path.name}"),
        )
        return program_scores(path, samples.samples, ran, by.score)
    return score_answers(path, samples.samples, judged, ks)


def _asked(path: Path, samples: Samples, questions: Sequence[Question], hint: str) -> list[tuple[Question, str]]:
    """Each sample's question and text. Samples belong to a question by its id or, if users gave ids of their own, by its prompt."""
    by_id, by_text = {one.id: one for one in questions}, {one.example.prompt: one for one in questions}
    own = {}
    for name in dict.fromkeys(sample.prompt for sample in samples):
        text = samples.prompts[name].text
        if name not in by_id and text not in by_text:
            raise ValueError(
                f"{path}: the prompt {name!r} ({text[:50]!r}) is of none of the {len(questions)} problems {hint}"
            )
        own[name] = by_id.get(name) or by_text[text]
    return [(own[one.prompt], one.text) for one in samples]


def _verdicts(path: Path, name: str, ending: str) -> Path:
    run = run_of(path)
    kept = run.path / "verdicts" / f"{name}.jsonl" if run else path.with_name(f"{path.name}.{ending}.jsonl")
    inside(run.path if run else path.parent, kept)
    kept.parent.mkdir(parents=True, exist_ok=True)
    return kept


def keep_answers(path: Path, found: AnswerScores, by: ProgramTask | Checker | HarnessTask) -> Path | None:
    """Write the records of one judged samples file into its run; None if it is in no run."""
    run, problems = run_of(path), list(found.counts)
    if run is None:
        return None
    what: tuple[Any, ...]
    if isinstance(by, ProgramTask):
        kind, task, score = "programs", by.name, to_json(by.score)
        what = (score, task, sorted(problems))
    else:
        if isinstance(by, HarnessTask):
            task, name, what = by.name, f"lm_eval:{by.name}:{by.filter}", (by.name, by.filter)
        else:
            task, name, what = by.file.stem, f"{by.file.name}:{by.function}", (by.file.read_text(), by.function)
        kind, score = "checked", {"kind": "checker", "checker": name, "ks": list(found.passes.ks)}
        what = (*what, problems, score)
    return _keep(
        run,
        f"{kind}-{path.stem}-{content_hash(*what)}",
        found.measured,
        samples=path,
        task=task,
        score={**score, "num_samples": found.passes.samples[0]},
        detail=found.detail,
    )
