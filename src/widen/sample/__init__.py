"""Prompts -> samples: every decoding method, any engine, files that survive a crash.

Start with ``decoding.py`` (a method as a value) and ``engine.py`` (what an engine is). ``local.py``, ``mulmod.py``, ``server.py`` and
``vllm_engine.py`` are engines; ``fill.py`` fills files from one, and ``samples_file.py`` reads them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoding import Decoding, Settings
    from .engine import Drawn, Engine, Identity, Sample
    from .fill import Difference, Progress, collect, difference
    from .grid import decoding_grid, parse_decodings
    from .kl_guided import guided_temperature
    from .local import LocalEngine
    from .mulmod import UNPROMPTED, MulModEngine
    from .processors import logits_processors, top_n_sigma
    from .prompts import Prompt, read_prompts
    from .samples_file import Samples, read_samples
    from .server import ServerEngine
    from .vllm_engine import VllmEngine
    from .writer import SamplesWriter

_HOME = {
    "UNPROMPTED": "mulmod",
    "Decoding": "decoding",
    "Difference": "fill",
    "Drawn": "engine",
    "Engine": "engine",
    "Identity": "engine",
    "LocalEngine": "local",
    "MulModEngine": "mulmod",
    "Progress": "fill",
    "Prompt": "prompts",
    "Sample": "engine",
    "Samples": "samples_file",
    "SamplesWriter": "writer",
    "ServerEngine": "server",
    "Settings": "decoding",
    "VllmEngine": "vllm_engine",
    "collect": "fill",
    "decoding_grid": "grid",
    "difference": "fill",
    "guided_temperature": "kl_guided",
    "logits_processors": "processors",
    "parse_decodings": "grid",
    "read_prompts": "prompts",
    "read_samples": "samples_file",
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
    "Progress",
    "Prompt",
    "Sample",
    "Samples",
    "SamplesWriter",
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
