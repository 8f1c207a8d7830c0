"""Run a request: score the model as it is, train candidates, compare the finalists on the test prompts.

    <root>/state.json                       the request, the plan, the time spent, and which jobs ran
    <root>/data/                            the splits
    <root>/<model>/                         one run folder per model
    <root>/averages/<average>/              NLL, averaged with the model as it is
    <root>/advise.csv  advice.json          the table, and the advice

Trained models, samples and scores on disk are used again, and decisions are read from the state: a killed search continues as it was.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from widen.disk.atomic_folder import write_folder
from widen.disk.digest import source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.sample.decoding import Decoding

from ..experiment import Experiment
from ..finetune.average import average_models
from ..finetune.config import FineTune
from ..folder import RunFolder, StageProgress, folder_of, silent
from ..model_card import complete_card
from ..record import by_decoding
from ..runner import run
from ..score_settings import CheckerScore, ProgramScore
from ..scoring.score_files import found_records
from ..value import from_json, to_json
from .advice import FILE, Advice, Finalist, advise_from, to_test
from .advice import SCHEMA as ADVICE_SCHEMA
from .engines import how_to_decode
from .plan import MOST_EPOCHS, Plan, Timing, duration, make_plan, measure
from .request import AdviceRequest
from .split import Splits, split
from .wish import Points

SCHEMA = 1
SHARE = 0.9
"""Of NLL in its average with the model as it is. Of two tasks with a real model, this helped on one and changed nothing on the other."""
ONLY_PLANNED = {"state.json", "data", ".lock"}
"""What a folder holds before anything is scored."""
Say = Callable[[str], None]
Clock = Callable[[], float]
"""Seconds from any start."""


class Search:
    """A request with its splits and its plan, which are made or found on disk; a folder that holds the work of another request is refused.

    Attributes:
      jobs: the outcome of every job: "trained" or "no time".
    """

    def __init__(
        self,
        request: AdviceRequest,
        root: str | Path,
        *,
        clock: Clock = time.monotonic,
        timing: Callable[[AdviceRequest, Splits], Timing] = measure,
    ) -> None:
        self.request, self.root, self._clock, self._began = request, Path(root), clock, clock()
        self._path = self.root / "state.json"
        asked = {name: value for name, value in to_json(request).items() if name != "device"}
        self._asked = {**asked, "data_digest": source_digest(request.data)}
        found: dict[str, Any] = (
            read_json(self._path) if self._path.exists() else {"schema": SCHEMA, "asked": self._asked}
        )
        if found.get("schema") != SCHEMA:
            raise ValueError(
                f"{self._path} has schema {found.get('schema')!r}; this version of widen reads schema {SCHEMA}"
            )
        before = found["asked"]
        if differs := [key for key in {**before, **self._asked} if before.get(key) != self._asked.get(key)]:
            if not {one.name for one in self.root.iterdir()} <= ONLY_PLANNED:
                raise ValueError(
                    f"{self.root} holds advice for another request (they differ in {', '.join(differs)}): take another --out, or "
                    "remove the folder"
                )
            found = {}  # nothing ran yet, as after --dry-run
        self._before, self.jobs = float(found.get("spent", 0.0)), dict[str, str](found.get("jobs", {}))
        once = request.embedder is None
        self.splits = split(
            request.task, request.data, self.root / "data", seed=request.seed, once=once, chat=request.chat
        )
        if found.get("plan") is not None:
            self.plan = from_json(Plan, found["plan"])
        else:
            longest = math.ceil(MOST_EPOCHS * self.splits.counts["train"] / request.batch_size)
            times = timing(request, self.splits)
            self.plan = make_plan(times, request.losses, budget=request.budget, longest=longest)
            self.save()

    @property
    def spent(self) -> float:
        """Seconds spent so far, over all restarts."""
        return self._before + self._clock() - self._began

    def save(self) -> None:
        """Write the state."""
        about: dict[str, Any] = {"schema": SCHEMA, "asked": self._asked, "plan": to_json(self.plan)}
        write_sealed(self._path, {**about, "spent": self.spent, "jobs": self.jobs})

    def advise(self, *, say: Say = lambda text: None, progress: StageProgress = silent) -> Advice:
        """Everything after the plan. Writes ``advice.json`` and the cards of the trained models."""
        request, root, splits, everything = self.request, self.root, self.splits, list[Experiment]()

        def points(model: FineTune | str, *, test: Sequence[Decoding] | None = None) -> Points:
            prompts, decodings = (splits.validation, request.grid) if test is None else (splits.test, test)
            one = request.experiment(model, prompts, decodings, max_tokens=self.plan.max_tokens)
            run("advise", [one], root, device=request.device, progress=progress, notice=say)
            everything.append(one)
            found = by_decoding(found_records(folder_of(root, one), one) or ())
            return {decoding: point for (_, decoding), point in found.items() if decoding is not None}

        def model(one: Finalist) -> FineTune | str:
            if not one.loss:
                return request.model
            config = request.fine_tune(one.loss, one.steps, splits)
            return config if one.share == 1 else str(self._average(one))

        def validated(one: Finalist) -> Finalist:
            return replace(one, validation=points(model(one)))

        def train(loss: str, steps: int) -> Finalist:
            return validated(Finalist(loss=loss, steps=steps, validation={}))

        try:
            say(f"scoring the model as it is, {len(request.grid)} decodings")
            as_it_is = train("", 0)
            nll, *rivals = self._halve(train, say)[:2]
            say(f"scoring an average of NLL ({SHARE:g}) and the model as it is ({1 - SHARE:g})")
            average = replace(nll, share=SHARE)
            if not (path := self._average(average)).exists():
                both = [str(self._folder(nll).checkpoint), request.model]
                write_folder(path, partial(average_models, both, [SHARE, 1 - SHARE]))
            finalists = [as_it_is, nll, validated(average), *rivals]
            say("scoring the finalists on the test prompts")
            scored = [replace(one, test=points(model(one), test=to_test(one, request.parsed))) for one in finalists]
            run("advise", everything, root, device=request.device, progress=progress, notice=say)
        finally:
            self.save()
        advice, best = advise_from(scored, request.parsed), request.model
        if advice.loss:
            chosen = Finalist(loss=advice.loss, steps=advice.steps, share=advice.share, validation={})
            config, folder = request.fine_tune(advice.loss, advice.steps, splits), self._folder(chosen).path
            advice = replace(advice, folder=str(folder), train=train_command(config, root, device=request.device))
            best = f"{folder}/checkpoint"
        if advice.share < 1:
            best = str(self._average(chosen))
            models = shlex.join([advice.folder, request.model])
            command = f"widen merge {models} --weights {advice.share:g} {1 - advice.share:g} --out averaged"
            advice = replace(advice, folder=best, average=command)
        decoding = Decoding.parse(advice.decoding)
        use = how_to_decode(decoding, best, max_tokens=self.plan.max_tokens, chat=request.chat)
        advice = replace(advice, use=use, test_prompts=splits.counts["test_prompts"], **self._data_advice(advice))
        write_sealed(root / FILE, {"schema": ADVICE_SCHEMA, "advice": to_json(advice), "request": to_json(request)})
        for name in {one.folder_name for one in everything}:
            complete_card(RunFolder(root / name))
        return advice

    def _folder(self, one: Finalist) -> RunFolder:
        """The run folder of a training."""
        return folder_of(self.root, self.request.fine_tune(one.loss, one.steps, self.splits))

    def _average(self, one: Finalist) -> Path:
        """The folder of an average."""
        return self.root / "averages" / f"{one.loss}-{one.steps}-steps-average-{one.share:g}"

    def _data_advice(self, advice: Advice) -> dict[str, Any]:
        """What other data may bring: learning repeated rows once, and the model's own right answers."""
        counts, reasons, grow = self.splits.counts, advice.reasons, ""
        if counts["repeats"]:
            of = f"{counts['repeats']:,} of the {counts['train']:,} training rows repeat another row"
            reasons += (f"{of}: compare with widen train --distinct, which learns each of them once.",)
        if advice.met and advice.loss in ("", "nll") and isinstance(self.request.score, (CheckerScore, ProgramScore)):
            reasons += ("Data may bring more than a loss: widen grow adds the model's own right answers (see below).",)
            flags = {
                "task": self.request.task,
                "prompts": self.splits.prompts.path,
                "held-out": self.splits.test.path,
                "checker": self.request.checker,
                "max-tokens": self.plan.max_tokens,
                "lr": self.request.lr,
                "batch-size": self.request.batch_size,
                "device": self.request.device,
            }
            chat = " --chat" if self.request.chat else ""
            grow = f"widen grow {shlex.quote(advice.folder or self.request.model)} {_written(flags)}{chat}"
        return {"reasons": reasons, "grow": grow}

    def _halve(self, train: Callable[[str, int], Finalist], say: Say) -> list[Finalist]:
        """Successive halving within the budget: every rung doubles the steps and keeps the better half of the losses. NLL is never dropped.

        A job starts only if it is expected to end in time and leaves time for the test. The time of a job is that of the plan, scaled by
        how long all earlier jobs really took.

        Args:
          train: trains a model with a loss for some steps, or finds it on disk, and scores it on the validation prompts.

        Returns:
          NLL, and then the losses of the last rung that trained any, best first.
        """
        plan, alive, best = self.plan, list(self.plan.losses[1:]), dict[str, Finalist]()
        slow, took, planned, ahead = 1.0, 0.0, 0.0, plan.seconds - plan.score
        for rung, (count, steps) in enumerate(zip(plan.rivals, plan.steps, strict=True), start=1):
            rivals = []
            for loss in ("nll", *alive[:count]):
                job = f"rung {rung} of {len(plan.steps)}: {loss}, {steps} steps"
                known = self.jobs.get(job)
                needed = planned_for = plan.job(loss, steps)
                if loss == "nll" and alive:  # longer NLL alone would be compared with shorter losses
                    needed += plan.job(alive[0], steps)
                late = self.spent + slow * needed + plan.end > self.request.budget
                if known == "no time" or (known is None and late and best):  # the first job, the baseline, always runs
                    self.jobs[job] = "no time"
                    self.save()
                    say(f"{job}: no time left")
                    if loss == "nll":
                        break  # no loss is trained for longer than the baseline
                    continue
                say(f"{job} (about {duration(slow * ahead)} left)")
                ahead -= planned_for
                began = self.spent
                best[loss] = train(loss, steps)
                if known is None:
                    took, planned = took + self.spent - began, planned + planned_for
                    slow = max(1.0, took / planned)
                    self.jobs[job] = "trained"
                    self.save()
                rivals += [loss] if loss != "nll" else []
            if not rivals:
                break
            rank = self.request.parsed.rank
            alive = sorted(rivals, key=lambda loss: rank(best[loss].validation), reverse=True)
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
    return f"widen train {_written(flags)}"


def _written(flags: Mapping[str, object]) -> str:
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in flags.items() if value is not None)
