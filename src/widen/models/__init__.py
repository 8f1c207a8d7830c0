"""The paper's small Llama, its files, and its exact likelihoods under any decoding. Start with ``tiny_llama.py``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .convert import from_transformers, load_pretrained, save_pretrained, to_transformers
    from .likelihood import decoded_log_likelihood, log_likelihood, log_likelihood_from_logits, next_logits
    from .tiny_llama import LlamaShape, TinyLlama

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
    """Load modules when a name of theirs is asked for, the fastest first."""
    for home in ("tiny_llama", "convert", "likelihood") if name in __all__ else ():
        if name in vars(module := importlib.import_module(f".{home}", __name__)):
            return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
