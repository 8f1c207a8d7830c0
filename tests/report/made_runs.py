"""Run folders made from the artificial case, with texts that would break a careless page. No tests here."""

import json

import numpy as np

from widen.run.record import SCHEMA, Record, record_json
from widen.sample import Decoding
from widen.theory import ArtificialCase

TEMPERATURES = (0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.2)
LAMS = np.r_[np.tan(np.linspace(0, np.pi / 2, 65))[:-1], np.inf]
MODELS = {
    "NLL": ("nll", 0.12, 0.80),
    "c-Div 1.4": ("nll:steps=300 then cdiv:alpha=1.4,cap=10000.0", 0.16, 0.68),
    "TruncR 0.1": ("truncr:drop=0.1,window=10000,score=sum", 0.10, 0.72),
    "lambda-PR 0.1": ("lambda_pr:lam=0.1,gamma=1e-05", 0.30, 0.62),
}
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


def record(name, seed, metric, value, *, t=1.0, task="mulmod", score=None, **more):
    """One record of a made run, as JSON."""
    return record_json(
        Record(
            task=task,
            model="llama-4x32",
            loss=MODELS[name][0],
            decoding=Decoding(temperature=round(t, 9)),
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
                "ess": 0.8,
                "zero_share": 0.1,
            }
            log.write(json.dumps(row) + "\n")
    temperatures = (*temperatures, *(1.4 * t for t in temperatures)) if name == "NLL" else temperatures
    (folder / "scores" / "exact-0123.json").write_text(exact_score(name, seed, sorted(set(temperatures))))
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
    log = "".join(json.dumps({"step": i, "loss": 1 + 1 / (i + 1), "nll": 1.0, "ess": 0.5}) + "\n" for i in range(2000))
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
