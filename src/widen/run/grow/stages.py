"""The stages of a round: sample, judge, train, evaluate. Each leaves files, and finished work is not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widen.sample.decoding import Decoding

from ..experiment import Experiment
from ..finetune.config import Source
from ..finetune.stage import fine_tune
from ..folder import RunFolder, StageProgress
from ..questions import Question
from ..record import Record, write_records
from ..sampling import Models, missing, sample
from ..scoring.score_files import Measured, records_of
from .config import Growth
from .found import FoundAnswers, judge_samples_once, scores, share_measured
from .training_rows import DataRow, Judgement, prompts_with_several
from .verify import Verifier


class Stages:
    """What the rounds of one call share; see `widen.run.grow.rounds.grow`."""

    def __init__(
        self,
        config: Growth,
        out: Path,
        questions: list[Question],
        held_out: list[Question],
        verifier: Verifier,
        models: Models,
        progress: StageProgress,
        say: Any,
    ) -> None:
        self.config, self.out, self.questions, self.held_out = config, out, questions, held_out
        self.verifier, self.models, self.progress, self.say = verifier, models, progress, say

    def judged(self, number: int, model: str) -> list[FoundAnswers]:
        """Sample the problems from ``model`` and judge the answers."""
        config, place = self.config, self.out / f"round-{number}"
        one = self._experiment(model, config.prompts, config.num, config.decoding, seed=config.seed + number)
        return self._found(RunFolder(place), one, self.questions, place / "judged.jsonl", f"round {number}")

    def train(self, number: int, start: str) -> str:
        """Train on the rows of the round; return the run folder."""
        self.models.close()  # frees the memory of the model that was sampled
        place = self.out / f"round-{number}"
        folder = fine_tune(
            self.config.fine_tuning(str(place / "train.jsonl"), start=start),
            place,
            device=self.models.device,
            progress=lambda what, done, total: self.progress(f"train, round {number}", done, total),
            about={"name": f"round {number}, {self.config.weights}"},
        )
        return str(folder.path)

    def evaluate(self, number: int, model: str) -> list[Record]:
        """Sample and judge the held-out problems. The records of a model that was trained here also go into its run folder."""
        config, source = self.config, self.config.held_out
        assert source is not None
        place = self.out / f"round-{number}"
        folder = RunFolder(model if number else place)
        one = self._experiment(model, source, config.held_out_num, config.held_out_decoding, seed=config.seed)
        what = f"held out, round {number}"
        found = self._found(folder, one, self.held_out, place / "held-out.jsonl", what)
        records = self._records(scores(found), number, model, one, held_out=True)
        if number:
            write_records(folder, "grow", records)
        return records

    def sampled_records(
        self, number: int, data: list[DataRow], judgements: list[Judgement], *, new: int
    ) -> list[Record]:
        """Precision and coverage of the samples of a round, the number of new answers, and the share of prompts with several."""
        config, (*_, last) = self.config, judgements
        if cut := sum(one.cut for one in last.found):
            drawn = sum(one.drawn for one in last.found)
            self.say(f"round {number}: {cut:,} of {drawn:,} answers were cut off at max_tokens={config.max_tokens}")
        values = {name: one for name, one in scores(last.found).items() if not name.startswith("pass@")}
        values["new"] = Measured(float(new), n=len(last.found))
        values["several"] = share_measured(prompts_with_several(data, judgements))
        one = self._experiment(last.model, config.prompts, config.num, config.decoding, seed=config.seed + number)
        return self._records(values, number, last.model, one, held_out=False)

    def _experiment(self, model: str, source: Source, num: int, decoding: str, *, seed: int) -> Experiment:
        about: dict[str, Any] = {"max_tokens": self.config.max_tokens, "dtype": self.config.dtype, "seed": seed}
        name = Path(model).name
        return Experiment(name=name, model=model, prompts=source, num_samples=num, decoding=(decoding,), **about)

    def _found(
        self, folder: RunFolder, one: Experiment, questions: list[Question], path: Path, what: str
    ) -> list[FoundAnswers]:
        """The right answers among the samples of an experiment, from ``path`` if they were judged before."""
        if not path.exists():
            at: StageProgress = lambda _, done, total: self.progress(f"sample, {what}", done, total)  # noqa: E731
            sample(self.models, folder, one, questions, progress=at, notice=self.say)
            if missing(folder, one, questions):
                raise ValueError(
                    f"none of the servers {', '.join(self.models.servers)} serves {one.model}: serve it and run the command again"
                )
        return judge_samples_once(
            folder.samples(one.settings[0].name),
            questions,
            path,
            num=one.num_samples,
            verifier=self.verifier,
            what=f"judge, {what}",
            progress=self.progress,
        )

    def _records(
        self, values: dict[str, Measured], number: int, model: str, one: Experiment, *, held_out: bool
    ) -> list[Record]:
        assert one.prompts is not None
        score = {"kind": "grow", "round": number, "weights": self.config.weights, "held_out": held_out}
        loss = self.config.fine_tuning("train.jsonl", start="m").loss
        return records_of(
            values,
            task=one.prompts.task,
            model=Path(model).name,
            loss=str(loss) if Path(model).is_relative_to(self.out) else "",
            decoding=Decoding.parse(one.decoding[0]),
            seed=one.seed,
            score={**score, "prompts": Path(one.prompts.path).name, "num_samples": one.num_samples},
        )
