"""Loads, adapts and writes the model of a fine-tuning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from widen.disk.checksums import check_files
from widen.disk.inside import tree_inside
from widen.needs import require

from .config import FineTune, Lora


def is_run(path: str) -> bool:
    """Whether a path is a run folder: its config.json holds an experiment. That of a Hugging Face model names an architecture."""
    try:
        return "experiment" in json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def may_be_on_hub(model: str) -> bool:
    """Whether a name has the form of one on the hub, ``name`` or ``owner/name``. Every other name is a path."""
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model) is not None


def resolved(model: str) -> str:
    """A model's folder or hub name; a run folder stands for its checkpoint."""
    if not is_run(model):
        return model
    if not (Path(model) / "checkpoint" / "config.json").is_file():
        raise FileNotFoundError(f"{model} has no trained model yet: it is the folder of a run that has not finished")
    return str(tree_inside(model, Path(model) / "checkpoint"))


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a model."""
    require("widen train")
    from transformers import AutoTokenizer

    return _loaded(lambda name: AutoTokenizer.from_pretrained(name, trust_remote_code=False), "tokenizer", model)


def settings_of(model: str) -> Any:
    """The model's config, without its weights."""
    from transformers import AutoConfig

    return _loaded(lambda name: AutoConfig.from_pretrained(name, trust_remote_code=False), "settings", model)


def check_packages(config: FineTune) -> None:
    """Refuse options whose package is not installed."""
    wanted = {"bitsandbytes": "load_in_4bit (--load-in-4bit)"} if config.load_in_4bit else {}
    if config.report_to != "none":
        wanted[config.report_to] = f"report_to={config.report_to!r} (--report-to)"
    for package, option in wanted.items():
        if find_spec(package) is None:
            raise ImportError(f"{option} needs {package}: pip install {package}")


def four_bit(precision: str) -> Any:
    """The settings of QLoRA (NF4 with double quantisation) for a precision."""
    import torch
    from transformers import BitsAndBytesConfig

    computes = {"fp16": torch.float16, "fp32": torch.float32}.get(precision, torch.bfloat16)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=computes,
    )


def load_model(model: str, *, precision: str, four_bit_on: Any = None) -> Any:
    """The model to train, with float32 weights (bfloat16 for pure_bf16).

    Args:
      four_bit_on: hold its linear layers but the head in 4 bits, on this device.
    """
    import torch

    options: dict[str, Any] = {"dtype": torch.bfloat16 if precision == "pure_bf16" else torch.float32}
    if four_bit_on is not None:
        options |= {"quantization_config": four_bit(precision), "device_map": {"": four_bit_on}}
    loaded = _weights(model, **options)
    _can_be_saved(loaded, model)
    return loaded


def load_as_saved(model: str) -> Any:
    """The model in the dtype of its files, on the CPU; files without a tensor that such a model has are refused."""
    loaded, found = _weights(model, dtype="auto", output_loading_info=True)
    if lacking := sorted(found["missing_keys"]):
        raise ValueError(f"{model} has no tensor {lacking[0]}, which a model of its kind has")
    _can_be_saved(loaded, model)
    return loaded


def _weights(model: str, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    check_files(resolved(model))
    return _loaded(
        lambda name: AutoModelForCausalLM.from_pretrained(name, trust_remote_code=False, **options), "weights", model
    )


def _can_be_saved(loaded: Any, model: str) -> None:
    """Mend a generation_config with a temperature and do_sample=False, which transformers loads but refuses to save."""
    settings = getattr(loaded, "generation_config", None)
    if settings is None:
        return
    try:
        settings.validate(strict=True)
    except ValueError:
        settings.do_sample = True  # what a temperature or top_p in there asks for
        try:
            settings.validate(strict=True)
        except ValueError as error:
            lines = " ".join(str(error).split())
            raise ValueError(f"the generation_config of {model!r} could not be saved again: {lines[:300]}") from None


def _loaded(load: Callable[[str], Any], what: str, model: str) -> Any:
    """Load, and turn the long errors of transformers into one sentence."""
    try:
        return load(resolved(model))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        folder = Path(resolved(model))
        place = "" if folder.exists() else " (there is no folder of that name here)"
        if what == "tokenizer" and folder.is_dir() and not any(folder.glob("*token*")):
            lines = ["the folder holds no tokenizer (tokenizer.json, tokenizer_config.json): save one beside the model"]
        raise ValueError(f"cannot load the {what} of {model!r}{place}: {lines[0].rstrip(': ')}") from None


def adapted(model: Any, lora: Lora) -> Any:
    """The model with an adapter; only the adapter is trained."""
    require("LoRA")
    from peft import LoraConfig, get_peft_model

    names = [name.strip() for name in str(lora.targets).split(",")]
    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if names == ["all-linear"] else names,
    )
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        raise ValueError(f"lora.targets={lora.targets!r}: {str(error).splitlines()[0]}") from None


def merged(start: Any, adapter: str | Path) -> Any:
    """The model that training started from, loaded again in full precision, with the adapter merged in."""
    from peft import PeftModel

    return PeftModel.from_pretrained(start, str(adapter)).merge_and_unload()


def saved_dtype(config: FineTune) -> Any:
    """The dtype of the finished weights; None leaves them as they were trained."""
    import torch

    if config.save_dtype == "trained":
        return None
    name = getattr(settings_of(config.model), "dtype", None) if config.save_dtype == "auto" else config.save_dtype
    return getattr(torch, name) if isinstance(name, str) else name


def write_model(
    model: Any, tokenizer: Any, state: dict[str, Any] | None = None, *, dtype: Any = None
) -> Callable[[Path], None]:
    """A function that saves model and tokenizer, with the tokenizer's end token in the generation config."""

    def write(folder: Path) -> None:
        nonlocal state
        if dtype is not None:
            model.to(dtype)
            state = state and {name: one.to(dtype) if one.is_floating_point() else one for name, one in state.items()}
        model.config.use_cache = True
        settings = getattr(model, "generation_config", None)
        if settings is not None:
            known = settings.eos_token_id
            ends = [] if known is None else list(known) if isinstance(known, (list, tuple)) else [known]
            if tokenizer.eos_token_id not in ends:
                settings.eos_token_id = [tokenizer.eos_token_id, *ends] if ends else tokenizer.eos_token_id
        model.save_pretrained(folder, state_dict=_once(model, state))
        tokenizer.save_pretrained(folder)

    return write


def _once(model: Any, state: dict[str, Any] | None) -> dict[str, Any] | None:
    """The state without the second name of tied weights: gathered from several devices, both copies would be saved."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return None if state is None else {k: v for k, v in state.items() if not (k in tied and tied[k] in state)}
