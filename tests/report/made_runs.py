"""Run folders made from the artificial case, with texts that would break a careless page. No tests here."""

import json
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from widen.report.run_data import RunData
from widen.run.record import SCHEMA, Record
from widen.run.value import to_json
from widen.sample import Decoding
from widen.theory import ArtificialCase, TruncatedCase

TEMPERATURES = (0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.2)
LAMS = np.r_[np.tan(np.linspace(0, np.pi / 2, 65))[:-1], np.inf]
THRESHOLDS, HEATS = (0.02, 0.08, 0.3), (0.7, 1.0, 2.0, 4.2)
"""Each threshold is applied before each of these temperatures."""
MODELS = {
    "NLL": ("nll", 0.12, 0.80),
    "c-Div 1.4": ("nll:steps=300 then cdiv:alpha=1.4,cap=10000.0", 0.16, 0.68),
    "TruncR 0.1": ("truncr:drop=0.1,window=10000,score=sum", 0.10, 0.72),
    "lambda-PR 0.1": ("lambda_pr:lam=0.1,gamma=1e-05", 0.30, 0.62),
}
SEEDS = {name: 1 if name == "lambda-PR 0.1" else 3 for name in MODELS}
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PROMPTS = ("Tell me a story about a lighthouse.", "Write one line of verse.", EVIL)
STRANGE = (
    "x" * 100_000,
    "שלום \u202eevil\u202c עולם",
    "\ud800 broken \udfff pair \x00 and \x1b[31m",
    EVIL,
    "a\u0301" + "\u0310" * 60,
    "Needle-7431 in the Hay",
)


def case(name, seed):
    _, epsilon, a = MODELS[name]
    return ArtificialCase(vocab=100, support=20, rho=0.5, a=a, epsilon=epsilon + 0.02 * seed)


@cache
def truncated(name, seed, min_p, t):
    """Precision and recall of a made model that truncates its own law and then heats; two thirds of its contexts do not separate."""
    cut = TruncatedCase(case=case(name, seed), steps=(("min_p", min_p), ("temperature", t))).curve
    heated = case(name, seed).curve(t)
    return tuple(
        float(scale * (one + 2 * other) / 3)
        for scale, one, other in (
            (1.0, cut.precision(np.inf), heated.precision(np.inf)),
            (0.9 - 0.01 * min_p, cut.recall(0.8), heated.recall(0.8)),
        )
    )


@cache
def settings_of(name):
    """Every decoding of a made model: {spec: (precision of each seed, recall of each seed)}."""
    seeds = range(SEEDS[name])
    heats = sorted({*TEMPERATURES, *(1.4 * t for t in TEMPERATURES)}) if name == "NLL" else TEMPERATURES
    curves = {Decoding(temperature=round(t, 9)).spec: [case(name, seed).curve(t) for seed in seeds] for t in heats}
    found = {
        spec: ([float(c.precision(np.inf)) for c in of], [0.9 * float(c.recall(0.8)) for c in of])
        for spec, of in curves.items()
    }
    for min_p, t in product(THRESHOLDS, HEATS):
        spec = Decoding(temperature=t, min_p=min_p, order="temperature_last").spec
        found[spec] = tuple(zip(*(truncated(name, seed, min_p, t) for seed in seeds), strict=True))
    return found


def record(name, seed, metric, value, *, t=1.0, decoding=None, task="mulmod", score=None, **more):
    """One record of a made run, as JSON."""
    return to_json(
        Record(
            task=task,
            model="llama-4x32",
            loss=MODELS[name][0],
            decoding=decoding or Decoding(temperature=round(t, 9)),
            seed=seed,
            metric=metric,
            value=value,
            detail={"score": score or {"kind": "exact", "num_samples": 20_000}, **more.pop("detail", {})},
            **more,
        )
    )


def score_file(records):
    return json.dumps({"schema": SCHEMA, "records": records})


def exact_score(name, seed, temperatures=TEMPERATURES):
    mine, records = case(name, seed), []
    for t in temperatures:
        curve = mine.curve(t)
        drawn = {
            "curve_precision": np.asarray(curve.precision(LAMS)).tolist(),
            "curve_recall": np.asarray(curve.recall(LAMS)).tolist(),
        }
        records += [
            record(name, seed, "precision", float(curve.precision(np.inf)), t=t),
            record(name, seed, "recall", 0.9 * float(curve.recall(0.8)), t=t, n=20_000, detail={"ceiling": 0.9}),
            record(name, seed, "auc", curve.auc, t=t, detail=drawn),
        ]
    return score_file(records)


def truncated_score(name, seed):
    records = []
    for min_p, t in product(THRESHOLDS, HEATS):
        decoding = Decoding(temperature=t, min_p=min_p, order="temperature_last")
        values = zip(("precision", "recall"), truncated(name, seed, min_p, t), strict=True)
        records += [
            record(name, seed, metric, value, decoding=decoding, n=20_000, detail={"ceiling": 0.9})
            for metric, value in values
        ]
    return score_file(records)


def separation(name, seed):
    """A separation record as the integer task writes it: NLL separates, lambda-PR does not."""
    edges = np.logspace(-6, 0, 31)
    middles, noise = np.log10(edges[:-1]) + 0.1, {"NLL": -3.0, "lambda-PR 0.1": -0.9}.get(name, -1.9)
    bump = [np.exp(-((middles - at) ** 2) / 0.4) for at in (-0.4, noise + 0.02 * seed)]
    histogram = dict(zip(("edges", "valid", "invalid"), (x.tolist() for x in (edges, *bump)), strict=True))
    detail = {"threshold": 10 ** ((noise - 0.4) / 2), "valid_below_noise": 0.03, "histogram": histogram}
    return score_file([record(name, seed, "separation", 0.99, detail=detail)])


def make_run(folder, name, seed, *, samples=(), num_samples=60, temperatures=TEMPERATURES):
    """One run folder; ``samples`` are temperatures at which texts are written."""
    loss = MODELS[name][0]
    (folder / "scores").mkdir(parents=True)
    (folder / "samples").mkdir()
    values = {"precision": 0.542, "recall": 0.619}
    published = [{"where": "tab:pr-wp", "claim": "c-Div trades precision for recall", "values": values}]
    experiment = {
        "name": name,
        "model": {
            "data": {"modulus": 97, "under_representation": 0.2, "seed": seed},
            "model": {"layers": 4},
            "loss": loss,
            "train": {"steps": 600},
            "seed": seed,
        },
        "start": None,
        "score": {"kind": "exact", "num_samples": 20_000},
        "published": published if name == "c-Div 1.4" else [],
        "not_in_paper": {"steps": "600, to be quick"},
    }
    (folder / "config.json").write_text(json.dumps({"schema": 1, "experiment": experiment}))
    (folder / "env.json").write_text(
        json.dumps({"schema": 1, "python": "3.11.2", "packages": {"torch": "2.13.0" if seed else "2.12.0"}})
    )
    rng = np.random.default_rng(seed)
    with (folder / "log.jsonl").open("w") as log:
        for step in range(0, 600, 5):
            nll = 0.4 + 3 * np.exp(-step / 90) + 0.03 * rng.standard_normal()
            row = {
                "step": step,
                "loss": 0.8 * nll,
                "nll": nll,
                "grad_norm": 1 + rng.random(),
                "weight_mean": 1.2,
                "weight_max": 3 + rng.random(),
                "weight_ess": 0.8,
                "weight_zero_share": 0.1,
            }
            log.write(json.dumps(row) + "\n")
    temperatures = (*temperatures, *(1.4 * t for t in temperatures)) if name == "NLL" else temperatures
    (folder / "scores" / "exact-0123.json").write_text(exact_score(name, seed, sorted(set(temperatures))))
    (folder / "scores" / "exact-4567.json").write_text(truncated_score(name, seed))
    (folder / "scores" / "separation-0123.json").write_text(separation(name, seed))
    knn = {"precision": (0.8, 0.75, 0.85), "recall": (0.3, 0.2, 0.4), "density": (1.1, None, None)}
    records = [
        record(name, seed, metric, value, task="stories", score={"kind": "knn", "k": 4}, low=low, high=high)
        for metric, (value, low, high) in knn.items()
    ]
    (folder / "scores" / "knn-0123.json").write_text(score_file(records))
    for t in samples:
        with (folder / "samples" / f"t{t:g}-0123.jsonl").open("w") as file:
            header = {
                "kind": "header",
                "schema": 1,
                "settings": {"decoding": f"t={t:g}", "max_tokens": 64, "seed": 0},
                "notes": [],
            }
            prompts = [{"kind": "prompt", "id": f"p{i}", "text": text} for i, text in enumerate(PROMPTS)]
            texts = [
                f"{name} at {t:g}: sample {i // 2}, a keeper climbs the stairs and counts waves."
                for i in range(num_samples)
            ]
            texts[: len(STRANGE)] = STRANGE if name == "NLL" else texts[: len(STRANGE)]
            drawn = [
                {"kind": "sample", "prompt": f"p{i % len(PROMPTS)}", "index": i, "text": text}
                for i, text in enumerate(texts)
            ]
            file.writelines(json.dumps(row) + "\n" for row in (header, *prompts, *drawn))
    return folder


def many_runs(root, *, models, seeds, temperatures, num_samples):
    """A study of ``models * seeds`` runs with samples of sixty different words each; returns the run folders."""
    rng = np.random.default_rng(0)
    words = [f"{stem}{i}" for stem in ("keeper", "climb", "wave", "lamp", "rock", "gull", "sleep") for i in range(300)]
    pool = [
        json.dumps({"kind": "sample", "prompt": f"p{i % 20}", "index": i, "text": " ".join(rng.choice(words, 60))})
        for i in range(3 * num_samples)
    ]
    heats = [round(0.1 * (i + 1), 3) for i in range(temperatures)]
    log = "".join(
        json.dumps({"step": i, "loss": 1 + 1 / (i + 1), "nll": 1.0, "weight_ess": 0.5}) + "\n" for i in range(2000)
    )
    paths = []
    for n in range(models * seeds):
        model, seed = divmod(n, seeds)
        folder = root / f"run{n}"
        (folder / "samples").mkdir(parents=True)
        (folder / "scores").mkdir()
        loss = "nll" if model == 0 else f"cdiv:alpha={1 + model / 10:g}"
        experiment = {
            "name": f"model {model}",
            "model": {"loss": loss, "seed": seed, "data": {"seed": seed}, "model": {}},
        }
        (folder / "config.json").write_text(json.dumps({"schema": 1, "experiment": experiment}))
        (folder / "scores" / "exact-0.json").write_text(exact_score("NLL", seed, heats))
        (folder / "log.jsonl").write_text(log)
        for t in heats:
            start = int(rng.integers(2 * num_samples))
            header = json.dumps({"kind": "header", "schema": 1, "settings": {"decoding": f"t={t:g}"}})
            (folder / "samples" / f"t{t:g}.jsonl").write_text(
                "\n".join([header, *pool[start : start + num_samples]]) + "\n"
            )
        paths.append(folder)
    return paths


def plain_run(name="NLL", *, loss="nll", seed=0, points=(), cells=(), log=(), env=None, folder="run", **model):
    """A run as the page gets it, without a folder."""
    experiment = {"name": name, "model": {"loss": loss, "seed": seed, "data": {"seed": seed}, "model": {}, **model}}
    records = [replace(r, loss=loss, seed=seed) for records in points for r in records]
    return RunData(name=folder, experiment=experiment, env=env or {}, log=log, records=records, samples=cells)


def point(decoding, precision=0.9, recall=0.5, *, ceiling=None, n=None):
    """The two records of a point; a number is a temperature."""
    spec = decoding if isinstance(decoding, str) else f"t={decoding}"
    about = {"task": "mulmod", "model": "m", "loss": "nll", "decoding": Decoding.parse(spec), "seed": 0}
    detail = {"score": {"kind": "exact"}}
    return [
        Record(**about, metric="precision", value=precision, detail=detail),
        Record(**about, metric="recall", value=recall, n=n, detail=detail | ({"ceiling": ceiling} if ceiling else {})),
    ]
