"""What the tests of `widen advise` share: made-up scores, a small data set, and a search whose jobs take no time."""

import json

from widen.run.advise import search as searching
from widen.run.advise.advice import Finalist
from widen.run.advise.plan import Timing
from widen.run.advise.request import AdviceRequest
from widen.run.advise.search import Search
from widen.run.advise.wish import Wish
from widen.run.record import Record
from widen.sample.decoding import Decoding

WISH = Wish.parse("recall at precision >= 0.8")
HOT = Decoding.truncate_then_heat(min_p=0.1, temperature=2)
TIMING = Timing(step=1.0, score=5.0, load=1.0, test=20.0, check=0.0, max_tokens=8, parameters=1000, memory=16_000)
PROMPTS = 60


def answers_file(path, prompts=range(PROMPTS)):
    rows = [{"prompt": f"{n}:", "answers": [f"{n}a", f"{n}b"]} for n in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def points(**values):
    """Made-up scores of one model: spec -> (precision, recall); each prompt differs a little, by a pattern of mean 0."""

    def record(decoding, metric, value):
        spread = 0.01 + 0.001 * len(decoding.spec)
        each = [round(value + (-1) ** n * spread, 6) for n in range(20)]
        about = {"task": "answers", "model": "m", "loss": "nll", "seed": 0, "decoding": decoding}
        return Record(**about, metric=metric, value=value, detail={"by_problem": each})

    return {
        decoding: {"precision": record(decoding, "precision", p), "recall": record(decoding, "recall", r)}
        for decoding, (p, r) in ((Decoding.parse(spec), pair) for spec, pair in values.items())
    }


def finalist(loss, values, test=None):
    return Finalist(loss=loss, steps=8, validation=points(**values), test=points(**(test or values)))


NLL = {"t=1": (0.7, 0.6), "t=0.5": (0.85, 0.5), HOT.spec: (0.82, 0.55)}
AS_IT_IS = {"t=1": (0.1, 0.2), "t=0.5": (0.2, 0.1), HOT.spec: (0.2, 0.1)}


def last(loss):
    """Without the first steps of NLL."""
    return loss.rpartition(" then ")[2]


class World:
    """Training and scoring made up: each job takes as long as the plan says, times ``slow``, on a clock of its own."""

    def __init__(self, monkeypatch, *, slow=1.0, die_at=None, grown=0.0):
        self.now, self.slow, self.die_at, self.calls, self.trained, self.grown = 0.0, slow, die_at, 0, [], grown
        monkeypatch.setattr(searching, "run", self.run)
        monkeypatch.setattr(searching, "found_records", self.records)
        monkeypatch.setattr(searching, "average_models", lambda *_: None)

    def run(self, name, experiments, root, **more):
        self.calls += 1
        if self.calls == self.die_at:
            raise KeyboardInterrupt
        steps = getattr(experiments[0].model, "max_steps", 0)
        validation = experiments[0].prompts.path.endswith("validation.jsonl")
        if len(experiments) == 1:  # the last call makes the table of everything
            self.now += self.slow * ((6 + steps) if validation else TIMING.test / 3)
        if steps and validation and len(experiments) == 1:
            self.trained.append((last(experiments[0].loss), steps))

    def records(self, folder, experiment):
        worth = {"": 0.0, "nll": 0.3, "gem": 0.34}.get(last(experiment.loss), 0.2)
        worth = 0.3 + self.grown if "grown" in experiment.name else worth
        steps = getattr(experiment.model, "max_steps", 0)
        made = points(**{s: (0.95 - 0.05 * n, worth + steps / 1e4 + n / 50) for n, s in enumerate(experiment.decoding)})
        return [record for point in made.values() for record in point.values()]

    def advise(self, tmp_path, budget=3000.0, dry=False):
        request = AdviceRequest(
            model="m",
            data=answers_file(tmp_path / "all.jsonl"),
            task="answers",
            wish="recall at precision >= 0.8",
            budget=budget,
            batch_size=1,
        )
        timing = lambda *_: TIMING  # noqa: E731
        search = Search(request, tmp_path / "out", clock=lambda: self.now, timing=timing)
        return search if dry else search.advise()
