"""Rows -> weights: the paper's seven losses and their rivals (paper, Sec. 5).

Read ``cdiv.py``, ``tailr.py`` and ``trunc.py`` (Sections 5.3, 5.4 and 5.2): each has a precision-side baseline and its recall-side
reversal. ``weight.py`` is the contract, ``weighted.py`` the reduction; ``rivals.py`` holds other people's losses.
"""

from widen.data.rows import Rows

from .anchor import ASFT, REF_LOGQ, Anchor
from .cdiv import CDiv, dft, gold
from .compose import Column, Product, Warmup
from .fit import fitted, idle, refuse_late_start, was_idle
from .nll import NLL
from .parse import LOSSES, parse, spec
from .residual import PLAIN, Residual
from .rivals import DCO, EAFT, GEM, TOFU, EntropyBonus, Focal, LabelSmoothing
from .tailr import LambdaPR, TaiLr
from .trunc import Trunc, TruncR, keep
from .weight import Bounded, SequenceWeight, State, TokenWeight, Weight, position_and_length
from .weighted import weighted_nll

__all__ = [
    "ASFT",
    "DCO",
    "EAFT",
    "GEM",
    "LOSSES",
    "NLL",
    "PLAIN",
    "REF_LOGQ",
    "TOFU",
    "Anchor",
    "Bounded",
    "CDiv",
    "Column",
    "EntropyBonus",
    "Focal",
    "LabelSmoothing",
    "LambdaPR",
    "Product",
    "Residual",
    "Rows",
    "SequenceWeight",
    "State",
    "TaiLr",
    "TokenWeight",
    "Trunc",
    "TruncR",
    "Warmup",
    "Weight",
    "dft",
    "fitted",
    "gold",
    "idle",
    "keep",
    "parse",
    "position_and_length",
    "refuse_late_start",
    "spec",
    "was_idle",
    "weighted_nll",
]
