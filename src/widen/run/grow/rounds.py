"""The rounds of `widen grow`. Each stage leaves a file, and a stage whose file is there is not run again.

OUT/grow.json                     the settings, the digests of the input files, and one entry per finished round
OUT/data.jsonl  verdicts/         the original data with keys; every verdict, by content
OUT/round-k/samples/              drawn from the model of the round before
OUT/round-k/judged.jsonl          the right answers of every problem
OUT/round-k/grown.jsonl           the new ones, with weights and origin
OUT/round-k/train.jsonl           what the model of this round is trained on
OUT/round-k/MODEL/                the run folder of that model, with held-out samples and scores
OUT/round-k/held-out.jsonl        the right answers of every held-out problem; round-0 is the model at the beginning
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from widen.disk.digest import source_digest
from widen.disk.json_file import read_json, write_sealed
from widen.disk.lock import hold

from ..folder import StageProgress, silent
from ..questions import Question, distinct_questions
from ..record import Record, record_from, record_json
from ..sampling import Models
from ..value import to_json
from .config import Growth
from .stages import Stages
from .training_rows import Judgement, data_rows, rows_to_train, write_lines
from .verify import Verifier

Say = Callable[[str], None]
"""Called with a sentence."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One finished round; round 0 is the model at the beginning, which has held-out scores only.

    Args:
      model: the run folder that was trained, relative to the folder of the growth; empty if nothing was new.
      new: right answers that are new in this round.
      rows: rows that the model was trained on.
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
    progress: StageProgress = silent,
    say: Say = lambda text: None,
) -> list[Round]:
    """Run the rounds that are missing, and return all of them.

    Args:
      out: the folder. The same settings continue there after a kill; more ``rounds`` may be asked for later.
      servers: base URLs to sample from. Every model that is to be sampled must be served under its path.
      ray: address of a Ray cluster that judges.
      progress: called with (what, done, total).
      say: called with one sentence per round, and with notices.
    """
    out = Path(out)
    with hold(out):
        questions = distinct_questions(config.prompts)
        held_out = distinct_questions(config.held_out) if config.held_out else []
        _refuse_overlap(questions, held_out)
        with Verifier(config, [*questions, *held_out], out, ray=ray) as verifier:
            rounds = _begun(config, out)
            models = Models(device=device, servers=servers)
            stages = Stages(config, out, questions, held_out, verifier, models, progress, say)
            if not rounds and held_out:
                rounds.append(Round(round=0, records=tuple(stages.evaluate(0, config.model))))
                _keep(config, out, rounds)
                say(sentence(rounds[0]))
            for number in range(max((one.round for one in rounds), default=0) + 1, config.rounds + 1):
                if rounds and rounds[-1].round and not rounds[-1].new:
                    say(f"stopped: round {rounds[-1].round} found nothing new")
                    break
                rounds.append(_round(number, stages, rounds))
                _keep(config, out, rounds)
                say(sentence(rounds[-1]))
            models.close()
    return rounds


def _round(number: int, stages: Stages, before: list[Round]) -> Round:
    """Sample the last model, judge, keep what is new, train, evaluate."""
    config, out = stages.config, stages.out
    data = data_rows(config.data or config.prompts, out / "data.jsonl", stages.verifier)
    samplers = {k: last_model(config, out, [one for one in before if one.round < k]) for k in range(1, number + 1)}
    judgements = [Judgement(k, model, config.decoding, stages.judged(k, model)) for k, model in samplers.items()]
    rows, new = rows_to_train(data, judgements, weights=config.weights, cap=config.cap)
    write_lines(out / f"round-{number}" / "grown.jsonl", new)
    records = stages.sampled_records(number, data, judgements, new=len(new))
    if not new:
        return Round(round=number, records=tuple(records))
    write_lines(out / f"round-{number}" / "train.jsonl", rows)
    start = {"base": config.model, "last": samplers[number]}.get(config.start, config.start)
    model = stages.train(number, start)
    records += stages.evaluate(number, model) if stages.held_out else []
    name = str(Path(model).relative_to(out))
    return Round(round=number, model=name, new=len(new), rows=len(rows), records=tuple(records))


def last_model(config: Growth, out: Path, rounds: list[Round]) -> str:
    """The model after these rounds."""
    return next((str(out / one.model) for one in reversed(rounds) if one.model), config.model)


def sentence(one: Round) -> str:
    """One line about a round."""
    value = one.value
    text = f"round {one.round}: {one.new:,} new right answers" if one.round else "beginning"
    if one.round:
        text += f"; {value('several', held_out=False):.1%} of the prompts have more than one; "
        text += f"precision {value('precision', held_out=False):.3f}, coverage {value('coverage', held_out=False):.2f}"
    shown = [r for r in one.records if r.score["held_out"] and (r.metric.startswith("pass@") or r.metric == "coverage")]
    return text + ("; held out " + ", ".join(f"{r.metric} {r.value:.3f}" for r in shown) if shown else "")


def _refuse_overlap(questions: list[Question], held_out: list[Question]) -> None:
    both = {one.example.prompt for one in questions} & {one.example.prompt for one in held_out}
    if both:
        raise ValueError(
            f"{len(both)} held-out problems are also in --prompts, such as {min(both)[:60]!r}: remove them"
        )


def _inputs(config: Growth) -> dict[str, str | None]:
    sources = [one.path for one in (config.prompts, config.data, config.held_out) if one is not None]
    checker = [config.checker.rpartition(":")[0], *config.checker_files] if config.checker else []
    return {path: source_digest(path) for path in [*sources, *checker]}


def _begun(config: Growth, out: Path) -> list[Round]:
    """The finished rounds of a folder; refused if it was begun with other settings or files. More rounds may be asked for."""
    path = out / "grow.json"
    if not path.exists():
        _keep(config, out, [])
        return []
    before = read_json(path)
    now = {"config": to_json(replace(config, rounds=1)), "inputs": _inputs(config)}
    then = {"config": {**before["config"], "rounds": 1}, "inputs": before["inputs"]}
    changed = [key for part in now for key in {**now[part], **then[part]} if now[part].get(key) != then[part].get(key)]
    if changed:
        raise ValueError(f"{out} was begun with another {', '.join(changed)}: restore it, or choose another --out")
    return [Round(**{**one, "records": tuple(map(record_from, one["records"]))}) for one in before["rounds"]]


def _keep(config: Growth, out: Path, rounds: list[Round]) -> None:
    entries = [{**asdict(replace(one, records=())), "records": [record_json(r) for r in one.records]} for one in rounds]
    write_sealed(out / "grow.json", {"config": to_json(config), "inputs": _inputs(config), "rounds": entries})
