"""Run a request: score the model as it is, train candidates, compare the finalists on the test prompts.

    <root>/state.json                       the request, the plan and the time spent
    <root>/data/                            the splits
    <root>/<model>/                         one run folder per model
    <root>/advise.csv  advice.json          the table, and the advice

Trained models, samples and scores on disk are used again, so a killed search continues.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from widen.disk.digest import source_digest
from widen.disk.json_file import write_sealed
from widen.sample.decoding import Decoding

from ..experiment import Experiment
from ..finetune.config import FineTune
from ..folder import StageProgress, folder_of, silent
from ..runner import found_records, run
from ..value import from_json, to_json
from .advice import Advice, Finalist, advise_from, to_test
from .engines import how_to_decode
from .halving import halve
from .plan import Plan, Timing, longest_run, make_plan, measure
from .request import AdviceRequest
from .search_state import Clock, SearchState
from .split import Splits, split
from .wish import Points

Say = Callable[[str], None]


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
        measured, longest = timing(request, splits), longest_run(request, splits)
        state.keep_plan(to_json(make_plan(measured, request.losses, budget=request.budget, longest=longest)))
    assert state.plan is not None
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
        return _points(root, one)

    def tuned(loss: str, steps: int) -> FineTune:
        return request.fine_tune(loss, steps, splits)

    try:
        say(f"scoring the model as it is, {len(request.grid)} decodings")
        finalists = [Finalist(loss="", steps=0, validation=points(request.model))]
        trained = halve(
            plan,
            wish,
            budget=request.budget,
            state=state,
            train=lambda loss, steps: points(tuned(loss, steps)),
            say=say,
        )
        finalists += [Finalist(loss=loss, steps=steps, validation=found) for loss, steps, found in trained[:2]]
        say("scoring the finalists on the test prompts")
        scored = []
        for one in finalists:
            model = tuned(one.loss, one.steps) if one.loss else request.model
            scored.append(replace(one, test=points(model, test=to_test(one, wish))))
        run("advise", everything, root, device=request.device, progress=progress, notice=say)
    finally:
        state.save()
    advice = _complete(advise_from(scored, wish), request, root, tuned)
    write_sealed(root / "advice.json", {"schema": 1, "advice": to_json(advice), "request": to_json(request)})
    return advice


def _points(root: Path, experiment: Experiment) -> Points:
    found: dict[Decoding, dict[str, object]] = {}
    for record in found_records(folder_of(root, experiment), experiment) or ():
        if record.decoding is not None:
            found.setdefault(record.decoding, {})[record.metric] = record
    return found  # type: ignore[return-value]


def _complete(advice: Advice, request: AdviceRequest, root: Path, tuned: Callable[[str, int], FineTune]) -> Advice:
    """Add the folder of the model, the command that trains it, and the decoding for other software."""
    if not advice.loss:
        model, folder, train = request.model, "", ""
    else:
        config = tuned(advice.loss, advice.steps)
        folder = str(folder_of(root, config).path)
        model, train = f"{folder}/checkpoint", train_command(config, root, device=request.device)
    use = how_to_decode(Decoding.parse(advice.decoding), model)
    return replace(advice, folder=folder, train=train, use=use)


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
