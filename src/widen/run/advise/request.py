"""What the user asks for, as a value, and the experiments that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from widen.data.rows import needs_of
from widen.data.tasks import task
from widen.disk.digest import file_digest
from widen.losses import REF_LOGQ, parse, spec
from widen.sample.decoding import Decoding
from widen.sample.grid import decoding_grid

from ..experiment import Experiment
from ..finetune.config import FineTune, Lora, Source, micro_batch_for
from ..finetune.defaults import precision_for
from ..grow import Growth
from ..score_settings import CheckerScore, ExactScore, KnnScore, ProgramScore, Score
from ..scoring.checked import Checker
from ..value import NEWER, to_json
from .split import Splits
from .wish import Wish

LOSSES = ("nll", "truncr:drop=0.1", "cdiv:alpha=1.4,cap=10", "gem:beta=0.7")
"""Losses that are tried by default. NLL is the baseline; if time is short, the last ones are left out first."""
NLL_FIRST = 0.25
"""Other losses start after this share of the steps with NLL: their weights need a model that knows the task a little."""
CHECKS = 5
"""NLL is evaluated about so many times during its training; every evaluation has a checkpoint."""
PROGRAM_TASKS = ("mathqa_python", "mbpp", "humaneval", "codecontests")
EXACT_GRID = decoding_grid(
    temperatures=(0.3, 0.42, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8),
    min_p=(0.004, 0.02, 0.05, 0.1, 0.2),
    heats=(1.0, 1.5, 2.0, 3.0, 5.0),
    min_p_after=(0.05, 0.1),
    heats_before=(1.5, 2.0),
    top_p=(0.9, 0.95),
    top_p_heats=(1.0, 1.5, 2.0),
)
"""For nearly every temperature t, both grids also have about 1.4 t: there NLL has the optimum that c-Div 1.4 and GEM 0.7 have at t.
For the same reason this one has about m^1.4 for nearly every min-p m."""
SAMPLED_GRID = decoding_grid(
    temperatures=(0.35, 0.5, 0.7, 1.0, 1.4),
    min_p=(0.05, 0.1),
    heats=(1.0, 1.5, 2.0),
    min_p_after=(0.1,),
    heats_before=(1.5,),
    top_p=(0.9,),
    top_p_heats=(1.0,),
)
"""Fewer decodings than for exact scores: each one draws samples of its own."""
GROWN = "grown"
"""The folder of the growth, and a word in the name of its model."""
GROWN_NUM, GROWN_SAMPLES = 16, 8192
"""Most samples of a training prompt, and of all of them, in the search for new right answers."""
GROWN_TRAINING: tuple[str, ...] = (
    "save_dtype",
    "seed",
    "lr",
    "batch_size",
    "micro_batch",
    "precision",
    "lora",
    "max_steps",
    "schedule",
    "evaluate",
    "eval_steps",
    "patience",
)
"""Settings of NLL that its training on the new answers keeps."""


def check_every(steps: int) -> int:
    """Steps between two evaluations of NLL."""
    return max(1, steps // CHECKS)


def grown_num(splits: Splits) -> int:
    """Samples of each training prompt in the search for new right answers."""
    return max(1, min(GROWN_NUM, GROWN_SAMPLES // splits.counts["train"]))


@dataclass(frozen=True, kw_only=True)
class AdviceRequest:
    """A model, data, a wish and a budget.

    Args:
      data: file or hub name with records of ``task``; it is split by prompt.
      checker: ``FILE.py:FUNCTION`` that decides which answers are right.
      embedder: model whose features compare answers with the completions of the data.
      budget: seconds.
      losses: specs; NLL is added if it is missing.
      lora: rank of an adapter; None trains all weights.
      num: samples per prompt. For listed answers nothing is drawn, and recall is the share of right answers expected in ``num`` samples.
      max_tokens: of a sample; None takes twice the longest completion of the data.
      chat: ask through the chat template, with the prompt as the user's message, and train on the answer as the assistant's.
      device: not part of what is asked; float32 on a CPU, bfloat16 on a GPU.
    """

    model: str
    data: str
    wish: str
    budget: float
    task: str = "jsonl"
    checker: str | None = None
    embedder: str | None = None
    losses: tuple[str, ...] = LOSSES
    lora: int | None = None
    num: int | None = None
    max_tokens: int | None = None
    batch_size: int = 8
    lr: float | None = None
    seed: int = 0
    device: str = "cpu"
    chat: bool = field(default=False, metadata=NEWER)

    def __post_init__(self) -> None:
        task(self.task)
        if self.checker is not None and self.embedder is not None:
            raise ValueError(f"checker={self.checker!r}, embedder={self.embedder!r}: give one of them")
        if self.task == "answers" and (self.checker or self.embedder):
            raise ValueError(
                "task='answers' lists every right answer and is scored exactly: leave out checker and embedder"
            )
        for name in ("lora", "num", "max_tokens", "batch_size"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")
        losses = dict.fromkeys(spec(loss) for loss in ("nll", *self.losses))
        object.__setattr__(self, "losses", tuple(losses))
        if wrong := [loss for loss in losses if REF_LOGQ in needs_of(parse(loss))]:
            raise ValueError(f"losses: {wrong[0]} compares with a reference model, which advise does not have")
        for loss in losses:  # refuses what the training cannot do, before the data is split
            FineTune(model=self.model, train=Source(path="train.jsonl"), loss=loss, lr=self.lr, seed=self.seed)
        legal = {"exact": ("precision", "recall"), "knn": ("precision", "recall", "coverage")}.get(self.score.kind)
        if legal is None:
            legal = ("precision", "recall", *(f"pass@{k}" for k in self._ks))
            legal += ("coverage",) if self.score.kind == "checker" else ()
        if wrong := [name for name in (self.parsed.goal, self.parsed.bound) if name not in legal]:
            raise ValueError(f"wish={self.wish!r}: this score has no {wrong[0]}; it has {', '.join(legal)}")

    @cached_property
    def parsed(self) -> Wish:
        """The wish; with listed answers, coverage is another word for recall."""
        wish = Wish.parse(self.wish)
        if self.task != "answers":
            return wish
        names = {name: "recall" if name == "coverage" else name for name in (wish.goal, wish.bound)}
        return replace(wish, goal=names[wish.goal], bound=names[wish.bound])

    @property
    def num_samples(self) -> int:
        """Samples per prompt."""
        default = 100 if self.task == "answers" else 1 if self.embedder else max(16, *self.parsed.ks, 1)
        return default if self.num is None else self.num

    @property
    def _ks(self) -> tuple[int, ...]:
        ks = tuple(sorted({1, *self.parsed.ks, self.num_samples}))
        if ks[-1] > self.num_samples:
            raise ValueError(f"num={self.num_samples}: pass@{ks[-1]} needs at least {ks[-1]} samples per prompt")
        return ks

    @cached_property
    def score(self) -> Score:
        """How answers are scored."""
        if self.task == "answers":
            return ExactScore(lams=(), num_samples=self.num_samples)
        if self.checker is not None:
            return CheckerScore(checker=self.checker, digest=file_digest(Checker.parse(self.checker).file), ks=self._ks)
        if self.embedder is not None:
            return KnnScore(embedder=self.embedder, samples=None)
        if self.task in PROGRAM_TASKS:
            return ProgramScore(ks=self._ks)
        raise ValueError(
            f"task={self.task!r}: nothing says which answers are right; give a checker (--checker FILE.py:FUNCTION), an embedder "
            f"(--embedder MODEL), or data of the task answers, {', '.join(PROGRAM_TASKS)}"
        )

    @property
    def judged(self) -> bool:
        """Whether a judge can recognise right answers that the data does not have."""
        return isinstance(self.score, (CheckerScore, ProgramScore))

    @property
    def grid(self) -> tuple[Decoding, ...]:
        """The decodings that every model is tried with."""
        return EXACT_GRID if self.task == "answers" else SAMPLED_GRID

    def fine_tune(self, loss: str, steps: int, splits: Splits) -> FineTune:
        """The training of one candidate.

        NLL stops early if the NLL of the validation prompts rises, and keeps the best model. Other losses start with NLL.
        """
        watched, first = {}, int(NLL_FIRST * steps)
        if loss != "nll" and first and " then " not in loss:
            loss = f"nll:steps={first} then {loss}"
        if loss == "nll":
            watched = {"evaluate": splits.watch, "eval_steps": check_every(steps), "patience": 2}
        return FineTune(
            model=self.model,
            train=splits.train,
            loss=loss,
            lora=None if self.lora is None else Lora(rank=self.lora),
            precision=precision_for(self.device),
            max_steps=steps,
            batch_size=self.batch_size,
            micro_batch=micro_batch_for(self.batch_size),
            lr=self.lr,
            schedule="cosine_with_min_lr",
            seed=self.seed,
            save_dtype="auto",
            **watched,  # type: ignore[arg-type]
        )

    def growth(self, nll: str, steps: int, splits: Splits, *, max_tokens: int) -> Growth:
        """One round of growth: the NLL model is sampled, and NLL trains on the data and what was found, from the model as it is."""
        config = to_json(self.fine_tune("nll", steps, splits))
        training = {name: config[name] for name in GROWN_TRAINING if config[name] is not None}
        return Growth(
            model=nll,
            prompts=splits.prompts,
            chat=self.chat,
            checker=self.checker or "",
            rounds=1,
            num=grown_num(splits),
            held_out_num=grown_num(splits),
            max_tokens=max_tokens,
            start=self.model,
            dtype="float32" if self.device == "cpu" else "bfloat16",
            seed=self.seed,
            training=training,
        )

    def experiment(
        self, model: FineTune | str, prompts: Source, decodings: Sequence[Decoding], *, max_tokens: int
    ) -> Experiment:
        """One model, scored on the prompts of one split. A folder is the model as it is, an average by its name, or a grown model."""
        if isinstance(model, str):
            own = f"nll, {GROWN}" if GROWN in Path(model).parts else Path(model).name
            name = "as it is" if model == self.model else own
        else:
            name = f"{str(model.loss).split(' then ')[-1]}, {model.max_steps} steps"
        return Experiment(
            name=name,
            model=model,
            prompts=prompts,
            num_samples=1 if self.task == "answers" else self.num_samples,
            decoding=tuple(one.spec for one in decodings),
            max_tokens=max_tokens,
            chat=self.chat,
            dtype="float32" if self.device == "cpu" else "bfloat16",
            seed=self.seed,
            score=self.score,
        )
