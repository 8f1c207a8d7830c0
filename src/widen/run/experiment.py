"""An experiment as a value: the model and its training, the decoding, the score, and the paper's numbers.

A recipe is a function that returns experiments; a config file is the JSON of one. Seeds of one setting share a name. Experiments that
need the same model share its folder, which is named by a hash of what determines the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from widen.data.listed import listed_task
from widen.data.mulmod import MulMod
from widen.disk.digest import file_digest
from widen.losses import spec
from widen.sample.decoding import Decoding, Settings
from widen.sample.grid import TEMPERATURES, parse_decodings
from widen.theory.steps import as_steps
from widen.train.settings import Configuration

from .finetune.config import FineTune, Source, is_finetune
from .score_settings import SCORES, ExactScore, KnnScore, Score, SlotScore
from .value import NEWER, content_hash, file_name, from_json, read_config, set_key, to_json


@dataclass(frozen=True, kw_only=True)
class Published:
    """The paper's numbers for one decoding, between 0 and 1, by metric."""

    where: str
    decoding: str = "t=1"
    values: dict[str, float] = field(default_factory=dict)
    claim: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One model, how it is sampled and how it is scored.

    Args:
      name: the name in tables; seeds of one setting share it.
      model: a `Configuration` (a small model trained from scratch on a task with listed answers), a `FineTune`, or the folder or hub
        name of a model to use as it is. If there is one folder per seed, its name ends in ``-seed<n>``.
      start: checkpoint folder that a small model starts from; None starts from random weights.
      prompts: examples whose prompts a real model continues, with what scoring needs: completions, answers, tests.
      num_prompts: use the first N of them; None uses all.
      num_samples: continuations per prompt.
      decoding: specs of `widen.sample.Decoding`; ``grid`` stands for `widen.sample.decoding_grid`. Default: t = 1, or `TEMPERATURES` for
        exact scores.
      template: text around each prompt, with ``{prompt}`` in it.
      chat: apply the model's chat template.
      stop: strings that end an answer.
      dtype: of the weights while sampling.
      seed: of the samples.
      score: `ExactScore` for a small model; default for a real one: `KnnScore`.
      not_in_paper: choices that the paper leaves open, each with our value and the reason.

    Examples:
      >>> one = Experiment(name="c-Div 1.4", model=Configuration(data=MulMod(), loss="cdiv:alpha=1.4"))
      >>> one.task, one.score.kind, one.key == replace(one, name="another name").key
      ('mulmod', 'exact', True)
      >>> two = Experiment(name="as it is", model="gpt2", prompts=Source(path="test.jsonl"), decoding=("t=0.50",))
      >>> two.decoding, two.loss, experiment_from(to_json(two)) == two
      (('t=0.5',), '', True)
    """

    name: str
    model: Configuration | FineTune | str = field(default_factory=lambda: Configuration(data=MulMod()))
    start: str | None = None
    prompts: Source | None = None
    num_prompts: int | None = None
    num_samples: int = 1
    decoding: tuple[str, ...] = ()
    max_tokens: int = 256
    template: str = "{prompt}"
    chat: bool = False
    stop: tuple[str, ...] = field(default=(), metadata=NEWER)
    dtype: str = "bfloat16"
    seed: int = 0
    score: Score = None  # type: ignore[assignment]  # chosen in __post_init__
    published: tuple[Published, ...] = ()
    not_in_paper: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        small, asked = isinstance(self.model, Configuration), self.prompts
        if self.score is None:
            object.__setattr__(self, "score", ExactScore() if small else KnnScore())
        specs = self.decoding or (tuple(f"t={t:g}" for t in TEMPERATURES) if small else ("t=1",))
        object.__setattr__(self, "decoding", tuple(one.spec for one in _parsed(tuple(specs))))
        if isinstance(self.score, ExactScore):
            for one in _parsed(self.decoding):
                as_steps(one.exact_steps)  # refuses what has no exact score
        if isinstance(self.model, Configuration):
            # One spelling per loss, so that equal losses compare equal: "gold" is stored as c-Div.
            object.__setattr__(self, "model", replace(self.model, loss=spec(self.model.loss)))
            if not isinstance(self.score, ExactScore) or asked is not None:
                raise ValueError(f"{self.name}: a small model is scored exactly on its own task, without prompts")
            size, data = self.model.model.vocab, self.model.data
            if size != data.vocab:
                raise ValueError(f"model.vocab={size}: the task {data.task} has {data.vocab} tokens; set it to that")
            return
        if asked is None:
            raise ValueError(f"{self.name}: a real model needs prompts")
        if isinstance(self.score, ExactScore) and asked.task != "answers":
            raise ValueError(
                f"{self.name}: prompts.task={asked.task!r}: exact scores need every right answer, so the task must be 'answers'"
            )
        if isinstance(self.score, SlotScore) and asked.task != "e2e":
            raise ValueError(f"{self.name}: prompts.task={asked.task!r}: slots can be scored of the task 'e2e' only")
        if self.start is not None:
            raise ValueError(f"start={self.start!r} is for small models; a real one starts from its model, or after")
        if "{prompt}" not in self.template:
            raise ValueError(f"template={self.template!r}: must say where the prompt goes, as {{prompt}}")
        if self.num_samples < 1 or (self.num_prompts is not None and self.num_prompts < 1):
            raise ValueError(f"num_samples={self.num_samples}, num_prompts={self.num_prompts}: at least 1 each")
        most = max(getattr(self.score, "ks", ()), default=1)
        if self.num_samples < most:
            raise ValueError(f"num_samples={self.num_samples}: pass@{most} needs as many samples per prompt")

    @property
    def settings(self) -> tuple[Settings, ...]:
        """How samples are drawn, one per decoding."""
        return tuple(
            Settings(decoding=one, max_tokens=self.max_tokens, seed=self.seed, stop=self.stop)
            for one in _parsed(self.decoding)
        )

    @property
    def task(self) -> str:
        """What the model is scored on."""
        if isinstance(self.model, Configuration):
            return str(self.model.data.task)
        assert self.prompts is not None
        return self.prompts.task

    @property
    def loss(self) -> str:
        """The spec of the training loss; empty for a model that is used as it is."""
        return "" if isinstance(self.model, str) else str(self.model.loss)

    @property
    def data(self) -> object:
        """What the model learns from, whatever the seed of its sample; None for a model that is used as it is."""
        if isinstance(self.model, Configuration):
            return replace(self.model.data, seed=0)
        return self.model.train if isinstance(self.model, FineTune) else None

    @property
    def base(self) -> str:
        """The model's name without folder or owner."""
        if isinstance(self.model, Configuration):
            return f"llama-{self.model.model.layers}x{self.model.model.dim}"
        return Path(self.model.model if isinstance(self.model, FineTune) else self.model).name

    @property
    def base_of_all_seeds(self) -> str:
        """`base`, as all seeds of a setting share it."""
        return self._without_seed(self.base)

    @property
    def model_seed(self) -> int:
        """The seed of the training, or of the samples for a model that is used as it is."""
        return self.seed if isinstance(self.model, str) else self.model.seed

    @property
    def key(self) -> str:
        """Hash of what determines the trained model."""
        if isinstance(self.model, FineTune):
            return self.model.key
        if isinstance(self.model, str):
            return content_hash(self.model)
        return content_hash(self.model, None if self.start is None else _content(self.start))

    @property
    def folder_name(self) -> str:
        """Name of the run folder, one per model."""
        if isinstance(self.model, FineTune):
            return self.model.folder_name
        if isinstance(self.model, str):
            return f"{file_name(Path(self.model).name)}-as-it-is-{self.key}"
        return f"{file_name(self.loss)[:60]}-seed{self.model.seed}-{self.key}"

    @property
    def setting(self) -> str:
        """Hash of everything except the seeds."""
        model = to_json(self.model)
        if isinstance(model, dict):
            model = {**model, "seed": 0} | ({"data": {**model["data"], "seed": 0}} if "data" in model else {})
        else:
            model = self._without_seed(model)
        return content_hash(model, {**to_json(self), "model": None, "seed": 0})

    def _without_seed(self, name: str) -> str:
        """A model that is used as it is may have one folder per seed, such as ``soup-seed0`` for ``seed=0``: they are one setting."""
        return name.removesuffix(f"-seed{self.seed}") if isinstance(self.model, str) else name


@lru_cache(maxsize=1024)
def _parsed(specs: tuple[str, ...]) -> tuple[Decoding, ...]:
    return parse_decodings(specs)


def _content(start: str) -> str:
    """Digest of the checkpoint that a small model starts from."""
    path = Path(start) / "model.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"start={start}: there is no model.safetensors in that folder")
    return file_digest(path)


def experiment_from(data: Any) -> Experiment:
    """An experiment from JSON data; ``score.kind`` selects the score, ``model.data.task`` the task."""
    return from_json(Experiment, data, readers={"model": _model_from, "score": _score_from})


def _model_from(data: Any) -> Configuration | FineTune | str:
    if isinstance(data, str):
        return data
    if is_finetune(data):
        return from_json(FineTune, data, where="model")
    if not isinstance(data, dict):
        raise ValueError(f"model: expected a name, or the keys of FineTune or Configuration, got {data!r}")
    return from_json(Configuration, {"data": {}, **data}, where="model", readers={"data": _task_from})


def _task_from(data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"model.data: expected an object with the keys of a task, got {data!r}")
    task = data.get("task", "mulmod")
    fields = {key: value for key, value in data.items() if key != "task" or task != "mulmod"}
    return from_json(listed_task(task), fields, where="model.data")


def _score_from(data: Any) -> Score:
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in SCORES:
        raise ValueError(f"score={data!r}: an object whose kind is one of {', '.join(SCORES)}")
    return from_json(SCORES[kind], data, where="score")  # type: ignore[no-any-return]


def load(path: str | Path) -> Experiment:
    """The experiment of a config file, or of the config.json of a run folder."""
    data = read_config(path)
    try:
        return experiment_from(data.get("experiment", data) if isinstance(data, dict) else data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def with_changes(experiment: Experiment, changes: Mapping[str, str]) -> Experiment:
    """The experiment with dotted keys changed, as in ``{"model.train.steps": "100"}``. Values are JSON or plain words.

    >>> with_changes(Experiment(name="x"), {"model.seed": "3"}).model.seed
    3
    """
    data = to_json(experiment)
    for dotted, text in changes.items():
        set_key(data, dotted, text)
    return experiment_from(data)
