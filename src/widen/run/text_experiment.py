"""An experiment on texts as a value: which model, what it is asked, how it is sampled, how it is scored, what the paper printed.

A recipe on texts returns a list of these. The model is a `FineTune`, trained when it is not there yet, or the name of a model that is
taken as it is. Several seeds of one setting share a name; several experiments may share a model, and then it is trained and loaded once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from widen.losses import parse
from widen.losses.cdiv import CDiv
from widen.sample.decoding import Decoding, Settings

from .finetune import FineTune, Source
from .value import content_hash, from_json, read_config


@dataclass(frozen=True, kw_only=True)
class KnnScore:
    """k-NN precision and recall of texts, the paper's way (App., "Precision and Recall for the WritingPrompts Task").

    The references are the completions of the very examples whose prompts were continued.

    Args:
      embedder: turns texts into features; the mean over tokens, scaled to length 1, joint PCA to 90 % of the variance, open balls.
      samples: texts taken of each set; None takes all.
      k: neighbours.
      mauve: MAUVE as well, in the same space.
    """

    kind: str = "knn"
    embedder: str = "gpt2-large"
    samples: int | None = 2000
    k: int = 4
    mauve: bool = False


@dataclass(frozen=True, kw_only=True)
class ProgramScore:
    """pass@k of programs that are really run; precision is pass@1, recall what the largest k adds to it.

    Args:
      ks: numbers of tries; as many samples as the largest are needed of every problem.
      fenced: the program is the first block between ``` marks, where there is one: how chat models answer.
      wall_seconds, cpu_seconds, memory_mib: of one program, all its tests together.
    """

    kind: str = "programs"
    ks: tuple[int, ...] = (1, 10, 100)
    fenced: bool = False
    wall_seconds: float = 10.0
    cpu_seconds: int = 10
    memory_mib: int = 512


@dataclass(frozen=True, kw_only=True)
class SupportScore:
    """How few tokens hold the mass, in the eyes of the model, along the completions of the examples. Nothing is sampled.

    Args:
      masses: shares of the next-token law.
      quantiles: over all positions of all samples: the lines of figure ``histo``.
      max_length: tokens of an example at most.
    """

    kind: str = "support"
    masses: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
    quantiles: tuple[float, ...] = (0.01, *(i / 20 for i in range(1, 20)), 0.99)
    max_length: int = 2048


Score = KnnScore | ProgramScore | SupportScore
SCORES: dict[str, type[Any]] = {"knn": KnnScore, "programs": ProgramScore, "support": SupportScore}


@dataclass(frozen=True, kw_only=True)
class PublishedAt:
    """What the paper prints for one decoding setting: shares of 1 by the name of the score (precision, recall, mauve, ...)."""

    where: str
    decoding: str = "t=1"
    values: dict[str, float] = field(default_factory=dict)
    claim: str = ""


@dataclass(frozen=True, kw_only=True)
class TextExperiment:
    """One model, sampled on prompts and scored.

    Args:
      name: what it is called in tables; seeds of one setting share it.
      model: how it is trained, or the folder or hub name of a model that is taken as it is.
      prompts: examples whose prompts are continued, with what scoring needs: completions, answers, tests.
      num_prompts: the first so many of them; None takes all.
      num_samples: continuations of each prompt.
      decoding: one samples file each, as specs of `widen.sample.Decoding`.
      max_tokens: of a continuation.
      template: what stands around each prompt, which goes where it says ``{prompt}``.
      chat: put that through the model's chat template.
      dtype: of the weights while sampling.
      seed: of the samples.
      score: what is measured.
      published: what the paper prints, by decoding.
      not_in_paper: choices the paper leaves open, each with our value and why.

    Examples:
      >>> from widen.run.value import to_json
      >>> source = Source(task="jsonl", path="test.jsonl")
      >>> one = TextExperiment(name="as it is", model="gpt2", prompts=source, decoding=("t=0.50",))
      >>> one.decoding, one.loss
      (('t=0.5',), '')
      >>> import json
      >>> text_experiment(json.loads(json.dumps(to_json(one)))) == one
      True
    """

    name: str
    model: FineTune | str
    prompts: Source
    num_prompts: int | None = None
    num_samples: int = 1
    decoding: tuple[str, ...] = ("t=1",)
    max_tokens: int = 256
    template: str = "{prompt}"
    chat: bool = False
    dtype: str = "bfloat16"
    seed: int = 0
    score: Score = field(default_factory=KnnScore)
    published: tuple[PublishedAt, ...] = ()
    not_in_paper: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoding", tuple(Decoding.parse(spec).spec for spec in self.decoding))
        if not self.decoding or len({setting.name for setting in self.settings}) != len(self.decoding):
            raise ValueError(f"decoding={self.decoding}: at least one, and no two that draw alike")
        if "{prompt}" not in self.template:
            raise ValueError(f"template={self.template!r}: must say where the prompt goes, as {{prompt}}")
        if self.num_samples < 1 or (self.num_prompts is not None and self.num_prompts < 1):
            raise ValueError(f"num_samples={self.num_samples}, num_prompts={self.num_prompts}: at least 1 each")
        if isinstance(self.score, ProgramScore) and self.num_samples < max(self.score.ks, default=1):
            raise ValueError(
                f"num_samples={self.num_samples}: pass@{max(self.score.ks)} needs as many samples a prompt"
            )

    @property
    def settings(self) -> tuple[Settings, ...]:
        """How samples are drawn, one a decoding."""
        return tuple(
            Settings(decoding=Decoding.parse(spec), max_tokens=self.max_tokens, seed=self.seed)
            for spec in self.decoding
        )

    @property
    def loss(self) -> str:
        """The loss it was trained with; empty for a model taken as it is."""
        return self.model.loss if isinstance(self.model, FineTune) else ""

    @property
    def base(self) -> str:
        """The model that was tuned or taken, without the folder or the owner before its name."""
        return Path(self.model.model if isinstance(self.model, FineTune) else self.model).name

    @property
    def folder_name(self) -> str:
        """Of its run folder: one a model."""
        if isinstance(self.model, FineTune):
            return self.model.folder_name
        plain = "".join(c if c.isalnum() or c in ".=-" else "_" for c in Path(self.model).name)
        return f"{plain}-as-it-is-{content_hash(self.model)}"

    def matched(self, temperature: float) -> float:
        """The temperature at which NLL has this model's population optimum: alpha t for c-Div(alpha), else t."""
        weight = parse(self.loss) if self.loss else None
        weight = getattr(weight, "then", weight)
        return temperature * (weight.alpha if isinstance(weight, CDiv) else 1.0)


def text_experiment(data: Any) -> TextExperiment:
    """A text experiment out of JSON data; ``model`` is an object or a name, and ``score.kind`` says which score it is."""
    if not isinstance(data, dict):
        raise ValueError(f"expected an object with the keys of TextExperiment, got {data!r}")
    model, score = data.get("model"), data.get("score", {})
    if not isinstance(score, dict) or score.get("kind", "knn") not in SCORES:
        raise ValueError(f"score={score!r}: an object whose kind is one of {', '.join(SCORES)}")
    # `from_json` reads a union by its first arm: both unions are read here, the rest through a stand-in for them.
    rest = {key: value for key, value in data.items() if key not in ("model", "score")}
    shell = from_json(TextExperiment, {**rest, "model": {"model": "-", "train": rest.get("prompts", {})}})
    return replace(
        shell,
        model=model if isinstance(model, str) else from_json(FineTune, model, where="model"),
        score=from_json(SCORES[score.get("kind", "knn")], score, where="score"),
    )


def is_text_experiment(data: Any) -> bool:
    """Whether a config's JSON is of an experiment on texts: it says what the model is asked."""
    return isinstance(data, dict) and "prompts" in data


def load_text(path: str | Path) -> TextExperiment:
    """The text experiment of a config file."""
    data = read_config(path)
    try:
        return text_experiment(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
