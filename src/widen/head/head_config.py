"""Decisions made once per call: which implementation, in which dtype, how many rows of logits at a time.

Shapes: N tokens, V vocabulary, D hidden.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args

import torch
from torch import Tensor

from .row_ops import RowOps

Impl = Literal["auto", "eager", "chunked", "triton"]
"""How the head is computed; ``auto`` takes the fastest that works on the device."""

WORKSPACE = {"cpu": 64 * 2**20, "cuda": 512 * 2**20, "cuda of 40 GB": 1024 * 2**20, "cuda of 80 GB": 2048 * 2**20}
"""Default bytes of logits in memory at a time. A GPU wants many rows: on an H200, Llama-3.1-8B's head at 8k tokens took 1.066 times its
three products with 512 MB, 1.049 with 1 GB and 1.042 with 2 GB, where `linear_logprob` recomputes nothing. A CPU's cache wants few."""

ONE_READ = (torch.bfloat16, torch.float32)
"""dtypes for which `TritonRowOps` may read the logits once: float16 ends at 65,504. A soft cap needs the logits themselves for its slope,
and ``accumulate`` asks for exact roundings; both read twice."""


class EarlyLaunch(NamedTuple):
    """One row ``one_in`` so many is launched before the host knows which rows have targets, if that is ``least`` multiplications."""

    one_in: int
    least: int


EARLY_LAUNCH = EarlyLaunch(one_in=8, least=10**11)
"""An eighth of the rows, if they keep an H200 busy for .3 ms: the host needs that long from reading the number of target rows to its next
launch. Smaller heads are bound by the host, for which an early launch is a dozen more operations."""

LEAST_EXP_LOGITS = 10**9
"""A call with fewer logits (rows times vocabulary) writes logits: on an H200 exponentials save 0 to 2 % of c-Div's time with 1.05e9 of them
(Llama-3.1-8B), 2 to 4 % with 1.24e9 (Qwen2.5-0.5B) and 1 to 5 % with 1.6e9 (SmolLM2-135M), but with .41e9 (OLMo-1B) less than 1 %, and they
cost 7.7 % there where each call begins on an idle GPU; the host needs up to 1 ms more per call."""
LEAST_EXP_CHUNK = 2048
"""Smaller chunks are written as logits: with 256 rows, and a slower kernel than today's, exponentials took 1.7 times as long in all."""

_TILE = 128  # rows of a matrix product's tile: the rest of a chunk's last tile would be computed for nothing

_log = logging.getLogger("widen.head")
_Run = TypeVar("_Run", bound=Callable[..., Any])


class HeadCall(NamedTuple):
    """The arguments that `linear_logprob` and `weighted_linear_nll` share."""

    hidden_ND: Tensor
    head_VD: Tensor
    target_N: Tensor
    bias_V: Tensor | None
    impl: Impl
    ignore_index: int
    workspace: int | None
    accumulate: torch.dtype | None
    ops: RowOps
    """Soft cap and residual, as PyTorch computes them."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """How one call runs. Nothing here depends on the values of tensors."""

    ops: RowOps
    dtype: torch.dtype
    """Of the logits and of the products."""
    workspace: int
    accumulate: torch.dtype | None
    early: EarlyLaunch | None
    """None if the row operations cannot find the target rows without a wait."""

    def new_buffer(self, total: int, like_VD: Tensor, *, even: bool = True) -> Tensor:
        """Memory for one chunk of the logits of ``total`` rows; without ``even``, as many of them as the workspace holds."""
        vocabulary = len(like_VD)
        rows = self.chunk_rows(total, vocabulary) if even else min(total, self.most_rows(vocabulary))
        padded = torch.empty(rows, self.ops.pitch(vocabulary), dtype=self.dtype, device=like_VD.device)
        if padded.shape[1] == vocabulary:
            return padded
        padded[:, vocabulary:] = 0
        return padded[:, :vocabulary]

    def most_rows(self, vocabulary: int) -> int:
        """Rows that the workspace holds."""
        least = self.ops.bytes_per_row(vocabulary, self.dtype)
        if self.workspace < least:
            raise ValueError(f"workspace={self.workspace} bytes holds no row of logits; legal: at least {least}")
        return self.workspace // least

    def chunk_rows(self, total: int, vocabulary: int, room: int | None = None) -> int:
        """Rows per chunk: what the workspace (and ``room``) holds, evened out over the chunks, in whole tiles."""
        most = self.most_rows(vocabulary)
        most = most if room is None else min(most, room)
        if total <= most:
            return total
        tile = _TILE if most >= _TILE else 1
        even = math.ceil(total / math.ceil(total / (most - most % tile)))
        return math.ceil(even / tile) * tile

    def early_rows(self, total: int, rows: int, head_VD: Tensor) -> int:
        """Rows to launch early, in whole tiles: few enough to be part of any first chunk of at most ``rows``."""
        if self.early is None:
            return 0
        some = min(total // self.early.one_in, rows // 4) // _TILE * _TILE
        return some if some * head_VD.numel() >= self.early.least else 0


def config_for(call: HeadCall) -> HeadConfig | None:
    """Check the arguments and decide how the call runs; None means eager."""
    check_tensors(call)
    dtype = product_dtype(call)
    chosen = choose_impl(call.impl, call.head_VD.device, dtype, rows_fn=call.ops.rows_fn is not None)
    if call.ops.softcap is not None and not call.ops.softcap > 0:
        raise ValueError(f"softcap={call.ops.softcap} is not positive; legal: None or a number above 0")
    if call.accumulate not in (None, torch.float32, torch.float64):
        raise ValueError(f"accumulate={call.accumulate}; legal: None, torch.float32 or torch.float64")
    if chosen == "eager":
        return None
    workspace = default_workspace(call.head_VD.device) if call.workspace is None else call.workspace
    ops, early = call.ops, None
    if chosen == "triton":
        from .row_ops_triton import TritonRowOps  # imported here and not before

        one_read = dtype in ONE_READ and call.accumulate is None and ops.softcap is None
        ops, early = TritonRowOps(**vars(ops), one_read=one_read), EARLY_LAUNCH
    config = HeadConfig(ops=ops, dtype=dtype, workspace=workspace, accumulate=call.accumulate, early=early)
    if chosen == "triton" and one_read and _multiplies_to_exponentials(call, config):
        from .exp_product_triton import ExpRowOps

        return replace(config, ops=ExpRowOps(**vars(ops)))
    return config


def _multiplies_to_exponentials(call: HeadCall, config: HeadConfig) -> bool:
    """Whether the first product can write exponentials (``exp_product_triton.py``), and the call is large enough to gain by it.

    `linear_logprob` does so as well: it takes as many products as with logits, and no walk over them.
    """
    (rows, hidden), head_VD = call.hidden_ND.shape, call.head_VD
    if not call.ops.plain or config.dtype != torch.bfloat16 or rows * len(head_VD) < LEAST_EXP_LOGITS:
        return False
    if torch.cuda.get_device_capability(head_VD.device) != (9, 0):
        return False
    # The tensor memory accelerator takes rows of whole 16 bytes that start at such an address.
    aligned = (
        hidden % 8 == 0 and head_VD.is_contiguous() and not any(x.data_ptr() % 16 for x in (head_VD, call.hidden_ND))
    )
    return aligned and config.chunk_rows(rows, len(head_VD)) >= LEAST_EXP_CHUNK


def choose_impl(
    impl: Impl, device: torch.device, dtype: torch.dtype, *, rows_fn: bool = False
) -> Literal["eager", "chunked", "triton"]:
    """The implementation that runs; for ``auto`` the logger ``widen.head`` says why (level DEBUG)."""
    if impl not in get_args(Impl):
        raise ValueError(f"impl={impl!r} is unknown; legal: {', '.join(get_args(Impl))}")
    if impl != "auto":
        if impl == "triton":
            _require_triton(device, dtype)
            if rows_fn:
                raise ValueError(
                    "impl='triton' cannot run the rows_fn of this loss, which is PyTorch code; use impl='chunked' or 'auto'"
                )
        return impl
    if device.type != "cuda":
        chosen, why = "chunked", f"the tensors are on {device.type}"
    elif dtype == torch.float64:
        chosen, why = "chunked", "the kernels compute in float32 and the tensors are float64"
    elif rows_fn:
        chosen, why = "chunked", "this loss has a rows_fn, which is PyTorch code"
    elif not _has_triton():
        chosen, why = "chunked", "Triton is not installed"
    else:
        chosen, why = "triton", f"the tensors are on {device} in {dtype}"
    _log.debug("impl=auto runs %s: %s", chosen, why)
    return cast(Literal["chunked", "triton"], chosen)


@cache  # looks into the file system
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _require_triton(device: torch.device, dtype: torch.dtype) -> None:
    if not _has_triton():
        raise ValueError("impl='triton' needs the package triton (pip install triton); impl='chunked' runs without it")
    from .row_ops_triton import TritonRowOps

    if not TritonRowOps.runs_on(device):
        raise ValueError(
            f"impl='triton' needs CUDA tensors, these are on {device}; use impl='chunked', "
            "or set TRITON_INTERPRET=1 before Triton is first imported to test the kernels here"
        )
    if dtype == torch.float64:
        raise ValueError("impl='triton' computes in float32; float64 tensors need impl='chunked' or 'eager'")


def product_dtype(call: HeadCall) -> torch.dtype:
    """The dtype in which ``F.linear`` would multiply: autocast's if it is on, else the tensors' own."""
    kind = call.hidden_ND.device.type
    dtypes = {x.dtype for x in (call.hidden_ND, call.head_VD, call.bias_V) if x is not None}
    if torch.is_autocast_enabled(kind) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(kind)
    if len(dtypes) > 1:
        named = ", ".join(sorted(str(d).removeprefix("torch.") for d in dtypes))
        raise ValueError(f"hidden_ND, head_VD and bias must share one dtype outside autocast, got {named}")
    return call.hidden_ND.dtype


def check_tensors(call: HeadCall) -> None:
    """Refuse shapes, devices and layouts that no implementation supports."""
    hidden_ND, head_VD, target_N, bias_V = call[:4]
    shapes = f"hidden_ND {tuple(hidden_ND.shape)}, head_VD {tuple(head_VD.shape)}, target_N {tuple(target_N.shape)}"
    if (hidden_ND.ndim, head_VD.ndim, target_N.ndim) != (2, 2, 1):
        raise ValueError(f"expected (N, D), (V, D) and (N,), got {shapes}; flatten batch and length into N first")
    if hidden_ND.shape[1] != head_VD.shape[1] or len(hidden_ND) != len(target_N):
        raise ValueError(f"N and D must agree, got {shapes}")
    if bias_V is not None and bias_V.shape != head_VD.shape[:1]:
        raise ValueError(
            f"bias must have shape ({len(head_VD)},), one entry per row of head_VD, got {tuple(bias_V.shape)}"
        )
    for name, x in (("hidden_ND", hidden_ND), ("head_VD", head_VD), ("target_N", target_N), ("bias", bias_V)):
        if x is not None and x.device != hidden_ND.device:
            raise ValueError(f"{name} is on {x.device}, hidden_ND on {hidden_ND.device}; they must share one device")
        if x is not None and hasattr(x, "device_mesh"):
            raise ValueError(
                f"{name} is a DTensor; call the head inside the forward of the module that owns it, where FSDP2 has gathered "
                "the parameter, or pass x.full_tensor()"
            )


def default_workspace(device: torch.device) -> int:
    """The default of `WORKSPACE` for ``device``."""
    if device.type != "cuda":
        return WORKSPACE["cpu"]
    memory = _memory(device)
    size = " of 80 GB" if memory >= 80 * 10**9 else " of 40 GB" if memory >= 40 * 10**9 else ""
    return WORKSPACE["cuda" + size]


@cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def uncompiled(run: _Run) -> _Run:
    """``run`` outside the graph of `torch.compile`: the head's shapes depend on data."""
    return cast(_Run, torch.compiler.disable(run)) if torch.compiler.is_compiling() else run  # type: ignore[no-untyped-call]


@contextmanager
def computing_on(x: Tensor) -> Iterator[None]:
    """Turn autocast off, since the dtype of the products is decided, and make the device of ``x`` current.

    Triton launches on the current device, which may be another one if a model is spread over several.
    """
    kind = x.device.type
    with ExitStack() as inside:  # enter contexts only if needed: each costs the host as much as an operation
        if torch.is_autocast_enabled(kind):
            inside.enter_context(torch.autocast(kind, enabled=False))
        if x.is_cuda and x.device.index != torch.cuda.current_device():
            inside.enter_context(torch.cuda.device(x.device))
        yield
