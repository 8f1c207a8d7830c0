"""Detects that data or weights have changed under the same name: digests are written when a run begins and checked later.

inputs.json     {"weights": digest, "train": counts and digest of tokens, "evaluate": ..., "sources": digests of the files}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widen.disk.digest import source_digest

from ..folder import RunFolder, folder_of
from ..value import from_json, to_json
from .config import FineTune, Source
from .model_files import first_token, load_tokenizer, settings_of
from .prepare import Prepared, chain
from .reference import reference_key
from .token_data import DataFacts, read_all, tokenise

__all__ = ["inputs", "same_data", "same_inputs"]

NAMES = {
    "weights": "the weights it starts from",
    "train": "its training data",
    "evaluate": "its held-out data",
    "reference": "its reference model",
}


def inputs(folder: RunFolder) -> DataFacts:
    """The counts of what a run was trained on."""
    return from_json(DataFacts, folder.read(folder.path / "inputs.json")["train"])


def same_inputs(folder: RunFolder, one: Prepared, weights: str) -> None:
    """Write down what the run is made from, or refuse to continue with other content under the same names."""
    found: dict[str, Any] = {
        "weights": weights,
        "train": to_json(one.train.facts),
        "evaluate": to_json(one.evaluate.facts) if one.evaluate else None,
    }
    if one.config.reference is not None:
        found["reference"] = reference_key(one.config, one.train)
    path = folder.path / "inputs.json"
    if not path.exists():
        read = {key: source_digest(source.path) for key, source in _sources(one.config).items()}
        folder.write(path, {**found, "sources": read})
        return
    before = folder.read(path)
    if changed := [text for key, text in NAMES.items() if before.get(key) != found.get(key)]:
        raise ValueError(
            f"{folder.path} was begun with other content under the same names: {' and '.join(changed)} changed; "
            "restore it, or remove the folder to begin again"
        )


def same_data(config: FineTune, root: str | Path, cache: dict[Any, Any]) -> None:
    """Refuse a model, or the model it starts from, if its data is here and differs from what it was trained on.

    Args:
      cache: shared by several calls, so that common data is read once.
    """
    for one in chain(config):
        folder = folder_of(root, one)
        path = folder.path / "inputs.json"
        if not path.exists():
            continue
        before = folder.read(path)
        for key, source in _sources(one).items():
            if _changed(one, source, before.get(key), (before.get("sources") or {}).get(key), cache):
                raise ValueError(
                    f"{folder.path} was trained with other content of {source.path or source.task}: {NAMES[key]} changed since; "
                    "restore it, take another --out, or remove the folder to train again"
                )


def _sources(config: FineTune) -> dict[str, Source]:
    return {"train": config.train} | ({"evaluate": config.evaluate} if config.evaluate else {})


def _changed(config: FineTune, source: Source, facts: Any, digest: str | None, cache: dict[Any, Any]) -> bool:
    """Whether a source now gives other tokens. Its examples are read only if its bytes have changed."""
    now = source_digest(source.path)
    if now is None or now == digest:
        return False
    key = ("again", source, config.model, config.max_length)
    if key not in cache:
        try:
            examples, left_out = read_all(source, skip_bad=True)
        except (ValueError, OSError):
            return True  # it could be read before
        try:
            tokenizer, first = load_tokenizer(config.model), first_token(settings_of(config.model))
        except (ValueError, OSError, ImportError):
            return digest is not None  # without the tokenizer only the bytes can be compared
        cache[key] = tokenise(
            examples, tokenizer, max_length=config.max_length, first_token=first, left_out=left_out
        ).facts
    return bool(to_json(cache[key]) != facts)
