"""Train, sample, score: the stages of experiments on texts, together or on different machines.

    <root>/<model>/checkpoint/ samples/ scores/       one folder a model          <root>/prompts/  what was asked, and the answers
    <root>/verdicts/  features/                       shared by all models        <root>/<recipe>.csv

Train and sample want a GPU; score wants the folder without its checkpoints. What is on disk is not made again: a model whose samples
are all there is not trained, nor opened.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widen.disk.atomic import write_text
from widen.train.progress import Progress as Training

from .environment import environment
from .finetune import FineTune
from .folder import RunFolder
from .scores import Progress
from .text_experiment import KnnScore, ProgramScore, SupportScore, TextExperiment
from .text_knn import score_knn
from .text_points import TextPoint, read_points
from .text_programs import Judges, score_programs
from .text_prompts import Asked, asked_of
from .text_sampling import Models, Notice, missing, sample
from .text_support import measure_support, score_support, size_quantiles, sizes_path
from .text_table import TextRow, setting_key, summarise, to_csv
from .value import content_hash, to_json

STAGES = ("train", "sample", "score")


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How stages are run; nothing here changes what comes out. See `run_texts`."""

    device: str
    servers: tuple[str, ...]
    rows: int | None
    drop_checkpoints: bool
    skip_bad: bool
    progress: Progress | None
    tell: Notice


def run_texts(
    name: str,
    experiments: Sequence[TextExperiment],
    root: str | Path,
    *,
    command: str = "",
    device: str = "cpu",
    stages: Sequence[str] = STAGES,
    seeds: int | None = None,
    servers: Sequence[str] = (),
    rows: int | None = None,
    drop_checkpoints: bool = False,
    skip_bad: bool = False,
    progress: Progress | None = None,
    notice: Notice | None = None,
) -> list[TextRow]:
    """Run stages of experiments on texts; after the last one the table is left in ``root`` as CSV.

    Args:
      command: what made the table, for its first line.
      device: of training, sampling and embedding.
      stages: of train, sample, score.
      seeds: take only the first so many seeds of each setting.
      servers: base URLs of servers to sample from, in place of this process.
      rows: samples drawn at a time; by default what fits into memory.
      drop_checkpoints: remove a model's weights once all its samples are on disk.
      skip_bad: leave records that cannot be used out, in place of refusing to start.
      progress: called with (what, done, total).
      notice: called with a sentence that somebody should read.

    Returns:
      The rows of the table; none where scoring is not among the stages.
    """
    if unknown := [stage for stage in stages if stage not in STAGES] or (["none"] if not stages else []):
        raise ValueError(f"stages: {', '.join(unknown)}; legal: one or more of {', '.join(STAGES)}")
    ways = Ways(
        device=device,
        servers=tuple(servers),
        rows=rows,
        drop_checkpoints=drop_checkpoints,
        skip_bad=skip_bad,
        progress=progress,
        tell=notice or (lambda text: None),
    )
    chosen = _chosen(name, experiments, seeds)
    _check_names(chosen)
    asked = {id(one): asked_of(one, root, skip_bad=skip_bad) for one in chosen}
    _same_data(chosen, root)
    if "train" in stages or "sample" in stages:
        _make(chosen, asked, root, ways, stages)
    if "score" not in stages:
        return []
    return _tabulate(name, _score(chosen, asked, root, ways), root, command or f"run_texts({name!r}, ...)")


def _tabulate(
    name: str, scored: Sequence[tuple[TextExperiment, list[TextPoint]]], root: str | Path, command: str
) -> list[TextRow]:
    """The table, also as CSV; support sizes have rows of their own in it, which figure ``histo`` reads."""
    rows = summarise(name, scored)
    cells = [row.cells() for row in rows]
    for experiment, _ in scored:
        if isinstance(experiment.score, SupportScore):
            cells += [
                {"recipe": name, "name": experiment.name, "mass": mass, "quantile": quantile, "tokens": tokens}
                for mass, quantile, tokens in size_quantiles(folder_of(root, experiment), experiment)
            ]
    path = Path(root) / f"{name.replace(':', '_')}.csv"
    made = {content_hash(env): env for experiment, _ in scored if (env := _made_with(folder_of(root, experiment)))}
    write_text(path, to_csv(cells, command=command, env=environment(), models=list(made.values())))
    return rows


def _made_with(folder: RunFolder) -> dict[str, Any]:
    """The machine and the versions that a model was made with, which may be others than the table's."""
    path = folder.path / "env.json"
    return {key: value for key, value in folder.read(path).items() if key != "schema"} if path.exists() else {}


def folder_of(root: str | Path, experiment: TextExperiment) -> RunFolder:
    """One folder a model, whichever experiment asks for it."""
    return RunFolder(Path(root) / experiment.folder_name)


def _chosen(name: str, experiments: Sequence[TextExperiment], seeds: int | None) -> list[TextExperiment]:
    """Each experiment once, of the first so many seeds of its setting, as the recipe lists them."""
    once = {content_hash(one): one for one in reversed(experiments)}
    order = dict.fromkeys(content_hash(one) for one in experiments)
    kept, of_setting = [], dict[str, list[int]]()
    for one in (once[key] for key in order):
        taken = of_setting.setdefault(setting_key(one), [])
        if _seed(one) not in taken:
            taken.append(_seed(one))
        if seeds is None or _seed(one) in taken[:seeds]:
            kept.append(one)
    if not kept:
        raise ValueError(f"{name}: no experiments are left to run")
    return kept


def _seed(experiment: TextExperiment) -> int:
    return experiment.model.seed if isinstance(experiment.model, FineTune) else experiment.seed


def _check_names(experiments: Sequence[TextExperiment]) -> None:
    """Refuse, before anything starts, a recipe whose paths stand on environment variables that are not set."""
    names: set[str] = set()
    for experiment in experiments:
        names.update(re.findall(r"\$(\w+)", str(to_json([experiment.model, experiment.prompts]))))
    if unset := sorted(names):
        raise ValueError(
            f"this recipe takes its model and data from {', '.join(unset)}: set {'them' if len(unset) > 1 else 'it'} to a path "
            "(see the top of the recipe's module)"
        )


def _same_data(experiments: Sequence[TextExperiment], root: str | Path) -> None:
    """Refuse numbers of models whose training data has changed since; where it is not here they are taken as they are."""
    from .finetune_inputs import same_data

    cache: dict[Any, Any] = {}
    for model in {one.folder_name: one.model for one in experiments}.values():
        if isinstance(model, FineTune):
            same_data(model, root, cache)


def _make(
    experiments: Sequence[TextExperiment],
    asked: dict[int, list[Asked]],
    root: str | Path,
    ways: Ways,
    stages: Sequence[str],
) -> None:
    """Train and sample, model by model."""
    by_model: dict[str, list[TextExperiment]] = {}
    for experiment in experiments:
        by_model.setdefault(experiment.folder_name, []).append(experiment)
    models = Models(device=ways.device, servers=ways.servers, rows=ways.rows)
    for mine in by_model.values():
        folder = folder_of(root, mine[0])
        waiting = [one for one in mine if not _is_sampled(folder, one, asked[id(one)])]
        if not waiting:
            continue
        models.close()
        if "train" in stages and isinstance(mine[0].model, FineTune):
            _train(mine[0].model, root, ways)
        if "sample" in stages:
            _claim(folder, mine[0])
            for one in waiting:
                _draw(models, folder, one, asked[id(one)], ways)
            if ways.drop_checkpoints and all(_is_sampled(folder, one, asked[id(one)]) for one in mine):
                models.close()
                _drop(folder, [one.model for one in experiments])
    models.close()


def _is_sampled(folder: RunFolder, experiment: TextExperiment, asked: Sequence[Asked]) -> bool:
    if isinstance(experiment.score, SupportScore):
        return sizes_path(folder, experiment).exists()
    return not missing(folder, experiment, asked)


def _train(model: FineTune, root: str | Path, ways: Ways) -> None:
    from .finetuning import fine_tune

    def at(what: str, now: Training) -> None:
        if ways.progress is not None:
            ways.progress(f"train {what}, seed {model.seed}", now.step, now.steps)

    fine_tune(model, root, device=ways.device, skip_bad=ways.skip_bad, progress=at)


def _claim(folder: RunFolder, experiment: TextExperiment) -> None:
    """A trained model's folder is its own; one for a model taken as it is is made here."""
    if isinstance(experiment.model, str):
        config = {"name": experiment.name, "model": {"model": experiment.model, "loss": ""}}
        folder.claim(config, environment(), decides=("model",))
    elif not (folder.checkpoint / "config.json").exists():
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run the stage `train` first")


def _draw(models: Models, folder: RunFolder, experiment: TextExperiment, asked: Sequence[Asked], ways: Ways) -> None:
    if isinstance(experiment.score, SupportScore):
        measure_support(models, folder, experiment, asked, progress=ways.progress)
    elif not sample(models, folder, experiment, asked, progress=ways.progress, notice=ways.tell):
        ways.tell(
            f"{experiment.name}: none of the servers serves {experiment.base} ({folder.path}); left for another time"
        )


def _drop(folder: RunFolder, models: Sequence[FineTune | str]) -> None:
    """Remove the weights, unless another model of this run starts from them. Of a model taken as it is the folder has none."""
    starts = {model.after.folder_name for model in models if isinstance(model, FineTune) and model.after is not None}
    if folder.path.name not in starts:
        shutil.rmtree(folder.checkpoint, ignore_errors=True)


def _score(
    experiments: Sequence[TextExperiment], asked: dict[int, list[Asked]], root: str | Path, ways: Ways
) -> list[tuple[TextExperiment, list[TextPoint]]]:
    """Score what has all its samples; the others are named."""
    scored = []
    with Judges(root) as judges:
        for experiment in experiments:
            folder, mine = folder_of(root, experiment), asked[id(experiment)]
            points = read_points(folder, experiment)
            if points is None and not _is_sampled(folder, experiment, mine):
                ways.tell(
                    f"{experiment.name}, seed {_seed(experiment)}: not all samples are in {folder.path}; not in the table"
                )
                continue
            if points is None:
                points = _points(folder, experiment, mine, root, ways, judges)
            scored.append((experiment, points))
    if not scored:
        raise FileNotFoundError(
            f"nothing to score in {root}: no experiment has its samples there; run the stage `sample`"
        )
    return scored


def _points(
    folder: RunFolder,
    experiment: TextExperiment,
    asked: Sequence[Asked],
    root: str | Path,
    ways: Ways,
    judges: Judges,
) -> list[TextPoint]:
    if isinstance(experiment.score, KnnScore):
        return score_knn(folder, experiment, asked, root=root, device=ways.device, progress=ways.progress)
    if isinstance(experiment.score, ProgramScore):
        return score_programs(folder, experiment, asked, judges=judges, progress=ways.progress)
    return score_support(folder, experiment)
