"""The rounds of `widen grow`. Each stage leaves a file, and a stage whose file is there is not run again.

OUT/grow.json                     the settings, the digests of the input files, and one entry per finished round
OUT/data.jsonl  verdicts/         the original data with keys; every verdict, by content
OUT/round-k/samples/              drawn from the model of the round before
OUT/round-k/judged.jsonl          the right answers of every problem
OUT/round-k/grown.jsonl           the new ones, with weights and origin
OUT/round-k/train.jsonl           what the model of this round is trained on; with ``find_only``, nothing is trained
OUT/round-k/MODEL/                the run folder of that model, with held-out samples and scores
OUT/round-k/held-out.jsonl        the right answers of every held-out problem; round-0 is the model at the beginning
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from widen.disk.digest import source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.disk.lock import hold
from widen.sample.decoding import Decoding

from ..chat_form import check_form
from ..experiment import Experiment
from ..finetune.model_files import settings_of
from ..finetune.stage import fine_tune
from ..folder import RunFolder, Say, StageProgress, silent
from ..questions import Question, distinct_questions
from ..record import Record, write_records
from ..sampling import Models, missing, sample
from ..scoring.job import ScoreTools
from ..scoring.score_files import Measured, records_of
from ..value import from_json, to_json
from .config import Growth
from .training_rows import DataRow, Judgement, data_rows, read_rows, rows_to_train, write_lines
from .verify import FoundAnswers, Verifier, judge_samples_once, read_found, scores, share_measured

Inputs = dict[str, str | None]
"""Digests of the input files."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One finished round; round 0 is the model at the beginning, which has held-out scores only.

    Args:
      model: the run folder that was trained, relative to the folder of the growth; empty if nothing was.
      new: right answers that are new in this round.
      rows: rows to train on.
      records: of the samples of this round, and of held-out problems (``held_out`` in the settings of their score).
    """

    round: int
    model: str = ""
    new: int = 0
    rows: int = 0
    records: tuple[Record, ...] = ()

    def value(self, metric: str, *, held_out: bool) -> float | None:
        """The value of a metric, or None."""
        fits = (one for one in self.records if one.metric == metric and one.score["held_out"] == held_out)
        return next((one.value for one in fits), None)


def grow(
    config: Growth,
    out: str | Path,
    *,
    device: str = "cpu",
    servers: tuple[str, ...] = (),
    ray: str | None = None,
    rows: int | None = None,
    progress: StageProgress = silent,
    say: Say = lambda text: None,
) -> list[Round]:
    """Run the rounds that are missing, and return all of them.

    Args:
      out: the folder. The same settings continue there after a kill; more ``rounds`` may be asked for later.
      servers: base URLs to sample from. Every model that is to be sampled must be served under its path.
      ray: address of a Ray cluster that judges.
      rows: samples drawn at a time; by default as many as fit into memory.
      progress: called with (what, done, total).
      say: called with one sentence per round, and with notices.
    """
    out = Path(out)
    with hold(out):
        inputs = _inputs(config)  # before they are read: what changes later is refused when the growth continues
        questions = distinct_questions(config.prompts, chat=config.chat)
        held_out = distinct_questions(config.held_out, chat=config.chat) if config.held_out else []
        if both := {one.example.prompt for one in questions} & {one.example.prompt for one in held_out}:
            such = f"such as {min(both)[:60]!r}"
            raise ValueError(f"{len(both)} held-out problems are also in --prompts, {such}: remove them")
        with ScoreTools(out, progress=progress, ray=ray) as tools:
            verifier = Verifier(config, [*questions, *held_out], tools)
            rounds, models = _begun(config, out, inputs), Models(device=device, servers=servers, rows=rows)
            if not rounds:
                for name in dict.fromkeys((config.model, config.start)):
                    if name == config.model or name not in ("base", "last"):
                        settings_of(name)  # refuses a model that is not there
                        if note := check_form(name, chat=config.chat):
                            say(note)
            data = data_rows(config.data or config.prompts, out / "data.jsonl", verifier, chat=config.chat)
            if config.data and not data:
                raise ValueError(
                    f"data={config.data.path!r}: no row has a completion to learn; without --data, those of --prompts are taken"
                )
            stages = Stages(config, out, questions, held_out, data, verifier, models, progress, say)
            next_round = len(rounds) if held_out else len(rounds) + 1  # only held-out problems have a round 0
            for number in range(next_round, config.rounds + 1):
                if rounds and rounds[-1].round and not rounds[-1].new:
                    say(f"stopped: round {rounds[-1].round} found nothing new")
                    break
                first = Round(round=0, records=tuple(stages.evaluate(0, config.model))) if number == 0 else None
                rounds.append(first or stages.round(number, rounds))
                _keep(config, out, rounds, inputs)
                say(sentence(rounds[-1]))
            models.close()
    return rounds


@dataclass(frozen=True)
class Stages:
    """The stages of a round, and what the rounds of one call share. Finished work is not repeated."""

    config: Growth
    out: Path
    questions: list[Question]
    held_out: list[Question]
    data: list[DataRow]
    verifier: Verifier
    models: Models
    progress: StageProgress
    say: Say

    def round(self, number: int, before: list[Round]) -> Round:
        """Sample the last model, judge, keep what is new, train, evaluate."""
        config, out, place = self.config, self.out, self.out / f"round-{number}"
        samplers = {k: last_model(config, out, [one for one in before if one.round < k]) for k in range(1, number + 1)}
        judgements = [Judgement(k, model, config.decoding, self.found(k, model)) for k, model in samplers.items()]
        rows, new, several = rows_to_train(self.data, judgements, weights=config.weights, cap=config.cap)
        write_lines(place / "grown.jsonl", new)
        found = judgements[-1].found
        if cut := sum(one.cut for one in found):
            of = f"{cut:,} of {sum(one.drawn for one in found):,} answers"
            self.say(f"round {number}: {of} were cut off at max_tokens={config.max_tokens}")
        values = {name: one for name, one in scores(found).items() if not name.startswith("pass@")}
        values |= {"new": Measured(float(len(new)), n=len(found)), "several": share_measured(several)}
        records = self.records(values, number, samplers[number])
        if not new:
            return Round(round=number, records=tuple(records))
        write_lines(place / "train.jsonl", rows)
        if config.find_only:
            return Round(round=number, new=len(new), rows=len(rows), records=tuple(records))
        model = self.train(number, {"base": config.model, "last": samplers[number]}.get(config.start, config.start))
        records += self.evaluate(number, model) if self.held_out else []
        name = str(Path(model).relative_to(out))
        return Round(round=number, model=name, new=len(new), rows=len(rows), records=tuple(records))

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
        records = self.records(scores(self.found(number, model, held_out=True)), number, model, held_out=True)
        if number:
            write_records(RunFolder(model), "grow", records)
        return records

    def experiment(self, number: int, model: str, *, held_out: bool) -> Experiment:
        """How the problems of a round, or the held-out problems, are sampled."""
        config = self.config
        source, num = (config.held_out, config.held_out_num) if held_out else (config.prompts, config.num)
        return Experiment(
            name=Path(model).name,
            model=model,
            prompts=source,
            num_samples=num,
            decoding=(config.held_out_decoding if held_out else config.decoding,),
            max_tokens=config.max_tokens,
            chat=config.chat,
            dtype=config.dtype,
            seed=config.seed + (0 if held_out else number),
        )

    def found(self, number: int, model: str, *, held_out: bool = False) -> list[FoundAnswers]:
        """Sample ``model`` and judge the answers, or read the right answers if they were judged before."""
        place, one = self.out / f"round-{number}", self.experiment(number, model, held_out=held_out)
        path, questions = place / "judged.jsonl", self.questions
        folder, what = RunFolder(place), f"round {number}"
        if held_out:
            path, questions, what = place / "held-out.jsonl", self.held_out, f"held out, {what}"
            folder = RunFolder(model) if number else folder
        if not path.exists():
            at: StageProgress = lambda _, done, total: self.progress(f"sample, {what}", done, total)  # noqa: E731
            sample(self.models, folder, one, questions, progress=at, notice=self.say)
            if missing(folder, one, questions):
                urls = ", ".join(self.models.servers)
                raise ValueError(f"none of the servers {urls} serves {one.model}: serve it and run the command again")
        samples = folder.samples(one.settings[0].name)
        num, what = one.num_samples, f"judge, {what}"
        return judge_samples_once(samples, questions, path, num=num, verifier=self.verifier, what=what)

    def records(self, values: dict[str, Measured], number: int, model: str, *, held_out: bool = False) -> list[Record]:
        """Records of a round, or of the held-out problems after it."""
        one = self.experiment(number, model, held_out=held_out)
        assert one.prompts is not None
        score = {"kind": "grow", "round": number, "weights": self.config.weights, "held_out": held_out}
        loss = self.config.fine_tuning("train.jsonl", start="m").loss
        return records_of(
            values,
            task=one.prompts.task,
            model=one.name,
            loss=str(loss) if Path(model).is_relative_to(self.out) else "",
            decoding=Decoding.parse(one.decoding[0]),
            seed=one.seed,
            score={**score, "prompts": Path(one.prompts.path).name, "num_samples": one.num_samples},
        )


def last_model(config: Growth, out: Path, rounds: list[Round]) -> str:
    """The model after these rounds."""
    return next((str(out / one.model) for one in reversed(rounds) if one.model), config.model)


def reweighed(out: str | Path, weights: str) -> list[dict[str, Any]]:
    """The rows that a finished growth in ``out`` would train on with another kind of weights. Nothing is sampled or judged again."""
    out = Path(out)
    kept = read_json(out / "grow.json")
    config, rounds = from_json(Growth, kept["config"]), [from_json(Round, one) for one in kept["rounds"]]
    judgements = [
        Judgement(k, last_model(config, out, [one for one in rounds if one.round < k]), config.decoding, found)
        for k, found in (
            (one.round, read_found(out / f"round-{one.round}" / "judged.jsonl")) for one in rounds if one.round
        )
    ]
    return rows_to_train(read_rows(out / "data.jsonl"), judgements, weights=weights, cap=config.cap)[0]


def sentence(one: Round) -> str:
    """One line about a round."""
    value = one.value
    text = f"round {one.round}: {one.new:,} new right answers" if one.round else "beginning"
    if one.round:
        text += f"; {value('several', held_out=False):.1%} of the prompts have more than one; "
        text += f"precision {value('precision', held_out=False):.3f}, {_distinct(one, held_out=False)}"
    if shown := [r for r in one.records if r.score["held_out"] and r.metric.startswith("pass@")]:
        passes = ", ".join(f"{r.metric} {r.value:.3f}" for r in shown)
        text += f"; held out {passes}, {_distinct(one, held_out=True)}"
    return text


def _distinct(one: Round, *, held_out: bool) -> str:
    """The metric that records call coverage. Elsewhere coverage is a share of the right answers, so the number is said in words."""
    return f"{one.value('coverage', held_out=held_out):.2f} distinct right answers per prompt"


def _inputs(config: Growth) -> Inputs:
    sources = [one.path for one in (config.prompts, config.data, config.held_out) if one is not None]
    checker = [config.checker.rpartition(":")[0], *config.checker_files] if config.checker else []
    return {path: source_digest(path) for path in [*sources, *checker]}


def _begun(config: Growth, out: Path, inputs: Inputs) -> list[Round]:
    """The finished rounds of a folder; refused if it was begun with other settings or files. More rounds may be asked for."""
    path = out / "grow.json"
    if not path.exists():
        _keep(config, out, [], inputs)
        return []
    before = read_json(path)
    now = {"config": to_json(replace(config, rounds=1)), "inputs": inputs}
    then = {"config": {**before["config"], "rounds": 1}, "inputs": before["inputs"]}
    changed = [name for part in now for name in _differ(now[part], then[part])]
    if changed and not any(out.glob("round-*")):  # nothing was drawn yet
        (out / "data.jsonl").unlink(missing_ok=True)
        _keep(config, out, [], inputs)
        return []
    if changed:
        raise ValueError(f"{out} was begun with another {', '.join(changed)}: restore it, or choose another --out")
    return [from_json(Round, one) for one in before["rounds"]]


def _differ(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """The names of the settings that differ, such as ``training.lr``."""
    found = list[str]()
    for key in {**now, **then}:
        one, other = now.get(key), then.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found += [f"{key}.{name}" for name in _differ(one, other)]
        elif one != other:
            found.append(key)
    return found


def _keep(config: Growth, out: Path, rounds: list[Round], inputs: Inputs) -> None:
    content = {"config": to_json(config), "inputs": inputs, "rounds": to_json(rounds)}
    write_sealed(out / "grow.json", content)
