"""Train, sample, score, tabulate: the stages of experiments, together or on different machines.

    <root>/<model>/checkpoint/ samples/ scores/       one folder per model        <root>/prompts/  what was asked, and the answers
    <root>/verdicts/  features/                       shared by all models        <root>/<recipe>.csv

`train` and `sample` need the model; `score` needs the folder without checkpoints, except for exact scores. What is on disk is not made
again: a model whose samples are all there is neither trained nor opened.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_text
from widen.sample.decoding import Decoding
from widen.train.settings import Configuration

from .best_setting import MethodBest, best_of_methods
from .environment import environment
from .experiment import Experiment
from .finetune.config import FineTune
from .finetune.inputs import same_data
from .finetune.stage import fine_tune
from .folder import RunFolder, StageProgress, folder_of
from .questions import Question, questions_of
from .record import Record, read_records, write_records
from .sampling import Models, missing, sample
from .score_settings import ExactScore, KnnScore, ProgramScore, SupportScore
from .scoring.listed_answers import score_exactly, score_name
from .scoring.neighbours import score_neighbours
from .scoring.programs import Judges, score_programs
from .scoring.score_files import Sampled
from .scoring.support import measure_support, score_support, size_quantiles, sizes_path
from .side_by_side import make_side_by_side
from .table import Row, best_csv, summarise, to_csv
from .train_small import train_small
from .value import content_hash, to_json

STAGES = ("train", "sample", "score")
Notice = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How the stages run; none of this changes a number. See `run`."""

    root: Path
    device: str
    servers: tuple[str, ...]
    rows: int | None
    drop_checkpoints: bool
    skip_bad: bool
    progress: StageProgress | None
    notice: Notice


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
    progress: StageProgress | None = None,
    notice: Notice | None = None,
) -> list[Row]:
    """Run stages of experiments; after the last one the table is left in ``root`` as CSV.

    Args:
      command: what made the table, for its first line.
      device: of training, sampling, embedding and exact scores.
      stages: of train, sample, score.
      seeds: take only the first so many seeds of each setting.
      servers: base URLs of servers to sample from instead of this process.
      rows: samples drawn at a time; by default as many as fit into memory.
      jobs: real models that are trained, sampled and exactly scored at a time, each in a process of its own.
      drop_checkpoints: remove a real model's weights once all its samples are on disk.
      skip_bad: leave out records that cannot be used instead of refusing to start.
      progress: called with (what, done, total).
      notice: called with a sentence that somebody should read.

    Returns:
      The rows of the table; none if scoring is not among the stages.
    """
    if unknown := [stage for stage in stages if stage not in STAGES] or (["none"] if not stages else []):
        raise ValueError(f"stages: {', '.join(unknown)}; legal: one or more of {', '.join(STAGES)}")
    options = _Options(
        root=Path(root),
        device=device,
        servers=tuple(servers),
        rows=rows,
        drop_checkpoints=drop_checkpoints,
        skip_bad=skip_bad,
        progress=progress,
        notice=notice or (lambda text: None),
    )
    chosen = first_seeds(name, experiments, seeds)
    _check_names(chosen)
    small = [one for one in chosen if isinstance(one.model, Configuration)]
    on_texts = [one for one in chosen if not isinstance(one.model, Configuration)]
    questions = {id(one): questions_of(one, root, skip_bad=skip_bad) for one in on_texts}
    _same_data(on_texts, root)
    if "train" in stages:
        train_small(small, root, device=device, progress=progress)
    if jobs > 1 and on_texts:
        make_side_by_side(
            on_texts, root, jobs=jobs, device=device, stages=stages, skip_bad=skip_bad, notice=options.notice
        )
    if "train" in stages or "sample" in stages:
        _train_and_sample(on_texts, questions, options, stages)
    if "score" not in stages:
        return []
    return _tabulate(name, _score(chosen, questions, options), options, command or f"run({name!r}, ...)")


def first_seeds(name: str, experiments: Sequence[Experiment], seeds: int | None) -> list[Experiment]:
    """Each experiment once, of the first so many seeds of its setting, in the order of the recipe."""
    once = {content_hash(one): one for one in experiments}
    kept, of_setting = [], dict[str, list[int]]()
    for one in once.values():
        taken = of_setting.setdefault(one.setting, [])
        if one.model_seed not in taken:
            taken.append(one.model_seed)
        if seeds is None or one.model_seed in taken[:seeds]:
            kept.append(one)
    if not kept:
        raise ValueError(f"{name}: no experiments are left to run")
    return kept


def _check_names(experiments: Sequence[Experiment]) -> None:
    """Refuse, before anything starts, a recipe whose paths use environment variables that are not set."""
    names: set[str] = set()
    for experiment in experiments:
        names.update(re.findall(r"\$(\w+)", str(to_json([experiment.model, experiment.prompts]))))
    if unset := sorted(names):
        raise ValueError(
            f"this recipe takes its model and data from {', '.join(unset)}: set {'them' if len(unset) > 1 else 'it'} to a path "
            "(see the top of the recipe's module)"
        )


def _same_data(experiments: Sequence[Experiment], root: str | Path) -> None:
    """Refuse models whose training data has changed since; data that is not here cannot be checked."""
    cache: dict[Any, Any] = {}
    for model in {one.folder_name: one.model for one in experiments}.values():
        if isinstance(model, FineTune):
            same_data(model, root, cache)


def _train_and_sample(
    experiments: Sequence[Experiment],
    questions: dict[int, list[Question]],
    options: _Options,
    stages: Sequence[str],
) -> None:
    """Train and sample real models, one after the other."""
    by_model: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        by_model.setdefault(experiment.folder_name, []).append(experiment)
    models = Models(device=options.device, servers=options.servers, rows=options.rows)
    for mine in by_model.values():
        folder = folder_of(options.root, mine[0])
        waiting = [one for one in mine if not _is_sampled(folder, one, questions[id(one)])]
        if not waiting:
            continue
        models.close()
        if "train" in stages and isinstance(mine[0].model, FineTune):
            _fine_tune(mine[0].model, options)
        if "sample" in stages or isinstance(mine[0].model, str):
            _claim(folder, mine[0])
        if "sample" in stages:
            for one in waiting:
                _draw(models, folder, one, questions[id(one)], options)
            if options.drop_checkpoints and all(_is_sampled(folder, one, questions[id(one)]) for one in mine):
                models.close()
                _drop(folder, [one.model for one in experiments])
    models.close()


def _is_sampled(folder: RunFolder, experiment: Experiment, questions: Sequence[Question]) -> bool:
    if isinstance(experiment.score, SupportScore):
        return sizes_path(folder, experiment).exists()
    if isinstance(experiment.score, ExactScore):  # nothing is drawn; the model is needed until it is scored
        return found_records(folder, experiment) is not None
    return not missing(folder, experiment, questions)


def _fine_tune(model: FineTune, options: _Options) -> None:
    def at(what: str, done: int, total: int) -> None:
        if options.progress is not None:
            options.progress(f"train {what}, seed {model.seed}", done, total)

    fine_tune(model, options.root, device=options.device, skip_bad=options.skip_bad, progress=at)


def _claim(folder: RunFolder, experiment: Experiment) -> None:
    """Make the folder of a model taken as it is; the folder of a trained model must be there."""
    if isinstance(experiment.model, str):
        config = {"name": experiment.name, "model": {"model": experiment.model, "loss": ""}}
        folder.claim(config, environment(), decides=("model",))
    elif not folder.is_trained:
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run the stage `train` first")


def _draw(
    models: Models, folder: RunFolder, experiment: Experiment, questions: Sequence[Question], options: _Options
) -> None:
    if isinstance(experiment.score, SupportScore):
        measure_support(models, folder, experiment, questions, progress=options.progress)
    elif isinstance(experiment.score, ExactScore):
        return
    elif not sample(models, folder, experiment, questions, progress=options.progress, notice=options.notice):
        options.notice(
            f"{experiment.name}: none of the servers serves {experiment.base} ({folder.path}); it is skipped"
        )


def _drop(folder: RunFolder, models: Sequence[Any]) -> None:
    """Remove the weights, unless another model of this run starts from them."""
    starts = {model.after.folder_name for model in models if isinstance(model, FineTune) and model.after is not None}
    if folder.path.name not in starts:
        shutil.rmtree(folder.checkpoint, ignore_errors=True)


def _score(
    experiments: Sequence[Experiment], questions: dict[int, list[Question]], options: _Options
) -> list[tuple[Experiment, list[Record]]]:
    """Score every experiment that is ready, and name the others."""
    scored = []
    with Judges(options.root) as judges:
        for done, experiment in enumerate(experiments):
            folder, mine = folder_of(options.root, experiment), questions.get(id(experiment), [])
            records = found_records(folder, experiment)
            if records is None and not _is_ready(folder, experiment, mine):
                lacks = "no trained model is" if isinstance(experiment.score, ExactScore) else "not all samples are"
                options.notice(
                    f"{experiment.name}, seed {experiment.model_seed}: {lacks} in {folder.path}; not in the table"
                )
                continue
            if options.progress is not None and isinstance(experiment.score, ExactScore):
                options.progress("score", done, len(experiments))
            scored.append((experiment, records or _new_records(folder, experiment, mine, options, judges)))
    if not scored:
        raise FileNotFoundError(f"nothing to score in {options.root}: run the stages `train` and `sample` first")
    return scored


def found_records(folder: RunFolder, experiment: Experiment) -> list[Record] | None:
    """The records of an experiment that are on disk, or None if some are missing."""
    if isinstance(experiment.score, ExactScore):
        return read_records(folder, score_name(experiment))
    return Sampled(experiment).read(folder)


def _is_ready(folder: RunFolder, experiment: Experiment, questions: Sequence[Question]) -> bool:
    if isinstance(experiment.score, ExactScore):
        return folder.is_trained or isinstance(experiment.model, str)
    return _is_sampled(folder, experiment, questions)


def _new_records(
    folder: RunFolder, experiment: Experiment, questions: Sequence[Question], options: _Options, judges: Judges
) -> list[Record]:
    """Score one experiment and write its records."""
    device, progress = options.device, options.progress
    if isinstance(experiment.score, ExactScore):
        return score_listed(folder, experiment, questions, device=device, progress=progress)
    if isinstance(experiment.score, KnnScore):
        return score_neighbours(folder, experiment, questions, root=options.root, device=device, progress=progress)
    if isinstance(experiment.score, ProgramScore):
        return score_programs(folder, experiment, questions, judges=judges, progress=progress)
    return score_support(folder, experiment)


def score_listed(
    folder: RunFolder,
    experiment: Experiment,
    questions: Sequence[Question] = (),
    *,
    device: str,
    progress: StageProgress | None = None,
) -> list[Record]:
    """Exact records: those on disk, or new ones."""
    found = found_records(folder, experiment)
    if found is None:
        found = score_exactly(folder, experiment, questions, device=device, progress=progress)
        write_records(folder, score_name(experiment), found)
    return found


def _tabulate(
    name: str, scored: Sequence[tuple[Experiment, list[Record]]], options: _Options, command: str
) -> list[Row]:
    """The table, also as CSV; support sizes have rows of their own in it, which figure ``histo`` reads."""
    rows = summarise(name, scored)
    cells = [row.cells() for row in rows]
    for experiment, _ in scored:
        if isinstance(experiment.score, SupportScore):
            cells += [
                {"recipe": name, "name": experiment.name, "mass": mass, "quantile": quantile, "tokens": tokens}
                for mass, quantile, tokens in size_quantiles(folder_of(options.root, experiment), experiment)
            ]
    made = {
        content_hash(env): env for experiment, _ in scored if (env := _made_with(folder_of(options.root, experiment)))
    }
    text = to_csv(cells, command=command, env=environment(), models=list(made.values()))
    write_text(table_path(options.root, name), text)
    if best := _best(scored):
        cells = [cell for row in best for cell in row.cells(name)]
        write_text(best_path(options.root, name), best_csv(cells, command=command, env=environment()))
    return rows


def _best(scored: Sequence[tuple[Experiment, list[Record]]]) -> list[MethodBest]:
    """The best setting of each method; none unless all have exact scores under the same decodings, and more than temperatures."""
    specs = {experiment.decoding for experiment, _ in scored}
    exact = all(isinstance(experiment.score, ExactScore) for experiment, _ in scored)
    if not exact or len(specs) > 1 or all(Decoding.parse(spec).temperature_alone for spec in next(iter(specs))):
        return []
    methods: dict[str, list[Record]] = {}
    for experiment, records in scored:
        methods.setdefault(experiment.name, []).extend(records)
    return best_of_methods(methods)


def best_settings(
    name: str, experiments: Sequence[Experiment], root: str | Path, *, seeds: int | None = None
) -> list[MethodBest]:
    """The best setting of each method of a recipe, from the scores on disk; empty for recipes that vary the temperature alone."""
    found = [(one, found_records(folder_of(root, one), one)) for one in first_seeds(name, experiments, seeds)]
    return _best([(one, records) for one, records in found if records is not None])


def best_path(root: str | Path, name: str) -> Path:
    """Where the best settings of a recipe are."""
    return Path(root) / f"{name.replace(':', '_')}_best.csv"


def table_path(root: str | Path, name: str) -> Path:
    """Where the table of a recipe is."""
    return Path(root) / f"{name.replace(':', '_')}.csv"


def _made_with(folder: RunFolder) -> dict[str, Any]:
    """The machine and the versions that a model was made with, which may differ from the table's."""
    path = folder.path / "env.json"
    return {key: value for key, value in folder.read(path).items() if key != "schema"} if path.exists() else {}
