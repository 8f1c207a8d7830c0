"""An experiment as a value: what is trained, how it is scored, and what the paper printed for it. JSON and back.

A recipe is a function that returns experiments; a config file is the JSON of one. Two experiments that train the same model share it:
`Experiment.key` names the model by the content of what makes it, and GOLD is c-Div at 1/2 by construction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from widen.disk.digest import file_digest
from widen.losses import parse
from widen.train.settings import Configuration

from .value import content_hash, from_json, read_config, to_json

TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)
"""Twenty temperatures over the paper's [0.1, 5]."""


@dataclass(frozen=True, kw_only=True)
class ExactScore:
    """Exact precision and recall on the whole support, from one pass.

    Args:
      temperatures: at each of them; t = 0 and inf are limits.
      lams: points of the PR curve to report besides its ends.
      num_samples: N of the paper's sampled recall, whose expectation is reported. The paper does not state N; it sets which point of
        the curve the number is near (lambda = |Supp P| / N).
      average: score the averaged weights where the training kept an average.
    """

    temperatures: tuple[float, ...] = TEMPERATURES
    lams: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0)
    num_samples: int = 20_000
    average: bool = True

    def __post_init__(self) -> None:
        if not self.temperatures:
            raise ValueError("temperatures is empty: give at least one")
        if any(not t >= 0 for t in self.temperatures):
            raise ValueError(f"temperatures={self.temperatures}: each must be at least 0")
        if any(not lam >= 0 for lam in self.lams):
            raise ValueError(f"lams={self.lams}: each must be at least 0")
        if self.num_samples < 1:
            raise ValueError(f"num_samples={self.num_samples}: must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the paper prints for this experiment, and where."""

    where: str
    claim: str = ""
    precision: float | None = None
    recall: float | None = None


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One model of the integer task, how it is scored, and what the paper says.

    Args:
      name: what it is called in tables and pages; several seeds of one setting share it.
      model: data, architecture, loss, training and seed.
      start: folder of a checkpoint to start from; None starts from the seed.
      published: the paper's number or claim.
      not_in_paper: choices the paper leaves open, each with our value and why.

    Examples:
      >>> experiment = Experiment(name="c-Div 1.4", model=Configuration(loss="cdiv:alpha=1.4"))
      >>> from_json(Experiment, to_json(experiment)) == experiment
      True
      >>> experiment.key == replace(experiment, name="another name").key
      True
    """

    name: str
    model: Configuration = field(default_factory=Configuration)
    start: str | None = None
    score: ExactScore = field(default_factory=ExactScore)
    published: Published | None = None
    not_in_paper: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # One spelling a loss, so that equal losses are equal values: "gold" is stored as the c-Div that it is.
        object.__setattr__(self, "model", replace(self.model, loss=str(parse(self.model.loss))))

    @property
    def key(self) -> str:
        """The trained model, by the content of what determines it."""
        return content_hash(self.model, _content(self.start))

    @property
    def folder_name(self) -> str:
        """Readable and unique: loss, seed and key."""
        loss = "".join(c if c.isalnum() or c in ".=-" else "_" for c in str(self.model.loss))[:60]
        return f"{loss}-seed{self.model.seed}-{self.key}"


def _content(start: str | None) -> str | None:
    """The checkpoint that an experiment starts from, by its bytes: moving the folder does not change the experiment."""
    if start is None:
        return None
    path = Path(start) / "model.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"start={start}: there is no model.safetensors in that folder")
    return file_digest(path)


def load(path: str | Path) -> Experiment:
    """The experiment of a config file."""
    data = read_config(path)
    if isinstance(data, dict) and "experiment" in data:
        data = data["experiment"]  # the config.json of a run folder
    try:
        return from_json(Experiment, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def with_changes(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """``{"model.train.steps": "100"}`` applied: how flags change a config. Values are JSON, or plain words.

    >>> with_changes(Experiment(name="x"), {"model.seed": "3"}).model.seed
    3
    """
    data = to_json(experiment)
    for dotted, text in changes.items():
        *path, last = dotted.split(".")
        place: Any = data
        for step in path:
            place = place.get(step) if isinstance(place, dict) else None
            if place is None:
                raise ValueError(f"unknown key {dotted!r}: there is no {step!r} in an experiment")
        try:
            place[last] = json.loads(text)
        except json.JSONDecodeError:
            place[last] = text
    return from_json(Experiment, data)
