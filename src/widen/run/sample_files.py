"""Scores of samples files, for `widen score`: texts against texts, and programs that are run. Records go into the run of the samples."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.texts import read_texts
from widen.disk.inside import inside
from widen.judge import Count, Sandbox, counts, judge_programs
from widen.metrics.passes import PassScores, pass_scores
from widen.metrics.plain import plain
from widen.metrics.text_scores import ScoreSettings, TextScores
from widen.sample import Decoding, Samples, read_samples

from .folder import RunFolder
from .questions import Question
from .record import write_records
from .score_settings import ProgramScore
from .scoring import neighbours, programs
from .scoring.checked import CheckedSamples, Checker
from .scoring.score_files import Measured, records_of
from .value import content_hash, to_json


class Texts(NamedTuple):
    """Texts of one file, and how they were drawn if it is a samples file."""

    path: Path
    texts: list[str]
    decoding: Decoding | None

    @property
    def run(self) -> RunFolder | None:
        """The run whose samples they are."""
        return run_of(self.path) if self.decoding is not None else None


class Judged(NamedTuple):
    """The programs of one samples file, judged: n and c of each problem, and how many programs ended in which way."""

    path: Path
    decoding: Decoding
    passes: PassScores
    counts: list[Count]
    statuses: dict[str, int]

    @property
    def run(self) -> RunFolder | None:
        """The run whose samples they are."""
        return run_of(self.path)


def run_of(samples: Path) -> RunFolder | None:
    """The run that a samples file is in."""
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
    return Texts(path, [sample.text for sample in found], found.settings.decoding)


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
    """Write the records of one samples file into its run, under a name that says what was compared and how."""
    score = {
        "kind": "knn",
        "embedder": Path(settings.model).name,
        "k": settings.k,
        "samples": settings.samples,
        "pca": settings.pca,
    }
    key = content_hash(plain(settings), reference.texts)
    return _keep(
        run,
        f"texts-{generated.path.stem}-{key}",
        neighbours.measured(scores),
        task=f"texts against {reference.path.name}",
        decoding=generated.decoding,
        score=score,
        detail={"precision": {"scores": scores.to_json()}},
    )


def keep_programs(run: RunFolder, found: Judged, task: str, score: ProgramScore) -> Path:
    """Write the records of one samples file of programs into its run."""
    problems = {count.problem: [count.n, count.c] for count in found.counts}
    key = content_hash(to_json(score), task, sorted(problems))
    return _keep(
        run,
        f"programs-{found.path.stem}-{key}",
        programs.measured(found.passes),
        task=task,
        decoding=found.decoding,
        score={**to_json(score), "num_samples": found.passes.samples[0]},
        detail={"precision": {"counts": problems, "statuses": found.statuses}},
    )


def keep_checked(run: RunFolder, found: CheckedSamples, checker: Checker) -> Path:
    """Write the records of one samples file that a checker has scored into its run."""
    score = {"kind": "checker", "checker": f"{checker.file.name}:{checker.function}", "ks": list(found.passes.ks)}
    key = content_hash(checker.file.read_text(), checker.function, [c.problem for c in found.counts], score)
    return _keep(
        run,
        f"checked-{found.path.stem}-{key}",
        found.measured(),
        task=checker.file.stem,
        decoding=found.decoding,
        score={**score, "num_samples": found.passes.samples[0]},
        detail=found.detail(),
    )


def _keep(run: RunFolder, name: str, values: dict[str, Measured], **about: Any) -> Path:
    """Records of a run; model, loss and seed are those of its config, if it has one."""
    config = run.read(run.config)["experiment"] if run.config.exists() else {}
    model = config.get("model", {}) if isinstance(config.get("model"), dict) else {}
    base = model.get("model")
    base = base if isinstance(base, str) else run.path.name
    seed = model.get("seed") if isinstance(model.get("seed"), int) else None
    records = records_of(values, model=Path(base).name, loss=str(model.get("loss", "")), seed=seed, **about)
    return write_records(run, name, records)


def judge_samples(
    path: Path,
    questions: Sequence[Question],
    score: ProgramScore,
    *,
    sandbox: Sandbox,
    task: str,
    progress: Callable[[int, int], None] | None = None,
) -> Judged:
    """Run every program of a samples file.

    Args:
      path: what `widen sample` wrote.
      questions: the problems; some may have no sample, but every sample must belong to one of them.
      score: every problem needs as many samples as the largest of ``ks``.
      sandbox: open.
      task: of the problems. Verdicts are kept under its name, in the run or beside the file; a stopped judge continues there.
      progress: programs judged, and in all.
    """
    samples = read_samples(path)
    if not len(samples):
        raise ValueError(f"{path}: holds no sample yet")
    own = _problems(samples, questions, path)
    written = [programs.judged(own[s.prompt], programs.program_in(s.text, fenced=score.fenced)) for s in samples]
    run = run_of(path)
    verdicts = run.path / "verdicts" / f"{task}.jsonl" if run else path.with_name(f"{path.name}.verdicts.jsonl")
    inside(run.path if run else path.parent, verdicts)
    verdicts.parent.mkdir(parents=True, exist_ok=True)
    judge = programs.judge_of(list({one.id: one for one in own.values()}.values()))
    reached = judge_programs(judge, written, sandbox=sandbox, verdicts_path=verdicts, progress=progress)
    found = counts(written, reached)
    passes = pass_scores([c.n for c in found], [c.c for c in found], score.ks)
    statuses = dict(Counter(verdict.status for verdict in reached).most_common())
    return Judged(path, samples.settings.decoding, passes, found, statuses)


def _problems(samples: Samples, questions: Sequence[Question], path: Path) -> dict[str, Question]:
    """The problem of each prompt: by its id, or by its text if the user gave prompts ids of their own."""
    by_id, by_text = {one.id: one for one in questions}, {one.example.prompt: one for one in questions}
    found = {}
    for name in dict.fromkeys(sample.prompt for sample in samples):
        prompt = samples.prompts[name]
        one = by_id.get(name) or by_text.get(prompt.text)
        if one is None:
            raise ValueError(
                f"{path}: the prompt {name!r} ({prompt.text[:50]!r}) is of none of the {len(questions)} problems; draw the samples with "
                "`widen sample --task` of the same task and file"
            )
        found[name] = one
    return found
