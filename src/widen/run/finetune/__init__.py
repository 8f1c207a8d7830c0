"""Fine-tuning a real model into a run folder: `config.py` says what, `stage.py` does it."""

from .config import FineTune, Lora, Source
from .stage import fine_tune

__all__ = ["FineTune", "Lora", "Source", "fine_tune"]
