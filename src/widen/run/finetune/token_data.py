"""The data of a fine-tuning: read, checked, tokenised and counted before any weight is loaded, and compared when a run continues.

A token takes four bytes for its id and one that says whether it is a target, instead of 72 in Python lists.

inputs.json     {"weights": digest, "train": counts and digest of tokens, "evaluate": ..., "sources": digests of the files, "chat": bool}
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widen.data.tasks import IGNORED, Encoded, encode, listed, read
from widen.data.tasks.definition import LOSS_WEIGHTS
from widen.disk.digest import source_digest

from ..folder import RunFolder, folder_of
from ..value import NEWER, from_json, to_json
from .config import FineTune, Source
from .model_files import load_tokenizer, settings_of
from .reference_column import reference_key


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """Counts of the examples, and a digest of all tokens and masks."""

    examples: int
    left_out: int
    tokens: int
    targets: int
    longest: int
    prompts_cut: int
    completions_cut: int
    digest: str
    repeats: int = field(default=0, metadata=NEWER)

    def __str__(self) -> str:
        """One sentence.

        >>> facts = DataFacts(examples=3, left_out=1, tokens=30, targets=9, longest=12, prompts_cut=0, completions_cut=2, digest="")
        >>> print(facts)
        3 examples, 9 target tokens of 30, the longest 12; 1 bad record left out; 2 completions cut at max_length
        """
        text = f"{_count(self.examples, 'example')}, {self.targets:,} target tokens of {self.tokens:,}, the longest {self.longest:,}"
        text += f"; {_count(self.left_out, 'bad record')} left out" * bool(self.left_out)
        text += f"; {_count(self.repeats, 'repeat')} left out" * bool(self.repeats)
        text += f"; {_count(self.prompts_cut, 'prompt')} cut to leave room" * bool(self.prompts_cut)
        return text + f"; {_count(self.completions_cut, 'completion')} cut at max_length" * bool(self.completions_cut)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


class TokenData:
    """Tokenised examples as a data set for a trainer: ``input_ids`` and ``labels`` of each, and ``columns``.

    A column has one array per example, aligned with ``input_ids``: ``loss_weights`` where the data has them, ``ref_logq`` where a
    reference model has read the data. ``chat`` says whether the data holds conversations.
    """

    def __init__(self, encoded: Sequence[Encoded], *, left_out: int = 0, repeats: int = 0, chat: bool = False) -> None:
        self.chat = chat
        self.ids = [np.asarray(one.input_ids, np.int32) for one in encoded]
        self.targets = [np.asarray(one.labels) != IGNORED for one in encoded]
        self.columns: dict[str, list[NDArray[np.float32]]] = {}
        given = [one.loss_weights for one in encoded]
        if any(weights is not None for weights in given):
            if None in given:
                raise ValueError(
                    f"example {given.index(None) + 1} has no 'loss_weights', and others have: give them to every record"
                )
            self.columns[LOSS_WEIGHTS] = [np.asarray(weights, np.float32) for weights in given]
        self.largest = max((int(ids.max()) for ids in self.ids), default=0)
        lengths = [len(ids) for ids in self.ids]
        starts = [int(mask.argmax()) for mask in self.targets]
        digest = hashlib.sha256(np.asarray(starts, np.int64).tobytes())
        for start, mask in zip(starts, self.targets, strict=True):
            if not mask[start:].all():  # a conversation with several answers: its first target does not say it all
                digest.update(np.packbits(mask).tobytes())
        for ids in self.ids:
            digest.update(len(ids).to_bytes(8, "little") + ids.tobytes())
        for weights in self.columns.get(LOSS_WEIGHTS, ()):
            digest.update(weights.tobytes())
        self.facts = DataFacts(
            examples=len(self.ids),
            left_out=left_out,
            tokens=sum(lengths),
            targets=sum(int(mask.sum()) for mask in self.targets),
            longest=max(lengths, default=0),
            prompts_cut=sum(one.prompt_cut > 0 for one in encoded),
            completions_cut=sum(one.completion_cut > 0 for one in encoded),
            digest=digest.hexdigest()[:16],
            repeats=repeats,
        )

    def with_column(self, name: str, values: list[NDArray[np.float32]]) -> TokenData:
        """The same examples with one more column."""
        made = copy(self)
        made.columns = self.columns | {name: values}
        return made

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        labels = np.where(self.targets[index], self.ids[index], IGNORED)
        columns = {name: values[index].tolist() for name, values in self.columns.items()}
        return {"input_ids": self.ids[index].tolist(), "labels": labels.tolist(), **columns}


def load_data(config: FineTune, source: Source, cache: dict[Any, TokenData], *, skip_bad: bool) -> TokenData:
    """The tokens of a source for the model of a config; ``cache`` holds what was loaded before.

    Bad records are an error unless ``skip_bad``.
    """
    key = (source, config.model, config.max_length, skip_bad)
    if key in cache:
        return cache[key]
    found = read(
        source.task,
        source.path,
        split=source.split,
        limit=source.limit,
        answered=True,
        facts=False,
        prompt_field=source.prompt_field,
        completion_field=source.completion_field,
    )
    bad = len(found.bad)
    if bad and not skip_bad:
        raise ValueError(
            f"{bad} of {bad + len(found.examples)} records cannot be learnt from (--skip-bad leaves them out):\n{listed(found.bad)}"
        )
    if not found.examples:
        first = f"; the first of {_count(bad, 'bad record')}: {found.bad[0]}" if bad else ""
        raise ValueError(f"{source.path or source.task} holds no example to learn from{first}")
    tokenizer, settings = load_tokenizer(config.model), settings_of(config.model)
    bos = getattr(settings, "bos_token_id", None)
    bos = bos if isinstance(bos, int) else None
    encoded = []
    for number, one in enumerate(found.examples, start=1):
        try:
            encoded.append(encode(one, tokenizer, max_length=config.max_length, first_token=bos))
        except ValueError as error:
            own = one.loss_weights is not None or one.messages  # the fault may be the example's own
            where = f"example {number} ({one.prompt[:40]!r}): " if own else ""
            raise ValueError(f"{where}{error}") from None
    every = len(encoded)
    if source.distinct:
        first: dict[str, Encoded] = {}
        for each in encoded:
            first.setdefault(repr((each.input_ids, each.labels, each.loss_weights)), each)
        encoded = list(first.values())
    chat = any(one.messages for one in found.examples)
    cache[key] = TokenData(encoded, left_out=bad, repeats=every - len(encoded), chat=chat)
    return cache[key]


def refuse_misfit(config: FineTune, tokenizer: Any, data: TokenData) -> None:
    """Refuse examples longer than the model's positions, and tokens without an embedding."""
    settings = settings_of(config.model).get_text_config()
    positions, size = (getattr(settings, name, None) for name in ("max_position_embeddings", "vocab_size"))
    if isinstance(positions, int) and 0 < positions < data.facts.longest:
        raise ValueError(
            f"max_length={config.max_length}: the longest example has {data.facts.longest} tokens, and {config.model} has "
            f"{positions} positions; take --max-length {positions}, which cuts longer examples"
        )
    largest = max(data.largest, tokenizer.pad_token_id or 0)
    if isinstance(size, int) and largest >= size:
        token = tokenizer.convert_ids_to_tokens(largest)
        raise ValueError(
            f"the tokenizer of {config.model} has the token {token!r} with number {largest}, and the model an embedding of {size}: "
            "use the model's own tokenizer, or resize its embedding (resize_token_embeddings) and save it"
        )


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
        folder.write(path, {**found, "sources": read, "chat": data["train"].chat})
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


def padded(features: Sequence[dict[str, list[int]]], *, pad: int) -> dict[str, Any]:
    """A batch padded at the right, with an attention mask."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = ([torch.tensor(one[name]) for one in features] for name in ("input_ids", "labels"))
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    }


def packed(features: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
    """A batch as one row. Positions restart with each sequence, which keeps attention apart.

    The first token of a sequence is never a target: `encode` puts at least one token before the completion.
    """
    import torch

    return {
        "input_ids": torch.tensor([[i for one in features for i in one["input_ids"]]]),
        "labels": torch.tensor([[i for one in features for i in one["labels"]]]),
        "position_ids": torch.tensor([[i for one in features for i in range(len(one["input_ids"]))]]),
    }
