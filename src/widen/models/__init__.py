"""The paper's small Llama, its files, and its exact likelihoods under any decoding. Start with ``tiny_llama.py``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convert import from_transformers, load_pretrained, save_pretrained, to_transformers
    from .likelihood import decoded_log_likelihood, log_likelihood, log_likelihood_from_logits, next_logits
    from .tiny_llama import LlamaShape, TinyLlama

_HOME = {
    "LlamaShape": "tiny_llama",
    "TinyLlama": "tiny_llama",
    "decoded_log_likelihood": "likelihood",
    "from_transformers": "convert",
    "load_pretrained": "convert",
    "log_likelihood": "likelihood",
    "log_likelihood_from_logits": "likelihood",
    "next_logits": "likelihood",
    "save_pretrained": "convert",
    "to_transformers": "convert",
}

__all__ = [
    "LlamaShape",
    "TinyLlama",
    "decoded_log_likelihood",
    "from_transformers",
    "load_pretrained",
    "log_likelihood",
    "log_likelihood_from_logits",
    "next_logits",
    "save_pretrained",
    "to_transformers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
