"""Stand-ins for the slow parts of `widen grow`: an engine with a known law, a trainer that writes a file, a sandbox in this process."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np

from widen.judge import Sandbox
from widen.judge.worker import Outcome
from widen.run.folder import RunFolder
from widen.run.grow import rounds
from widen.run.sampling import Models
from widen.run.scoring import job
from widen.sample import Drawn, Identity, Sample

PROBLEMS = ["4=", "5=", "6=", "7="]
HELD_OUT = ["8=", "9="]
CHECKER = """
def check(prompt, answer):
    left, _, right = answer.partition("+")
    return left.strip().isdigit() and right.strip().isdigit() and int(left) + int(right) == int(prompt.strip("="))
def key(answer):
    return "+".join(sorted(answer.replace(" ", "").split("+")))
"""


class Stop(Exception):
    """A kill."""


class Law:
    """Draws a + b for n =; a model that was trained on more rows is wider. ``counts`` says what was done how often."""

    def __init__(self, path, counts):
        self.path, self.counts = path, counts
        file = Path(path) / "checkpoint" / "config.json"
        rows = json.loads(file.read_text())["rows"] if file.exists() else 0
        self.answers = 2 + min(rows, 8) // 4

    def identity(self):
        return Identity(engine="law", name="law", model={"weights": f"{self.answers}"})

    def check(self, settings, prompts):
        pass

    def law(self, prompt):
        n = int(prompt.strip("="))
        texts = [f"{a}+{n - a}" for a in range(1, self.answers + 1)] + ["1 + 1", f" {n - 1}+1"]
        weights = 0.5 ** np.arange(len(texts))
        return texts, weights / weights.sum()

    def draw(self, prompts, settings, *, num, have):
        for setting in settings:
            for prompt in prompts:
                wanted = [i for i in range(num) if not have(setting, prompt.id, i)]
                if not wanted:
                    continue
                self.counts("draw", len(wanted))
                texts, law = self.law(prompt.text)
                samples = []
                for i in wanted:
                    which = np.random.default_rng([setting.seed, i, len(prompt.text)]).choice(len(texts), p=law)
                    finish = "length" if i == 0 else "stop"
                    about = {"logq": -1.5, "sampler": math.log(law[which])}
                    samples.append(Sample(prompt=prompt.id, index=i, text=texts[which], finish=finish, **about))
                yield Drawn(setting, samples)


class InProcess(Sandbox):
    """A sandbox that runs the checker above here."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.names = counts, {}
        exec(CHECKER, self.names)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def settings(self):
        return {"limits": "none"}

    def stream(self, jobs):
        while jobs:
            job, results = jobs.popleft(), []
            pairs = job.exam["pairs"][:4]  # the others of the job come back later
            self.counts("judge", len(pairs))
            for prompt, answer in pairs:
                try:
                    score = float(self.names["check"](prompt, answer))
                    results.append(("scored", score, self.names["key"](answer), ""))
                except TypeError as error:
                    results.append(("error", None, None, str(error)))
            yield job, Outcome({}, report={"status": "ok", "results": results})


class Counts(Counter):
    """Counts, and stops at the call that it is told."""

    def __init__(self, what=None, at=0):
        super().__init__()
        self.what, self.at, self.calls = what, at, Counter()

    def __call__(self, what, number=1):
        if self.what == what and self.calls[what] == self.at:
            raise Stop(what)
        self.calls[what] += 1
        self[what] += number


def install(monkeypatch, counts):
    """Put the stand-ins in place."""
    monkeypatch.setattr(Models, "local", lambda self, one, folder: Law(one.model, counts))
    monkeypatch.setattr(job, "Sandbox", lambda **_: InProcess(counts))

    def train(config, root, **_):
        folder = RunFolder(Path(root) / f"model-{Path(config.model).name[:5]}")
        if not folder.is_trained:
            counts("train")
            folder.checkpoint.mkdir(parents=True)
            rows = Path(config.train.path).read_text().splitlines()
            (folder.checkpoint / "config.json").write_text(json.dumps({"rows": len(rows)}))
        return folder

    monkeypatch.setattr(rounds, "fine_tune", train)
    monkeypatch.setattr(rounds, "settings_of", {"base": "a model"}.__getitem__)
    monkeypatch.setattr(rounds, "check_form", lambda name, **_: "")


def save(place):
    """The files of a small growth."""
    place = Path(place)
    rows = [{"prompt": p, "completion": f"1+{int(p[:-1]) - 1}"} for p in PROBLEMS]
    (place / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "test.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in HELD_OUT))
    (place / "own.py").write_text(CHECKER)


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
