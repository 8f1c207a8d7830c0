"""The model card of a fine-tuned run (checkpoint/README.md): loss, data, decoding and scores with their intervals.

`widen train` writes it; `widen advise`, `widen score` and `widen report` write it again with the scores, and put the recommended decoding
into generation_config.json if transformers applies the same steps in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from widen.data.tasks.source_files import ENDINGS
from widen.disk.atomic import write_text
from widen.disk.checksums import changing
from widen.hosts.card import TAG, loss_text
from widen.sample.decoding import Decoding

from .advise.advice import read_advice
from .advise.engines import DECODING_KEYS, generation_settings, transformers_call
from .asking import by_asking, score_key, score_labels
from .finetune.config import FineTune, is_finetune
from .finetune.token_data import inputs
from .folder import RunFolder
from .record import Record, all_records
from .value import from_json

MARK = "<!-- widen writes this file again after each score; remove this line to keep your own text -->"
_SHOWN = ("precision", "recall", "pass@", "coverage", "mauve")


def complete_card(folder: RunFolder) -> Path | None:
    """Write the card and the recommended decoding of a fine-tuned run; None if it is none, or its card was edited by hand."""
    path = folder.path / "checkpoint" / "README.md"
    if not folder.is_trained or not folder.config.exists() or not is_finetune(folder.read(folder.config)):
        return None
    if path.exists() and MARK not in path.read_text(encoding="utf-8"):
        return None
    text = card_text(folder)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    best = _chosen(folder)
    settings = None if best is None else generation_settings(best[0])
    file = folder.checkpoint / "generation_config.json"
    if settings is not None and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        after = {key: value for key, value in before.items() if key not in DECODING_KEYS} | settings
        if after != before:
            with changing(folder.checkpoint, file.name):
                write_text(file, json.dumps(after, indent=2, sort_keys=True) + "\n")
    return path


def _chosen(folder: RunFolder) -> tuple[Decoding, str] | None:
    """The decoding for users of the model, and why: that of `widen advise` if it chose this model, or else the `recommended` one."""
    advice = read_advice(folder.path.parent)
    if advice is not None and Path(advice.folder).name == folder.path.name:
        decoding = Decoding.parse(advice.decoding)
        how = f"`{decoding.spec}` ({decoding.in_words}). {advice.outlook}"
        if not advice.met:
            return decoding, f"No decoding meets the wish *{advice.wish}* of `widen advise`. The closest is {how}"
        return decoding, f"Recommended by `widen advise` for the wish *{advice.wish}*: {how}"
    found = recommended(all_records(folder))
    if found is None:
        return None
    best, way = found
    asked = f", asked with {way}" if way else ""
    return best, (
        f"Recommended: `{best.spec}` ({best.in_words}){asked}. It has the highest F1 of precision and recall (or of "
        "pass@1 and pass@k) among the decodings below. It was chosen on these numbers, so they are optimistic."
    )


def recommended(records: Sequence[Record]) -> tuple[Decoding, str] | None:
    """The decoding with the highest F1 of precision and recall, and the way of asking in words; None without a choice.

    It is chosen in the table with the most decodings. If recall is pass@k - pass@1, which falls as precision rises, pass@k takes its place.
    """
    tables: list[tuple[str, dict[Decoding, float]]] = []
    for way, _, rows in _tables(records):
        f1 = {}
        for decoding, point in rows.items():
            if {"precision", "recall"} <= point.keys():
                p, r = max(point["precision"].value, 0.0), max(point["recall"].value, 0.0)
                r += p if "recall_normalised" in point else 0.0
                f1[decoding] = 2 * p * r / (p + r) if p + r else 0.0
        tables.append((way, f1))
    way, most = max(tables, key=lambda table: len(table[1]), default=("", {}))
    if len(most) < 2 or max(most.values()) == 0:
        return None
    return max(most, key=lambda one: most[one]), way


def _tables(records: Sequence[Record]) -> list[tuple[str, str, dict[Decoding, dict[str, Record]]]]:
    """The records that compare, by decoding and metric, each with the way of asking and the score in words."""
    found, labels = [], score_labels(records)
    for way, group in by_asking(records):
        tables: dict[str, dict[Decoding, dict[str, Record]]] = {}
        for one in group:
            if one.decoding is not None:
                tables.setdefault(labels[score_key(one)], {}).setdefault(one.decoding, {})[one.metric] = one
        found += [(way, score, rows) for score, rows in tables.items()]
    return found


def card_text(folder: RunFolder) -> str:
    """The card, from the files of the run."""
    from huggingface_hub import ModelCardData

    config = from_json(FineTune, folder.read(folder.config)["experiment"]["model"])
    base = config.model if _on_hub(config.model) else None
    datasets = [config.train.path.partition(":")[0]] if _on_hub(config.train.path) else None
    about = ModelCardData(
        base_model=base, datasets=datasets, tags=[TAG], library_name="transformers", pipeline_tag="text-generation"
    )
    parts = [
        f"---\n{about.to_yaml()}\n---\n\n{MARK}\n\n# {_short(config.model)}, fine-tuned with {config.loss}\n",
        loss_text(str(config.loss), config.weight_scale),
        _training(folder, config),
        _decoding(_chosen(folder), chat=bool(folder.read(folder.path / "inputs.json").get("chat"))),
        _scores(all_records(folder)),
    ]
    return "\n".join(parts)


def _training(folder: RunFolder, config: FineTune) -> str:
    lines = [f"## Training data\n\n{_data(config)}: {inputs(folder)}.\n"]
    if config.after is not None:
        lines.append(f"Before that, {config.after.epochs:g} epochs with `{config.after.loss}`.\n")
    summary = folder.read(folder.path / "summary.json")
    lines.append(
        f"NLL per token of the training data: {summary['nll_first']:.3f} at first, {summary['nll_last']:.3f} at last"
        + (f"; of held-out data: {summary['eval_nll']:.3f}" if summary["eval_nll"] is not None else "")
        + f". Learning rate {summary['chosen']['lr']:g}, {summary['steps']:,} steps of {config.batch_size} sequences.\n"
    )
    return "\n".join(lines)


def _data(config: FineTune) -> str:
    split = f", split `{config.train.split}`" if _on_hub(config.train.path) else ""
    return f"`{_short(config.train.path) or config.train.task}` in the format `{config.train.task}`{split}"


def _decoding(found: tuple[Decoding, str] | None, *, chat: bool) -> str:
    if found is None:
        return (
            "## Decoding\n\nNone is recommended: fewer than two decodings have a precision and a recall. `widen sample` draws at several, "
            "`widen score` measures them.\n"
        )
    best, why = found
    text = f"## Decoding\n\n{why} "
    if generation_settings(best) is not None:
        return f"{text}It is in `generation_config.json`: `model.generate(**inputs)` uses it.\n"
    return (
        f"{text}It is not in `generation_config.json`, because transformers cannot apply these steps in this order. Draw with "
        f"`widen sample MODEL --prompts FILE --decodings '{best.spec}'{' --chat' if chat else ''}`, or in Python:\n\n"
        f"```python\n{transformers_call(best, chat=chat)}\n```\n"
    )


def _scores(records: Sequence[Record]) -> str:
    tables, lines = _tables(records), ["## Scores\n"]
    for way, score, rows in tables:
        metrics = [
            name for name in dict.fromkeys(m for point in rows.values() for m in point) if name.startswith(_SHOWN)
        ]
        title = f"{score}, {way}" if way else score
        bars = any(one.low is not None for point in rows.values() for one in point.values())
        lines += [title + "; 95 % intervals in brackets" * bars + ":\n", "| decoding | " + " | ".join(metrics) + " |"]
        lines.append("|---" * (len(metrics) + 1) + "|")
        for decoding, point in rows.items():
            cells = " | ".join(_cell(point.get(metric)) for metric in metrics)
            lines.append(f"| `{decoding.spec}` | {cells} |")
        lines.append("")
    return "\n".join(lines if tables else [*lines, "Not scored yet.\n"])


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    interval = f" [{record.low:.3f}, {record.high:.3f}]" if record.low is not None and record.high is not None else ""
    return f"{record.value:.3f}{interval}"


def _on_hub(name: str) -> bool:
    """Whether a name can be of the hub: ``owner/name``, and no file or folder here."""
    local = name.startswith((".", "/", "~")) or Path(name).suffix.lower() in ENDINGS or Path(name).exists()
    return name.count("/") == 1 and not local


def _short(name: str) -> str:
    """A name of the hub, or the last part of a path; no folders of this machine."""
    return name if _on_hub(name) else Path(name).name
