"""The score stage: exact precision and recall of a trained model at every temperature, kept as JSON; what is there is not done again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from widen.metrics.exact import VERSION, ExactPoint, exact_points
from widen.models.convert import load_pretrained
from widen.models.likelihood import log_likelihood

from .experiment import Experiment
from .folder import RunFolder
from .value import content_hash, from_json, to_json

Progress = Callable[[str, int, int], None]
"""Called with a sentence, how much is done, and of how much."""


def settings_name(experiment: Experiment) -> str:
    """The name of the scores file: the settings that define the numbers, and their version."""
    return f"exact-{content_hash(experiment.score, VERSION)}"


def read(folder: RunFolder, experiment: Experiment) -> list[ExactPoint] | None:
    """The points on disk for these settings, or None."""
    path = folder.scores(settings_name(experiment))
    if not path.exists():
        return None
    return [from_json(ExactPoint, point) for point in folder.read(path)["points"]]


def score(folder: RunFolder, experiment: Experiment, *, device: str = "cpu") -> list[ExactPoint]:
    """Score one trained model, or read what was scored before."""
    done = read(folder, experiment)
    if done is not None:
        return done
    if not (folder.checkpoint / "config.json").exists():
        raise FileNotFoundError(f"{folder.path} has no trained model yet: run `widen train` or `widen run` first")
    model, task, settings = load_pretrained(folder.checkpoint), experiment.model.data, experiment.score
    log_q_TS = log_likelihood(model.to(device), task.support(), settings.temperatures)
    points = exact_points(
        task.log_p(), log_q_TS, temperatures=settings.temperatures, lams=settings.lams, num_samples=settings.num_samples
    )
    content = {"kind": "exact", "version": VERSION, "settings": to_json(settings), "points": to_json(points)}
    folder.write(folder.scores(settings_name(experiment)), content)
    return points


def score_all(
    folders: Sequence[tuple[RunFolder, Experiment]], *, device: str = "cpu", progress: Progress | None = None
) -> list[tuple[Experiment, list[ExactPoint]]]:
    """Score each in turn."""
    scored = []
    for done, (folder, experiment) in enumerate(folders):
        if progress is not None:
            progress(f"score {experiment.name}", done, len(folders))
        scored.append((experiment, score(folder, experiment, device=device)))
    if progress is not None:
        progress("score", len(folders), len(folders))
    return scored
