"""Prompts -> samples: every decoding method, any engine, files that survive a crash.

Start with ``decoding.py`` (a method as a value) and ``engine.py`` (what an engine is). ``engines/`` holds the engines, ``fill.py`` writes
their samples to files, and ``samples_file.py`` reads them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoding import Decoding, Settings
    from .engine import Drawn, Engine, Identity, Sample
    from .engines.local import LocalEngine
    from .engines.server import ServerEngine
    from .engines.small import UNPROMPTED, MulModEngine
    from .engines.vllm import VllmEngine
    from .fill import Difference, SamplingProgress, collect, difference
    from .grid import decoding_grid, parse_decodings
    from .kl_guided import guided_temperature
    from .processors import logits_processors, top_n_sigma
    from .prompts import Prompt, read_prompts
    from .samples_file import Samples, read_samples
    from .writer import SamplesWriter

_NAMES = {
    "decoding": ("Decoding", "Settings"),
    "engine": ("Drawn", "Engine", "Identity", "Sample"),
    "engines.local": ("LocalEngine",),
    "engines.server": ("ServerEngine",),
    "engines.small": ("UNPROMPTED", "MulModEngine"),
    "engines.vllm": ("VllmEngine",),
    "fill": ("Difference", "SamplingProgress", "collect", "difference"),
    "grid": ("decoding_grid", "parse_decodings"),
    "kl_guided": ("guided_temperature",),
    "processors": ("logits_processors", "top_n_sigma"),
    "prompts": ("Prompt", "read_prompts"),
    "samples_file": ("Samples", "read_samples"),
    "writer": ("SamplesWriter",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

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
