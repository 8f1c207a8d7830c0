"""The plan: how many losses and steps fit into the budget, from short measurements of a training step and of scoring."""

from __future__ import annotations

import math
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from widen.data.tasks import read
from widen.disk.atomic_folder import flush
from widen.disk.checksums import write_checksums
from widen.sample.decoding import Decoding

from ..finetune.model_files import adapted, load_model, load_tokenizer
from ..finetune.token_data import load_data, padded
from ..runner import run
from ..score_settings import CheckerScore
from ..scoring.checked import TRIED, Checker
from ..scoring.job import ScoreTools, limits_of
from .request import AdviceRequest, check_every, grown_num
from .split import Splits

FEWEST_STEPS = 8
"""Fewest steps of a candidate."""
MOST_EPOCHS = 6
"""Most passes over the training data."""
MARGIN = 0.9
"""Share of the budget that the plan uses."""
PROBE = 4
"""Prompts of the short measurement of scoring."""
MORE = 12
"""Prompts of a second measurement for listed answers. With fewer than `PROBE`, a cost that soon stops growing would seem to grow."""
GPU_ROWS = 32
"""A GPU draws about this many times the rows of the short measurement in the same time."""
FINALISTS = 4
"""The model as it is, NLL, their average, and another loss; a grown model is one more."""
TEST_DECODINGS = 3
"""Decodings of each finalist on the test prompts: the chosen one, the best temperature alone, and t = 1."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What was measured.

    Args:
      step, score, load, test: seconds of one training step, of scoring one model on validation, of loading and saving it, of the test.
      check: seconds of one evaluation during training with its checkpoint.
      grow: seconds to look for new right answers to the training prompts; 0 if nothing can judge them.
      max_tokens: of a sample.
      parameters, memory: of the model, and bytes while it trains.
    """

    step: float
    score: float
    load: float
    test: float
    check: float
    grow: float = 0.0
    max_tokens: int
    parameters: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Plan(Timing):
    """The rungs of the search.

    Args:
      losses: that are tried, NLL first.
      rivals: number of losses besides NLL in each rung.
      steps: of training in each rung.
    """

    losses: tuple[str, ...]
    rivals: tuple[int, ...]
    steps: tuple[int, ...]

    def job(self, loss: str, steps: int) -> float:
        """Seconds to train one model and to score it. Only NLL is evaluated while it trains."""
        checks = math.ceil(steps / check_every(steps)) if loss == "nll" else 0
        return self.load + steps * self.step + checks * self.check + self.score

    @property
    def seconds(self) -> float:
        """Of everything."""
        rungs = zip(self.rivals, self.steps, strict=True)
        jobs = sum(self.job("nll", steps) + n * self.job("other", steps) for n, steps in rungs)
        return self.score + jobs + self.end

    @property
    def end(self) -> float:
        """Of what comes after the losses: the average of NLL with the model as it is, the grown model, and the test."""
        grown = self.grow + self.job("nll", self.steps[-1]) if self.grow else 0.0
        return 2 * self.load + self.score + grown + self.test


def halved(rivals: int) -> tuple[int, ...]:
    """How many losses besides NLL each rung trains.

    >>> halved(3), halved(1), halved(0)
    ((3, 2, 1), (1,), (0,))
    """
    counts = [rivals]
    while counts[-1] > 1:
        counts.append(math.ceil(counts[-1] / 2))
    return tuple(counts)


def make_plan(timing: Timing, losses: Sequence[str], *, budget: float, longest: int) -> Plan:
    """As many losses as fit with at least `FEWEST_STEPS`, and then as many steps as fit. Growth is left out last.

    Args:
      losses: NLL first; if time is short, the last ones are left out.
      budget: seconds.
      longest: most steps of the last rung.
    """
    for count in range(len(losses), 0, -1):
        for grow in (timing.grow, 0.0)[: 2 if count == 1 else 1]:
            plan_from = partial(_plan, replace(timing, grow=grow), tuple(losses[:count]))
            most = longest // 2 ** (len(halved(count - 1)) - 1)
            choices = range(FEWEST_STEPS, max(FEWEST_STEPS, most) + 1)
            fitting = bisect_right(choices, MARGIN * budget, key=lambda first: plan_from(first).seconds)
            if fitting:
                return plan_from(choices[fitting - 1])
    raise ValueError(
        f"budget: {duration(budget)} is too short; this model and data need at least "
        f"{duration(plan_from(FEWEST_STEPS).seconds / MARGIN)} "
        f"(measured: {timing.step:,.2f} s per step, {timing.score:,.0f} s to score a model)"
    )


def _plan(timing: Timing, losses: tuple[str, ...], first: int) -> Plan:
    """The plan whose first rung has so many steps."""
    rivals = halved(len(losses) - 1)
    steps = tuple(first * 2**rung for rung in range(len(rivals)))
    return Plan(losses=losses, rivals=rivals, steps=steps, **vars(timing))


def measure(request: AdviceRequest, splits: Splits) -> Timing:
    """Load the model, train three steps, evaluate and save it once, and score the model as it is on a few validation prompts.

    A checker that fails on the data's own answers, or calls them wrong, is refused first.
    """
    if request.checker is not None:
        _try_checker(request, splits)
    config = request.fine_tune("nll", 2, splits)
    data = load_data(config, config.train, {}, skip_bad=False)
    longest = max(int(mask.sum()) for mask in data.targets)
    max_tokens = request.max_tokens or 2 * longest
    began = time.perf_counter()
    model = load_model(request.model, precision=config.precision).to(request.device)
    load = time.perf_counter() - began
    parameters = model.num_parameters()
    if config.lora is not None:
        model = adapted(model, config.lora)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    batch = padded(
        [data[i] for i in range(min(config.batch_size, len(data)))], pad=load_tokenizer(request.model).eos_token_id
    )
    batch = {name: rows.to(request.device) for name, rows in batch.items()}
    step, forward, save, checkpoint = _training_seconds(model, trained, batch, Path(splits.train.path).parent)
    watched = len(load_data(config, splits.watch, {}, skip_bad=False))
    check = forward * watched / len(batch["input_ids"]) + checkpoint
    logits = 3 * 4 * batch["input_ids"].numel() * model.config.get_text_config().vocab_size
    memory = 4 * parameters + 12 * sum(weight.numel() for weight in trained) + logits
    if request.device.startswith("cuda"):
        memory = max(memory, torch.cuda.max_memory_allocated())
    del model, trained
    listed = request.task == "answers"
    timed = partial(_score_seconds, request, splits, max_tokens=max_tokens)
    timed(request.grid[:1], 1)  # the first run also loads libraries
    if listed:
        score = extrapolated(partial(timed, request.grid), splits.counts["validation"])
    else:
        one, two = (timed(request.grid[:count], PROBE) for count in (1, 2))
        each = max(two - one, two / 20)  # the rest is spent once: loading the model, opening the sandbox
        prompts = 1.0 if request.embedder else max(1.0, splits.counts["validation"] / PROBE)
        more = prompts if request.device == "cpu" else max(1.0, prompts / GPU_ROWS)
        score = max(0.0, one - each) + each * more * len(request.grid)
    share = 1.0 if listed else TEST_DECODINGS / len(request.grid)
    test = (FINALISTS + request.judged) * score * share * splits.counts["test"] / splits.counts["validation"]
    drawn = splits.counts["validation"] * request.num_samples * len(request.grid)
    grow = score * splits.counts["train"] * grown_num(splits) / drawn if request.judged else 0.0
    return Timing(
        step=step,
        score=score,
        load=load + save + 1,
        test=test,
        check=check,
        grow=grow,
        max_tokens=max_tokens,
        parameters=parameters,
        memory=memory,
    )


def _try_checker(request: AdviceRequest, splits: Splits) -> None:
    score = request.score
    assert isinstance(score, CheckerScore)
    pairs = [(one.prompt, one.completion) for one in read(splits.train.task, splits.train.path, limit=TRIED).examples]
    with TemporaryDirectory() as folder, ScoreTools(folder) as tools:
        sandbox, verdicts = tools.sandbox(limits_of(score)), tools.verdicts("tried")
        Checker.parse(score.checker).try_out(pairs, sandbox=sandbox, verdicts=verdicts, right=True)


def _training_seconds(
    model: Any, trained: list[torch.nn.Parameter], batch: dict[str, torch.Tensor], folder: Path
) -> tuple[float, float, float, float]:
    """Seconds of a training step, of a forward pass, of saving the model, and of a checkpoint; the learning rate is 0."""
    optimizer = torch.optim.AdamW(trained, lr=0.0)

    def a_step() -> None:
        model(**batch).loss.backward()
        optimizer.step()

    step = min(_seconds(a_step) for _ in range(3))
    with torch.no_grad():
        forward = _seconds(lambda: model(**batch))
    for left in folder.glob("measured-*"):  # by a call that was killed
        shutil.rmtree(left)
    with TemporaryDirectory(dir=folder, prefix="measured-") as place:  # on the disk of the runs

        def a_checkpoint() -> None:
            torch.save(optimizer.state_dict(), Path(place) / "optimizer.pt")
            write_checksums(Path(place))
            flush(Path(place))

        save = _seconds(lambda: model.save_pretrained(place))
        return step, forward, save, save + _seconds(a_checkpoint)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def extrapolated(seconds: Callable[[int], float], prompts: int) -> float:
    """Seconds for so many prompts, from those for `PROBE` and for `MORE`. A part does not grow with the prompts: loading the model, and the
    separation, which uses a fixed number of logits.

    >>> round(extrapolated(lambda prompts: 10 + 0.1 * prompts, 240), 6)
    34.0
    """
    if prompts <= MORE:
        return seconds(prompts)
    few, some = seconds(PROBE), seconds(MORE)
    return some + max(some - few, some / 100) / (MORE - PROBE) * (prompts - MORE)


def _score_seconds(
    request: AdviceRequest, splits: Splits, probe: Sequence[Decoding], prompts: int, *, max_tokens: int
) -> float:
    """Seconds to score the model as it is on a few prompts; k-NN needs more texts, so there all prompts are drawn."""
    asked = request.experiment(request.model, splits.validation, probe, max_tokens=max_tokens)
    asked = replace(asked, num_prompts=None if request.embedder else prompts)
    with TemporaryDirectory() as folder:
        return _seconds(lambda: run("probe", [asked], folder, device=request.device))


def duration(seconds: float) -> str:
    """A duration in words.

    >>> [duration(s) for s in (0.4, 45, 600, 5400)]
    ['1 s', '45 s', '10 min', '1 h 30 min']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
