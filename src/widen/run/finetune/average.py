"""The average of several models' weights, tensor by tensor: WiSE-FT (two models) and model soups (several).

Folders are read and written as safetensors, one tensor at a time, so that a large model needs memory for one of its files. A model of the
hub, or folders whose tensors have other names, are first loaded and saved by transformers: that needs memory for one model.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from widen.disk.checksums import check_files
from widen.disk.json_file import read_json

from .model_files import load_as_saved, load_tokenizer, resolved, write_model

_COMPARED = {
    "config.json": (
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "vocab_size",
    ),
    "adapter_config.json": ("peft_type", "r", "target_modules", "base_model_name_or_path"),
}
"""The settings of a model and of an adapter, and what must be equal in them."""
_TIED = ("lm_head.weight", "embed_out.weight")
"""Names under which a tied output layer may be stored a second time."""


def average_models(models: Sequence[str | Path], weights: Sequence[float], out: Path) -> None:
    """Write ``sum_i weights[i] * model_i`` into ``out``; tokenizer and settings are those of the first model.

    Sums are float32; each tensor has the dtype of the first model's. A tied output layer is stored once. An adapter's matrices A and B are
    averaged each by itself, which is not the average of the products B A; average merged models for that.

    Args:
      models: run folders, folders of models or of adapters, as transformers and PEFT save them, or names of models on the hub.
      weights: one per model; they add up to 1.
      out: an empty folder.

    Raises:
      ValueError: models differ in architecture, size, adapter rank, or in the name, shape or integer values of a tensor.
    """
    if len(models) < 2:
        raise ValueError(f"{len(models)} model: an average needs at least two")
    if len(weights) != len(models):
        raise ValueError(f"{len(weights)} weights for {len(models)} models: give one per model")
    if not all(map(math.isfinite, weights)) or not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        raise ValueError(
            f"weights {', '.join(f'{w:g}' for w in weights)} add up to {sum(weights):g}; they must add up to 1"
        )
    with ExitStack() as opened:
        folders = [_folder(one, out, opened) for one in models]
        kind, tied = _refuse_other_kinds(models, folders)
        stores = [_tensors(folder, opened) for folder in folders]
        if kind == "model" and any(_apart(stores[0], store, tied) for store in stores[1:]):
            folders = [_saved(one, out, opened) for one in models]
            stores = [_tensors(folder, opened) for folder in folders]
        _refuse_other_tensors(models, stores, tied)
        first = folders[0]
        for file in sorted(first.glob("*.safetensors")):
            with safe_open(file, framework="pt") as given:
                names = [name for name in given.keys() if all(name in store for store in stores)]  # noqa: SIM118
                metadata = given.metadata()
            made = {name: _mean(name, stores, weights) for name in names}
            save_file(made, out / file.name, metadata=metadata)
        for path in first.iterdir():  # a card tells of the first model alone
            if path.is_file() and path.suffix != ".safetensors" and path.name not in ("checksums.json", "README.md"):
                shutil.copyfile(path, out / path.name)


def _folder(model: str | Path, place: Path, opened: ExitStack) -> Path:
    """The folder of a model or adapter; a name on the hub, and weights that are not safetensors, are saved as a folder."""
    path = Path(resolved(str(model)))
    if not path.is_dir() or ((path / "config.json").is_file() and not any(path.glob("*.safetensors"))):
        return _saved(model, place, opened)
    check_files(path)
    return path


def _saved(model: str | Path, place: Path, opened: ExitStack) -> Path:
    """The model with the tensors that this transformers saves, in a folder that goes when ``opened`` is closed."""
    folder = Path(opened.enter_context(TemporaryDirectory(dir=place)))
    write_model(load_as_saved(str(model)), load_tokenizer(str(model)))(folder)
    return folder


def _refuse_other_kinds(models: Sequence[str | Path], folders: Sequence[Path]) -> tuple[str, bool]:
    """Compare what the settings say; whether these are models or adapters, and whether the output layer is tied."""
    found: list[tuple[str, dict[str, Any]]] = []
    for model, folder in zip(models, folders, strict=True):
        name = next((name for name in _COMPARED if (folder / name).is_file()), None)
        if name is None:
            raise ValueError(f"{model} is neither a run folder nor a model: it has no {' and no '.join(_COMPARED)}")
        found.append((name, read_json(folder / name)))
    kind, first = found[0]
    what = "adapter" if kind == "adapter_config.json" else "model"
    for model, (other_kind, other) in zip(models, found, strict=True):
        if other_kind != kind:
            raise ValueError(f"{models[0]} is a {what} and {model} is not: only like can be averaged with like")
        for key in _COMPARED[kind]:
            mine, theirs = (
                sorted(one[key]) if isinstance(one.get(key), list) else one.get(key) for one in (first, other)
            )
            if mine != theirs:
                said = f"{what}s of different {'rank' if key == 'r' else key} have no average"
                raise ValueError(f"{models[0]} has {key}={mine!r} and {model} has {theirs!r}: {said}")
    return what, bool(first.get("tie_word_embeddings"))


def _tensors(folder: Path, opened: ExitStack) -> Mapping[str, Any]:
    """Name -> the open file that has it."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} has no weights as .safetensors; save the adapter again with a newer PEFT")
    stores = [opened.enter_context(safe_open(file, framework="pt")) for file in files]
    return {name: store for store in stores for name in store.keys()}  # noqa: SIM118


def _apart(first: Mapping[str, Any], other: Mapping[str, Any], tied: bool) -> list[str]:
    """Names that only one of two models has."""
    return [name for name in sorted(set(first) ^ set(other)) if not (tied and name.endswith(_TIED))]


def _refuse_other_tensors(models: Sequence[str | Path], stores: Sequence[Mapping[str, Any]], tied: bool) -> None:
    first = stores[0]
    for model, store in zip(models[1:], stores[1:], strict=True):
        for name in _apart(first, store, tied):
            has, lacks = (models[0], model) if name in first else (model, models[0])
            raise ValueError(f"{has} has a tensor {name} and {lacks} has none: they are not models of one kind")
        for name in set(first) & set(store):
            mine, theirs = (one[name].get_slice(name).get_shape() for one in (first, store))
            if mine != theirs:
                raise ValueError(
                    f"{name} has shape {mine} in {models[0]} and {theirs} in {model}: they have no average"
                )


def _mean(name: str, stores: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> Tensor:
    first: Tensor = stores[0][name].get_tensor(name)
    if not first.is_floating_point():
        if any(not torch.equal(first, store[name].get_tensor(name)) for store in stores[1:]):
            raise ValueError(
                f"{name} holds whole numbers ({first.dtype}) that differ between the models: they have no average"
            )
        return first
    total = torch.zeros(first.shape, dtype=torch.float32)
    for store, weight in zip(stores, weights, strict=True):
        total.add_(store[name].get_tensor(name).float(), alpha=weight)
    return total.to(first.dtype)
