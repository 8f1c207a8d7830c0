"""pass@k of a samples file: the programs of a task's problems, really run, and the scores kept in the run where the page finds them.

Recipes do the same for a whole experiment (`text_programs`); this is for what `widen sample --task` left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from widen.data.tasks import listed, read
from widen.disk.inside import inside
from widen.judge import Count, Sandbox, counts, judge_programs
from widen.metrics.passes import PassScores, pass_scores
from widen.sample import Decoding, Samples, read_samples

from .folder import RunFolder
from .sample_scores import run_of
from .text_experiment import ProgramScore
from .text_programs import judge_of, judged, program_in, values_of
from .text_prompts import Asked, named
from .value import content_hash, to_json

__all__ = ["Judged", "judge_samples", "keep_passes", "problems_of"]


class Judged(NamedTuple):
    """The programs of one samples file, judged."""

    path: Path
    decoding: str
    passes: PassScores
    counts: list[Count]
    """n and c of each problem."""
    statuses: dict[str, int]
    """How many programs passed, gave a wrong answer, ran out of time, ..."""

    @property
    def run(self) -> RunFolder | None:
        """The run whose samples they are."""
        return run_of(self.path)


def problems_of(task: str, source: str, *, limit: int | None = None) -> list[Asked]:
    """The problems of a file or a data set (its split ``test``), by the names that their prompts have in a samples file."""
    found = read(task, source, split="test", limit=limit)
    if found.bad:
        number = f"{len(found.bad)} record{'s' * (len(found.bad) > 1)}"
        raise ValueError(f"{number} of {source} cannot be used:\n{listed(found.bad)}")
    if not found.examples:
        raise ValueError(f"{source or task} holds no examples")
    return named(found.examples)


def judge_samples(
    path: Path,
    asked: Sequence[Asked],
    score: ProgramScore,
    *,
    sandbox: Sandbox,
    task: str,
    progress: Callable[[int, int], None] | None = None,
) -> Judged:
    """Run every program of a samples file.

    Args:
      path: what `widen sample` wrote.
      asked: the problems, of which some may have no sample; a sample of none of them is refused.
      score: ``ks`` that the fewest samples of a problem do not reach are left to the caller: they are refused here.
      sandbox: open.
      task: of the problems; verdicts are kept under its name, in the run or beside the file, and go on where a kill stopped them.
      progress: programs judged, and in all.
    """
    samples = read_samples(path)
    if not len(samples):
        raise ValueError(f"{path}: holds no sample yet")
    own = _problems(samples, asked, path)
    programs = [judged(own[s.prompt], program_in(s.text, fenced=score.fenced)) for s in samples]
    run = run_of(path)
    verdicts = run.path / "verdicts" / f"{task}.jsonl" if run else path.with_name(f"{path.name}.verdicts.jsonl")
    inside(run.path if run else path.parent, verdicts)
    verdicts.parent.mkdir(parents=True, exist_ok=True)
    judge = judge_of(list({one.id: one for one in own.values()}.values()))
    reached = judge_programs(judge, programs, sandbox=sandbox, verdicts_path=verdicts, progress=progress)
    found = counts(programs, reached)
    passes = pass_scores([c.n for c in found], [c.c for c in found], score.ks)
    statuses = dict(Counter(verdict.status for verdict in reached).most_common())
    return Judged(path, samples.settings.decoding.spec, passes, found, statuses)


def _problems(samples: Samples, asked: Sequence[Asked], path: Path) -> dict[str, Asked]:
    """The problem of each prompt: by its name, or, where the user gave prompts names of their own, by its text."""
    by_name, by_text = {one.id: one for one in asked}, {one.example.prompt: one for one in asked}
    found = {}
    for name in dict.fromkeys(sample.prompt for sample in samples):
        prompt = samples.prompts[name]
        one = by_name.get(name) or by_text.get(prompt.text)
        if one is None:
            raise ValueError(
                f"{path}: the prompt {name!r} ({prompt.text[:50]!r}) is of none of the {len(asked)} problems; draw the samples with "
                "`widen sample --task` of the same task and file"
            )
        found[name] = one
    return found


def keep_passes(run: RunFolder, found: Judged, task: str, score: ProgramScore) -> Path:
    """Write the scores of one samples file into its run."""
    settings: dict[str, Any] = {
        "temperature": Decoding.parse(found.decoding).temperature,
        "decoding": found.decoding,
        "task": task,
        "prompts": found.passes.problems,
        "samples": found.passes.samples[0],
        **to_json(score),
    }
    content = {
        "kind": f"{task} programs",
        "settings": settings,
        "scores": to_json(values_of(found.passes)),
        "counts": {count.problem: [count.n, count.c] for count in found.counts},
        "statuses": found.statuses,
    }
    names = sorted(count.problem for count in found.counts)
    path = run.scores(f"programs-{found.path.stem}-{content_hash(to_json(score), task, names)}")
    run.write(path, content)
    return path
