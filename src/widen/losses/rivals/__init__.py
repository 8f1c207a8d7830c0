"""Other people's losses, each through the same head and trainers as the paper's. docs/losses/rivals.md compares what they converge to.

``gem.py``: GEM and TOFU. ``focal.py``: focal loss. ``regularised.py``: label smoothing and the entropy bonus. ``eaft.py``: EAFT.
``dco.py``: DCO. ``asft.py``: ASFT, with a reference model. DFT is c-Div at alpha = 0 (`widen.losses.dft`).
"""

from .asft import ASFT
from .dco import DCO
from .eaft import EAFT
from .focal import Focal
from .gem import GEM, TOFU
from .regularised import EntropyBonus, LabelSmoothing

__all__ = ["ASFT", "DCO", "EAFT", "GEM", "TOFU", "EntropyBonus", "Focal", "LabelSmoothing"]
