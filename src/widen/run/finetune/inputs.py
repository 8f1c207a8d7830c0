"""Detects that data or weights have changed under the same name. Digests are written when a run begins and checked later.

inputs.json     {"weights": digest, "train": counts and digest of tokens, "evaluate": ..., "sources": digests of the files}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widen.disk.digest import source_digest

from ..folder import RunFolder, folder_of
from ..value import from_json, to_json
from .config import FineTune, Source
from .model_files import load_tokenizer
from .reference_column import reference_key
from .token_data import DataFacts, TokenData, load_data

__all__ = ["inputs", "same_data", "same_inputs"]

NAMES = {
    "weights": "the weights it starts from",
    "train": "its training data",
    "evaluate": "its held-out data",
    "reference": "its reference model",
}


def inputs(folder: RunFolder) -> DataFacts:
    """The counts of a run's training data."""
    return from_json(DataFacts, folder.read(folder.path / "inputs.json")["train"])


def same_inputs(folder: RunFolder, config: FineTune, data: dict[str, TokenData], weights: str) -> None:
    """Write inputs.json, or refuse to continue a run with other content under the same names."""
    found = {"weights": weights, "evaluate": None, **{key: to_json(one.facts) for key, one in data.items()}}
    if config.reference is not None:
        found["reference"] = reference_key(config, data["train"])
    path = folder.path / "inputs.json"
    if not path.exists():
        read = {key: source_digest(source.path) for key, source in config.sources.items()}
        folder.write(path, {**found, "sources": read})
        return
    before = folder.read(path)
    if changed := [text for key, text in NAMES.items() if before.get(key) != found.get(key)]:
        raise ValueError(
            f"{folder.path} was begun with other content under the same names: {' and '.join(changed)} changed; "
            "restore it, or remove the folder to begin again"
        )


def same_data(config: FineTune, root: str | Path, cache: dict[Any, TokenData]) -> None:
    """Refuse a model, or one that it starts from, whose data is on this machine and has changed since the training."""
    for one in config.chain:
        folder = folder_of(root, one)
        path = folder.path / "inputs.json"
        if not path.exists():
            continue
        before = folder.read(path)
        for key, source in one.sources.items():
            if _changed(one, source, before.get(key), (before.get("sources") or {}).get(key), cache):
                raise ValueError(
                    f"{folder.path} was trained with other content of {source.path or source.task}: {NAMES[key]} changed since; "
                    "restore it, take another --out, or remove the folder to train again"
                )


def _changed(config: FineTune, source: Source, facts: Any, digest: str | None, cache: dict[Any, TokenData]) -> bool:
    """Whether a source now gives other tokens. Its examples are read only if its bytes have changed."""
    now = source_digest(source.path)
    if now is None or now == digest:
        return False
    try:
        load_tokenizer(config.model)
    except (ValueError, OSError, ImportError):
        return digest is not None  # without the tokenizer only the bytes can be compared
    try:
        return bool(to_json(load_data(config, source, cache, skip_bad=True).facts) != facts)
    except (ValueError, OSError):
        return True  # it could be read before
