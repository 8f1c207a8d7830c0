"""Run a request: score the model as it is, train candidates, compare the finalists on the test prompts.

    <root>/state.json                       the request, the plan, the time spent, and which jobs ran
    <root>/data/                            the splits
    <root>/<model>/                         one run folder per model
    <root>/averages/<average>/              NLL, averaged with the model as it is
    <root>/grown/                           new right answers, and NLL trained on them too
    <root>/advise.csv  advice.json          the table, and the advice

Trained models, samples and scores on disk are used again, and decisions are read from the state: a killed search continues as it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from widen.disk.atomic_folder import write_folder
from widen.disk.digest import source_digest
from widen.sample.decoding import Decoding

from ..experiment import Experiment
from ..finetune.average import average_models
from ..finetune.config import FineTune
from ..folder import RunFolder, Say, StageProgress, folder_of, silent
from ..grow import Growth, grow
from ..grow.rounds import last_model
from ..model_card import complete_card
from ..record import by_decoding
from ..runner import run
from ..scoring.score_files import found_records
from ..value import from_json, to_json
from .advice import FILE, Advice, Finalist, advise_from, to_test
from .commands import grow_command, merge_command, train_command
from .engines import how_to_decode
from .plan import MOST_EPOCHS, Plan, Timing, duration, make_plan, measure
from .request import GROWN, AdviceRequest
from .split import Splits, split
from .wish import Points

SHARE = 0.9
"""Of NLL in its average with the model as it is. Of two tasks with a real model, this helped on one and changed nothing on the other."""
ONLY_PLANNED = {"state.json", "data", ".lock"}
"""What a folder holds before anything is scored."""
SAVE_EVERY = 5.0
"""Seconds between two writes of the state while a job runs, so that a killed search knows how much of its budget is spent."""
Clock = Callable[[], float]
"""Seconds from any start."""


class Search:
    """A request with its splits and its plan, which are made or found on disk; a folder that holds the work of another request is refused.

    Attributes:
      jobs: the outcome of every job: "trained", "no time" or, for growth, "nothing new".
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
        self._folder, self._path = RunFolder(self.root), self.root / "state.json"
        asked = {name: value for name, value in to_json(request).items() if name != "device"}
        self._asked = {**asked, "data_digest": source_digest(request.data)}
        found: dict[str, Any] = {"asked": self._asked}
        if self._path.exists():
            found = self._folder.read(self._path)
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
        about = {"asked": self._asked, "plan": to_json(self.plan)}
        self._folder.write(self._path, {**about, "spent": self.spent, "jobs": self.jobs})

    def _saving(self, progress: StageProgress) -> StageProgress:
        """``progress``, which also writes the state now and then."""
        saved = self.spent

        def called(what: str, done: int, total: int) -> None:
            nonlocal saved
            if self.spent - saved >= SAVE_EVERY:
                self.save()
                saved = self.spent
            progress(what, done, total)

        return called

    def advise(self, *, say: Say = lambda text: None, progress: StageProgress = silent) -> Advice:
        """Everything after the plan. Writes ``advice.json`` and the cards of the trained models."""
        request, root, splits, everything = self.request, self.root, self.splits, list[Experiment]()
        progress = self._saving(progress)

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
            if one.new:
                return one.folder
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
                both = [str(self._trained(nll).checkpoint), request.model]
                write_folder(path, partial(average_models, both, [SHARE, 1 - SHARE]))
            grown = self._grown(nll, say, progress) if request.judged else None
            finalists = [as_it_is, nll, *map(validated, [average, grown] if grown else [average]), *rivals]
            say("scoring the finalists on the test prompts")
            scored = [replace(one, test=points(model(one), test=to_test(one, request.parsed))) for one in finalists]
            run("advise", everything, root, device=request.device, progress=progress, notice=say)
        finally:
            self.save()
        advice = self._with_commands(advise_from(scored, request.parsed), nll, grown)
        self._folder.write(root / FILE, {"advice": to_json(advice), "request": to_json(request)})
        for name in {one.folder_name for one in everything}:
            complete_card(RunFolder(root / name))
        return advice

    def _trained(self, one: Finalist) -> RunFolder:
        """The run folder of a training."""
        return folder_of(self.root, self.request.fine_tune(one.loss, one.steps, self.splits))

    def _average(self, one: Finalist) -> Path:
        """The folder of an average."""
        return self.root / "averages" / f"{one.loss}-{one.steps}-steps-average-{one.share:g}"

    def _growth(self, nll: Finalist) -> Growth:
        folder = str(self._trained(nll).path)
        return self.request.growth(folder, nll.steps, self.splits, max_tokens=self.plan.max_tokens)

    def _grown(self, nll: Finalist, say: Say, progress: StageProgress) -> Finalist | None:
        """NLL, trained for as many steps on the data and on new right answers; None if there is no time, or nothing is new."""
        needed = self.plan.grow + self.plan.job("nll", nll.steps) + self.plan.test
        late = not self.plan.grow or self.spent + needed > self.request.budget
        if self.jobs.get("grow") == "no time" or ("grow" not in self.jobs and late):
            self.jobs["grow"] = "no time"
            self.save()
            say("growing: no time left")
            return None
        config, out = self._growth(nll), self.root / GROWN
        say(f"growing: {config.num} samples of every training prompt, then NLL on the new right answers too")
        rounds = grow(config, out, device=self.request.device, progress=progress, say=say)
        new = rounds[-1].new
        self.jobs["grow"] = "trained" if new else "nothing new"
        self.save()
        return replace(nll, new=new, folder=last_model(config, out, rounds)) if new else None

    def _with_commands(self, advice: Advice, nll: Finalist, grown: Finalist | None) -> Advice:
        """The advice with its folder, the commands that make the model, and how to decode it."""
        request, root, device, model = self.request, self.root, self.request.device, self.request.model
        if advice.loss:
            config = request.fine_tune(advice.loss, advice.steps, self.splits)
            folder = str(folder_of(root, config).path)
            advice = replace(advice, folder=folder, train=train_command(config, root, device=device))
            model = f"{folder}/checkpoint"
        if advice.share < 1:
            command = merge_command([advice.folder, request.model], [advice.share, 1 - advice.share])
            model = str(self._average(replace(nll, share=advice.share)))
            advice = replace(advice, folder=model, average=command)
        growing = grow_command(self._growth(nll), root / GROWN, device=device) if request.judged else ""
        if advice.new and grown is not None:
            advice, model = replace(advice, folder=grown.folder, grow=growing), f"{grown.folder}/checkpoint"
        counts, reasons = self.splits.counts, advice.reasons
        if counts["repeats"]:
            of = f"{counts['repeats']:,} of the {counts['train']:,} training rows repeat another row"
            reasons += (f"{of}: compare with widen train --distinct, which learns each of them once.",)
        if advice.met and self.jobs.get("grow") == "no time":
            reasons += ("There was no time to look for new right answers: widen grow does that (see below).",)
            advice = replace(advice, grow=growing)
        decoding = Decoding.parse(advice.decoding)
        use = how_to_decode(decoding, model, max_tokens=self.plan.max_tokens, chat=request.chat)
        return replace(advice, use=use, reasons=reasons, test_prompts=counts["test_prompts"])

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
