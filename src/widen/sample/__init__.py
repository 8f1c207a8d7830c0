"""Prompts -> samples: every decoding method, any engine, files that survive a crash.

Start with ``decoding.py`` (a method as a value) and ``engine.py`` (what an engine is).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .decoding import Decoding, Settings
from .engine import Drawn, Engine, Identity, Sample
from .fill import Difference, SamplingProgress, collect, difference
from .grid import decoding_grid, parse_decodings
from .prompts import Prompt, read_prompts
from .samples_file import Samples, read_samples
from .writer import SamplesWriter

if TYPE_CHECKING:
    from .engines.local import LocalEngine
    from .engines.server import ServerEngine
    from .engines.small import UNPROMPTED, MulModEngine
    from .engines.vllm import VllmEngine
    from .kl_guided import guided_temperature
    from .processors import logits_processors, top_n_sigma

_HOME = {  # imported on first use, because these need torch
    "LocalEngine": "engines.local",
    "MulModEngine": "engines.small",
    "ServerEngine": "engines.server",
    "UNPROMPTED": "engines.small",
    "VllmEngine": "engines.vllm",
    "guided_temperature": "kl_guided",
    "logits_processors": "processors",
    "top_n_sigma": "processors",
}

__all__ = [
    "UNPROMPTED",
    "Decoding",
    "Difference",
    "Drawn",
    "Engine",
    "Identity",
    "LocalEngine",
    "MulModEngine",
    "Prompt",
    "Sample",
    "Samples",
    "SamplesWriter",
    "SamplingProgress",
    "ServerEngine",
    "Settings",
    "VllmEngine",
    "collect",
    "decoding_grid",
    "difference",
    "guided_temperature",
    "logits_processors",
    "parse_decodings",
    "read_prompts",
    "read_samples",
    "top_n_sigma",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
