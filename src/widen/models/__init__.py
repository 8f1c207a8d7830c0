"""tokens -> hidden states: the paper's small Llama, alone or many side by side, and any Hugging Face causal LM as (backbone, head).

Start with ``tiny_llama.py``. ``stacked.py`` is the same model M times as batched products; ``convert.py`` and ``checkpoint.py`` are files;
``ancestral.py`` draws sequences, ``likelihood.py`` scores them exactly, and ``decoded_likelihood.py`` does so under any decoding.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ancestral import sample
    from .convert import from_transformers, load_pretrained, save_pretrained, to_transformers
    from .decoded_likelihood import decoded_log_likelihood
    from .likelihood import log_likelihood, stacked_log_likelihood
    from .pretrained import Pretrained
    from .stacked import StackedLlama
    from .tiny_llama import LlamaShape, TinyLlama

_HOME = {
    "LlamaShape": "tiny_llama",
    "Pretrained": "pretrained",
    "StackedLlama": "stacked",
    "TinyLlama": "tiny_llama",
    "decoded_log_likelihood": "decoded_likelihood",
    "from_transformers": "convert",
    "load_pretrained": "convert",
    "log_likelihood": "likelihood",
    "sample": "ancestral",
    "save_pretrained": "convert",
    "stacked_log_likelihood": "likelihood",
    "to_transformers": "convert",
}

__all__ = [
    "LlamaShape",
    "Pretrained",
    "StackedLlama",
    "TinyLlama",
    "decoded_log_likelihood",
    "from_transformers",
    "load_pretrained",
    "log_likelihood",
    "sample",
    "save_pretrained",
    "stacked_log_likelihood",
    "to_transformers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
