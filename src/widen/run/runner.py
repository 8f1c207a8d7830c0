"""Run experiments in stages: train, sample, score. The stages may run on different machines that share one folder.

    <root>/<model>/checkpoint/ samples/ scores/       one folder per model
    <root>/prompts/  verdicts/  features/             shared by all models
    <root>/<recipe>.csv                               the table

Results on disk are reused: a model whose samples are complete is neither trained nor loaded. `score` needs no checkpoints, except for
exact scores.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_text
from widen.judge import SandboxUnavailable
from widen.metrics.embed import Embedder
from widen.train.settings import Configuration

from . import best_on_halves, best_setting
from .best_setting import MethodBest
from .environment import environment
from .experiment import Experiment
from .finetune.config import FineTune
from .finetune.model_files import may_be_on_hub
from .finetune.stage import fine_tune
from .finetune.token_data import same_data
from .folder import RunFolder, Say, StageProgress, folder_of, silent
from .questions import questions_of
from .record import Record
from .sampling import Models, missing, sample
from .score_settings import CheckerScore, ExactScore, KnnScore, ProgramScore, SlotScore, SupportScore, goals_of, may_mix
from .scoring.checked import score_checked
from .scoring.job import ScoreJob, ScoreTools
from .scoring.listed_answers import score_exactly
from .scoring.neighbours import score_neighbours
from .scoring.programs import score_programs
from .scoring.score_files import found_records
from .scoring.slots import score_slots
from .scoring.support import measure_support, score_support, size_quantiles, sizes_path
from .side_by_side import make_side_by_side, starts_of
from .table import Row, summarise, to_csv
from .train_small import train_small
from .value import content_hash, to_json

STAGES = ("train", "sample", "score")
SCORERS: dict[type, Callable[[ScoreJob], list[Record]]] = {
    ExactScore: score_exactly,
    KnnScore: score_neighbours,
    ProgramScore: score_programs,
    CheckerScore: score_checked,
    SlotScore: score_slots,
    SupportScore: score_support,
}
"""How each kind of score makes and writes the records of one experiment."""
Scored = Sequence[tuple[Experiment, list[Record]]]


def run(
    name: str,
    experiments: Sequence[Experiment],
    root: str | Path,
    *,
    command: str = "",
    device: str = "cpu",
    stages: Sequence[str] = STAGES,
    seeds: int | None = None,
    servers: Sequence[str] = (),
    rows: int | None = None,
    jobs: int = 1,
    drop_checkpoints: bool = False,
    skip_bad: bool = False,
    made_by: Callable[[str], str] = lambda model: "",
    progress: StageProgress = silent,
    notice: Say = lambda text: None,
) -> list[Row]:
    """Run stages of experiments. The stage `score` also writes the table to ``root`` as CSV.

    Args:
      command: the command line, for the first line of the CSV.
      device: for training, sampling, embedding and exact scores.
      seeds: use only the first N seeds of each setting.
      servers: base URLs of servers to sample from, instead of loading the models here.
      rows: samples drawn at a time; by default as many as fit into memory.
      jobs: number of real models that are trained, sampled and exactly scored at a time, each in its own process.
      drop_checkpoints: remove a fine-tuned model's weights once all its samples, or its exact scores, are on disk.
      skip_bad: skip bad records instead of refusing to start.
      made_by: the command that makes the folder of a model that is used as it is; "" for one that may be on the hub.
      progress: called with (what, done, total).
      notice: called with messages for the user.

    Returns:
      The rows of the table; empty without the stage `score`.
    """
    if unknown := [stage for stage in stages if stage not in STAGES] or (["none"] if not stages else []):
        raise ValueError(f"stages: {', '.join(unknown)}; legal: one or more of {', '.join(STAGES)}")
    root, experiments = Path(root), first_seeds(name, experiments, seeds)
    check_variables(experiments)
    tools, cache = ScoreTools(root, device=device, progress=progress), dict[Any, Any]()
    chosen = [job_of(one, tools, skip_bad=skip_bad) for one in experiments]
    if "sample" in stages and not servers:
        _refuse_missing(chosen, made_by)
    if "score" in stages:
        _try_embedders([job for job in chosen if "sample" in stages or is_sampled(job)])
    by_model: dict[str, list[ScoreJob]] = {}
    for job in chosen:
        if not isinstance(job.experiment.model, Configuration):
            by_model.setdefault(job.folder.path.name, []).append(job)
    for mine in by_model.values():
        if isinstance(mine[0].experiment.model, FineTune):
            same_data(mine[0].experiment.model, root, cache)
    if "train" in stages:
        small = [one for one in experiments if isinstance(one.model, Configuration)]
        train_small(small, root, device=device, progress=progress)
    if jobs > 1:
        make_side_by_side(
            [job.experiment for mine in by_model.values() for job in mine if _is_left(job)],
            root,
            jobs=jobs,
            device=device,
            stages=stages,
            rows=rows,
            drop_checkpoints=drop_checkpoints,
            skip_bad=skip_bad,
            progress=progress,
            notice=notice,
        )
    models, starts = Models(device=device, servers=servers, rows=rows), starts_of(experiments)
    for mine in by_model.values():
        folder, first = mine[0].folder, mine[0].experiment
        waiting = [job for job in mine if not is_sampled(job)]
        if waiting and "train" in stages and isinstance(first.model, FineTune):
            models.close()
            fine_tune(first.model, root, device=device, skip_bad=skip_bad, progress=_training(progress, first))
        if waiting and ("sample" in stages or ("train" in stages and isinstance(first.model, str))):
            _claim(folder, first)
        if waiting and "sample" in stages:
            for _, one, questions, _ in waiting:
                if isinstance(one.score, SupportScore):
                    measure_support(models, folder, one, questions, progress=progress)
                elif not isinstance(one.score, ExactScore):
                    sample(models, folder, one, questions, progress=progress, notice=notice)
            models.close()
            if drop_checkpoints and folder.path.name not in starts:
                drop_finished(mine)
    if "score" not in stages:
        return []
    try:
        with tools:
            scored = _score(chosen, notice)
    except SandboxUnavailable as error:
        raise ValueError(
            f"programs are judged in a sandbox only, and this machine has none: {error}. The samples are in {root}: copy the folder to a "
            "machine with a sandbox, without its checkpoints if you like, and run the same command with --stages score there"
        ) from None
    if not scored:
        raise FileNotFoundError(f"nothing to score in {root}: run the stages `train` and `sample` first")
    for key, mine in by_model.items():
        if drop_checkpoints and key not in starts:
            drop_finished(mine)
    return _tabulate(name, scored, root, command or f"run({name!r}, ...)")


def first_seeds(name: str, experiments: Sequence[Experiment], seeds: int | None) -> list[Experiment]:
    """The experiments without duplicates, restricted to the first ``seeds`` seeds of each setting."""
    kept, of_setting = [], dict[str, list[int]]()
    for one in {content_hash(one): one for one in experiments}.values():
        taken = of_setting.setdefault(one.setting, [])
        if one.model_seed not in taken:
            taken.append(one.model_seed)
        if seeds is None or one.model_seed in taken[:seeds]:
            kept.append(one)
    if not kept:
        raise ValueError(f"{name}: no experiments are left to run")
    return kept


def check_variables(experiments: Sequence[Experiment]) -> None:
    """Refuse paths with environment variables that are not set."""
    text = str([to_json([one.model, one.prompts, one.score]) for one in experiments])
    if unset := sorted(set(re.findall(r"\$(\w+)", text))):
        raise ValueError(
            f"this recipe takes its model and data from {', '.join(unset)}: set {'them' if len(unset) > 1 else 'it'} to a path "
            "(see the top of the recipe's module)"
        )


def _refuse_missing(jobs: Sequence[ScoreJob], made_by: Callable[[str], str]) -> None:
    """Refuse a model folder that is needed and not there, before anything is made; the message has the commands for all of them."""
    lacking = [
        (job.experiment, made_by(model))
        for job in jobs
        if isinstance(model := job.experiment.model, str) and _is_missing(model, made_by(model)) and not is_sampled(job)
    ]
    if lacking:
        one, _ = lacking[0]
        commands = " && ".join(dict.fromkeys(command for _, command in lacking if command))
        how = f": make it with `{commands}`" if commands else ""
        raise FileNotFoundError(f"{one.name}, seed {one.model_seed}: there is no folder {one.model}{how}")


def _try_embedders(jobs: Sequence[ScoreJob]) -> None:
    """Refuse an embedder that is needed and cannot be loaded, before anything is trained or drawn."""
    tried = set[str]()
    for folder, one, *_ in jobs:
        embedder = getattr(one.score, "embedder", "")
        if embedder and embedder not in tried and found_records(folder, one) is None:
            tried.add(embedder)
            Embedder(embedder)


def _is_missing(model: str, made_by: str = "") -> bool:
    return not Path(model).exists() and (made_by != "" or not may_be_on_hub(model))


def _training(progress: StageProgress, one: Experiment) -> StageProgress:
    """Progress of a training, with the name of its experiment; a model that it starts from is named by its loss."""

    def at(what: str, done: int, total: int) -> None:
        name = what if what.endswith(", first") else one.name
        progress(f"train {name}, seed {one.model_seed}", done, total)

    return at


def job_of(experiment: Experiment, tools: ScoreTools, *, skip_bad: bool = False) -> ScoreJob:
    """An experiment with its folder and, unless its model is small, its questions."""
    small = isinstance(experiment.model, Configuration)
    questions = [] if small else questions_of(experiment, tools.root, skip_bad=skip_bad)
    return ScoreJob(folder_of(tools.root, experiment), experiment, questions, tools)


def _is_left(job: ScoreJob) -> bool:
    """Whether there is something to make side by side: samples, or scores that are made there."""
    to_score = isinstance(job.experiment.score, SlotScore) and found_records(job.folder, job.experiment) is None
    return to_score or not is_sampled(job)


def is_sampled(job: ScoreJob) -> bool:
    """Whether everything that is made from an experiment's model is on disk."""
    folder, experiment, questions, _ = job
    if isinstance(experiment.score, SupportScore):
        return sizes_path(folder, experiment).exists()
    if isinstance(experiment.score, ExactScore):  # nothing is drawn; the model is needed until it is scored
        return found_records(folder, experiment) is not None
    return not missing(folder, experiment, questions)


def _claim(folder: RunFolder, experiment: Experiment) -> None:
    """Create the folder of an untrained model; the folder of a fine-tuned one must exist."""
    if isinstance(experiment.model, str):
        config = {"name": experiment.name, "model": {"model": experiment.model, "loss": ""}}
        folder.claim(config, environment())
    elif not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run the stage `train` first")


def drop_finished(jobs: Sequence[ScoreJob]) -> None:
    """Remove the weights of a fine-tuned model if nothing more is made from them. ``jobs`` are all of this model."""
    if isinstance(jobs[0].experiment.model, FineTune) and all(map(is_sampled, jobs)):
        shutil.rmtree(jobs[0].folder.checkpoint, ignore_errors=True)


def _score(jobs: Sequence[ScoreJob], notice: Say) -> Scored:
    """Score every experiment that has its model or samples; name the others."""
    scored = []
    for done, job in enumerate(jobs, start=1):
        folder, one, _, tools = job
        exact, records = isinstance(one.score, ExactScore), found_records(folder, one)
        if records is None:
            lacks = ""
            if not exact:
                lacks = "" if is_sampled(job) else f"not all samples are in {folder.path}"
            elif not isinstance(one.model, str):
                lacks = "" if folder.is_trained else f"no trained model is in {folder.path}"
            elif _is_missing(one.model):
                lacks = f"there is no folder {one.model}"
            if lacks:
                notice(f"{one.name}, seed {one.model_seed}: {lacks}; not in the table")
                continue
            records = score_one(job)
        scored.append((one, records))
        if exact:
            tools.progress("score", done, len(jobs))
    return scored


def score_one(job: ScoreJob) -> list[Record]:
    """The records of one experiment, from disk if they are there."""
    found = found_records(job.folder, job.experiment)
    return SCORERS[type(job.experiment.score)](job) if found is None else found


def _tabulate(name: str, scored: Scored, root: Path, command: str) -> list[Row]:
    """The table, also as CSV. Support sizes get extra CSV rows, which figure ``histo`` reads."""
    rows, made = summarise(name, scored), {}
    cells = [row.cells() for row in rows]
    for one, _ in scored:
        folder = folder_of(root, one)
        if isinstance(one.score, SupportScore):
            about = {"recipe": name, "name": one.name}
            cells += [about | sizes for sizes in size_quantiles(folder, one)]
        if (path := folder.path / "env.json").exists():
            env = {key: value for key, value in folder.read(path).items() if key != "schema"}
            made[content_hash(env)] = env
    write = partial(to_csv, command=command, env=environment())
    write_text(table_path(root, name), write(cells, models=made.values()))
    if best := [{"recipe": name, **cells} for row in _best(scored) for cells in row.cells()]:
        write_text(table_path(root, name, "best"), write(best, notes=best_setting.NOTES))
    tasks: dict[str, tuple[Experiment, dict[str, list[Record]]]] = {}
    for one, records in scored:
        tasks.setdefault(one.task, (one, {}))[1].setdefault(one.name, []).extend(records)
    found = (
        row
        for one, methods in tasks.values()
        for goal in goals_of(one.score)
        for row in best_on_halves.best_on_halves(methods, goal=goal, mixtures=may_mix(one.score, goal))
    )
    if halves := [{"recipe": name, **row} for row in found]:
        write_text(table_path(root, name, "halves"), write(halves, notes=best_on_halves.NOTES))
    return rows


def _best(scored: Scored) -> list[MethodBest]:
    """The best settings of each method over the decodings they share; empty unless all scores are exact."""
    if not all(isinstance(one.score, ExactScore) for one, _ in scored):
        return []
    methods: dict[str, list[Record]] = {}
    settings: dict[str, list[str]] = {}
    other_data: list[str] = []
    for one, records in scored:
        known = settings.setdefault(one.name, [])
        if one.setting not in known:
            known.append(one.setting)
        number = known.index(one.setting)
        name = one.name + (f" ({number + 1})" if number else "")
        methods.setdefault(name, []).extend(records)
        first = scored[0][0]
        if one.data != first.data and one.prompts == first.prompts:  # the folds of a cross-validation differ in both
            other_data.append(name)
    return best_setting.best_of_methods(methods, other_data=other_data)


def best_settings(
    name: str, experiments: Sequence[Experiment], root: str | Path, *, seeds: int | None = None
) -> list[MethodBest]:
    """The best settings of each method of a recipe, from the scores on disk; empty unless all scores are exact."""
    found = [(one, found_records(folder_of(root, one), one)) for one in first_seeds(name, experiments, seeds)]
    return _best([(one, records) for one, records in found if records is not None])


def table_path(root: str | Path, name: str, kind: str = "") -> Path:
    """The CSV of a recipe's table; of its best settings (``best``); of those chosen and scored on halves of the problems (``halves``)."""
    return Path(root) / f"{name.replace(':', '_')}{f'_{kind}' if kind else ''}.csv"
