"""Other people's losses. README.md's second table compares what they converge to. DFT is c-Div at alpha = 0 (`widen.losses.dft`)."""

from .asft import ASFT
from .dco import DCO
from .eaft import EAFT
from .gem import GEM, TOFU, Focal
from .regularised import EntropyBonus, LabelSmoothing

__all__ = ["ASFT", "DCO", "EAFT", "GEM", "TOFU", "EntropyBonus", "Focal", "LabelSmoothing"]
