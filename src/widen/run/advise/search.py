"""Run a request: score the model as it is, train candidates, compare the finalists on the test prompts.

    <root>/state.json                       the request, the plan, the time spent, and which jobs ran
    <root>/data/                            the splits
    <root>/<model>/                         one run folder per model
    <root>/advise.csv  advice.json          the table, and the advice

Trained models, samples and scores on disk are used again, and decisions are read from the state: a killed search continues as it was.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from widen.disk.digest import source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.sample.decoding import Decoding

from ..experiment import Experiment
from ..finetune.config import FineTune
from ..folder import StageProgress, folder_of, silent
from ..record import by_decoding
from ..runner import run
from ..scoring.score_files import found_records
from ..value import from_json, to_json
from .advice import Advice, Finalist, advise_from, to_test
from .engines import how_to_decode
from .plan import MOST_EPOCHS, Plan, Timing, duration, make_plan, measure
from .request import AdviceRequest
from .split import Splits, split
from .wish import Points, Wish

SCHEMA = 1
Say = Callable[[str], None]
Clock = Callable[[], float]
"""Seconds from any start."""


class SearchState:
    """What was asked, the plan, the seconds spent over all restarts, and the outcome of every job: "trained" or "no time".

    Args:
      asked: JSON of the request; a folder that holds another request is refused.
    """

    def __init__(self, path: Path, asked: dict[str, Any], *, clock: Clock = time.monotonic) -> None:
        self.path, self.asked, self._clock, self._began = path, asked, clock, clock()
        found: dict[str, Any] = read_json(path) if path.exists() else {"schema": SCHEMA, "asked": asked}
        if found.get("schema") != SCHEMA:
            raise ValueError(f"{path} has schema {found.get('schema')!r}; this version of widen reads schema {SCHEMA}")
        if differs := [key for key in asked if found["asked"].get(key) != asked[key]]:
            raise ValueError(
                f"{path.parent} holds advice for another request (they differ in {', '.join(differs)}): take another --out, or "
                "remove the folder"
            )
        self.plan: Any = found.get("plan")
        self.jobs: dict[str, str] = found.get("jobs", {})
        self._before = float(found.get("spent", 0.0))

    @property
    def spent(self) -> float:
        """Seconds spent so far, over all restarts."""
        return self._before + self._clock() - self._began

    def save(self) -> None:
        """Write the file."""
        about = {"schema": SCHEMA, "asked": self.asked, "plan": self.plan}
        write_sealed(self.path, {**about, "spent": self.spent, "jobs": self.jobs})


class Prepared(NamedTuple):
    """The splits and the plan of a request, and its state on disk."""

    request: AdviceRequest
    root: Path
    splits: Splits
    plan: Plan
    state: SearchState


def prepare(
    request: AdviceRequest,
    root: str | Path,
    *,
    clock: Clock = time.monotonic,
    timing: Callable[[AdviceRequest, Splits], Timing] = measure,
) -> Prepared:
    """Split the data and make the plan, or find both on disk."""
    root = Path(root)
    asked = {name: value for name, value in to_json(request).items() if name != "device"}
    state = SearchState(root / "state.json", {**asked, "data_digest": source_digest(request.data)}, clock=clock)
    splits = split(request.task, request.data, root / "data", seed=request.seed, once=request.embedder is None)
    if state.plan is None:
        longest = math.ceil(MOST_EPOCHS * splits.counts["train"] / request.batch_size)
        plan = make_plan(timing(request, splits), request.losses, budget=request.budget, longest=longest)
        state.plan = to_json(plan)
        state.save()
    return Prepared(request, root, splits, from_json(Plan, state.plan), state)


def search(prepared: Prepared, *, say: Say = lambda text: None, progress: StageProgress = silent) -> Advice:
    """Everything after the plan. Writes ``advice.json``."""
    request, root, splits, plan, state = prepared
    wish, everything = request.parsed, list[Experiment]()

    def points(model: FineTune | str, *, test: Sequence[Decoding] | None = None) -> Points:
        prompts, decodings = (splits.validation, request.grid) if test is None else (splits.test, test)
        one = request.experiment(model, prompts, decodings, max_tokens=plan.max_tokens)
        run("advise", [one], root, device=request.device, progress=progress, notice=say)
        everything.append(one)
        found = by_decoding(found_records(folder_of(root, one), one) or ())
        return {decoding: point for (_, decoding), point in found.items() if decoding is not None}

    def tuned(loss: str, steps: int) -> FineTune:
        return request.fine_tune(loss, steps, splits)

    def train(loss: str, steps: int) -> Finalist:
        return Finalist(loss=loss, steps=steps, validation=points(tuned(loss, steps)))

    try:
        say(f"scoring the model as it is, {len(request.grid)} decodings")
        untrained = Finalist(loss="", steps=0, validation=points(request.model))
        finalists = [untrained, *halve(plan, wish, budget=request.budget, state=state, train=train, say=say)[:2]]
        say("scoring the finalists on the test prompts")
        scored = []
        for one in finalists:
            model = tuned(one.loss, one.steps) if one.loss else request.model
            scored.append(replace(one, test=points(model, test=to_test(one, wish))))
        run("advise", everything, root, device=request.device, progress=progress, notice=say)
    finally:
        state.save()
    advice = advise_from(scored, wish)
    folder, train_with, best = "", "", request.model
    if advice.loss:
        config = tuned(advice.loss, advice.steps)
        folder = str(folder_of(root, config).path)
        train_with, best = train_command(config, root, device=request.device), f"{folder}/checkpoint"
    use = how_to_decode(Decoding.parse(advice.decoding), best)
    advice = replace(advice, folder=folder, train=train_with, use=use)
    write_sealed(root / "advice.json", {"schema": 1, "advice": to_json(advice), "request": to_json(request)})
    return advice


def halve(
    plan: Plan,
    wish: Wish,
    *,
    budget: float,
    state: SearchState,
    train: Callable[[str, int], Finalist],
    say: Say = lambda text: None,
) -> list[Finalist]:
    """Successive halving within the budget: every rung doubles the steps and keeps the better half of the losses. NLL is never dropped.

    A job starts only if it is expected to end in time and leaves time for the test. Expectations are those of the plan, scaled by how long
    earlier jobs really took.

    Args:
      train: trains a model with a loss for some steps, or finds it on disk, and scores it on the validation prompts.

    Returns:
      NLL, and then the losses of the last rung that trained any, best first.
    """
    alive, best = list(plan.losses[1:]), dict[str, Finalist]()
    slow, ahead = 1.0, plan.seconds - plan.score
    for rung, (count, steps) in enumerate(zip(plan.rivals, plan.steps, strict=True)):
        rivals = []
        for loss in ("nll", *alive[:count]):
            job = f"rung {rung + 1} of {len(plan.steps)}: {loss}, {steps} steps"
            known = state.jobs.get(job)
            late = state.spent + slow * (plan.job(steps) + plan.test) > budget
            if known == "no time" or (known is None and late and best):  # the first job, the baseline, always runs
                state.jobs[job] = "no time"
                state.save()
                say(f"{job}: no time left")
                if loss == "nll":
                    break  # no loss is trained for longer than the baseline
                continue
            say(f"{job} (about {duration(slow * ahead)} left)")
            ahead -= plan.job(steps)
            began = state.spent
            best[loss] = train(loss, steps)
            if known is None:
                slow = max(1.0, (state.spent - began) / plan.job(steps))
                state.jobs[job] = "trained"
                state.save()
            rivals += [loss] if loss != "nll" else []
        if not rivals:
            break
        alive = sorted(rivals, key=lambda loss: wish.rank(best[loss].validation), reverse=True)
    return [best["nll"], *(best[loss] for loss in alive if loss in best)]


def train_command(config: FineTune, root: Path, *, device: str) -> str:
    """The `widen train` command of a fine-tuning. Run as it is, it finds the finished model."""
    flags: dict[str, object] = {
        "model": config.model,
        "task": config.train.task,
        "data": config.train.path,
        "loss": config.loss,
        "steps": config.max_steps,
        "batch-size": config.batch_size,
        "lr": config.lr,
        "lora": config.lora.rank if config.lora else None,
        "precision": config.precision,
        "schedule": config.schedule,
        "seed": config.seed,
        "eval": config.evaluate.path if config.evaluate else None,
        "eval-steps": config.eval_steps,
        "patience": config.patience,
        "device": device,
        "out": root,
    }
    words = [f"--{name} {shlex.quote(str(value))}" for name, value in flags.items() if value is not None]
    return " ".join(["widen train", *words])
