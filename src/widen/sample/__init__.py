"""Prompts -> samples: every decoding method, any engine, files that survive a crash.

Start with ``decoding.py`` (a method as a value) and ``engine.py`` (what an engine is).
"""

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
