"""Decisions taken once a call: which implementation, in which dtype, how many rows of logits at a time, which rows at all.

Shapes: N tokens, V vocabulary, D hidden, T rows whose target counts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple, Protocol, cast, get_args, runtime_checkable

import torch
from torch import Tensor

from .stats import Front, RowStats

Impl = Literal["auto", "eager", "chunked", "triton"]

WORKSPACE = {"cpu": 64 * 2**20, "cuda": 512 * 2**20, "cuda of 40 GB": 1024 * 2**20, "cuda of 80 GB": 2048 * 2**20}
"""Bytes of logits held at a time unless the caller says otherwise. On a GPU the products want rows: on an H200, Llama-3.1-8B's head at
8k tokens took 1.066 times its three products with 512 MB, 1.049 with 1 GB and 1.042 with 2 GB, with which `linear_logprob` computes none
twice there. On a CPU the cache wants few."""


ONE_READ = (torch.bfloat16, torch.float32)
"""dtypes in which Triton walks over the logits once (`one_read`): float16 ends at 65,504. Not under a soft cap, whose slope wants the logit
itself, nor where the caller asks for digits by ``accumulate``."""


class Lead(NamedTuple):
    """How many rows have their logits launched before the device has said which rows count (`ChunkWalk.begin`)."""

    one_in: int
    """One row in this many."""
    least: int
    """Multiplications below which they are not worth it: the host has more to launch than the device to do."""


LEAD = Lead(one_in=8, least=10**11)
"""An eighth of the rows, from a size at which they keep an H200 busy for .3 ms: as long as the host takes from the answer to its next
launch. Smaller heads are bound by the host, to which a lead is another dozen operations."""

_TILE = 128  # rows of a matrix product's tile: a chunk that is no multiple of it computes the rest of its last tile for nothing

_log = logging.getLogger("widen.head")


@runtime_checkable
class RowOps(Protocol):
    """What `rows_torch` and `rows_triton` both offer."""

    def pitch(self, vocabulary: int) -> int: ...  # noqa: D102
    def scratch_bytes(self, vocabulary: int, dtype: torch.dtype, softcap: float | None) -> int: ...  # noqa: D102
    def pick(self, target_N: Tensor, vocabulary: int, ignore_index: int) -> tuple[Tensor | None, Tensor]: ...  # noqa: D102
    def normalise(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None) -> None: ...  # noqa: D102
    def describe(  # noqa: D102
        self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, softcap: float | None, residual: bool
    ) -> None: ...
    def residual_(  # noqa: D102
        self, z_CV: Tensor, target_C: Tensor, lse_C: Tensor, coefficient_C: Tensor, *, softcap: float | None
    ) -> None: ...
    def front(self, w_C: Tensor) -> Front: ...  # noqa: D102
    def move_(self, z_CV: Tensor, order_C: Tensor, hole_H: Tensor) -> None: ...  # noqa: D102
    def scale(self, coefficient_C: Tensor, *pairs: tuple[Tensor, Tensor]) -> None: ...  # noqa: D102
    def multiply_(self, factor: Tensor, *tensors: Tensor) -> None: ...  # noqa: D102
    def sums(self, each_kT: Tensor) -> Tensor: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one call runs; nothing here depends on the values of the tensors."""

    ops: RowOps
    dtype: torch.dtype
    softcap: float | None
    workspace: int
    accumulate: torch.dtype | None
    one_read: bool
    """Whether the residual is written in the first walk over the logits, up to the factor of its row."""
    lead: Lead | None
    """None where the row operations cannot tell which rows count before the host can."""

    def buffer(self, rows: int, like_VD: Tensor) -> Tensor:
        """Room for the logits of ``rows`` rows."""
        vocabulary = len(like_VD)
        padded = torch.empty(rows, self.ops.pitch(vocabulary), dtype=self.dtype, device=like_VD.device)
        if padded.shape[1] == vocabulary:
            return padded
        padded[:, vocabulary:] = 0
        return padded[:, :vocabulary]

    def describe(self, z_CV: Tensor, target_C: Tensor, stats: RowStats, *, residual: bool) -> None:
        """Fill ``stats``; the logits are used up, and with ``residual`` become softmax - onehot over ``stats.factor_C``."""
        if residual and self.one_read:
            from .one_read import describe_once

            describe_once(z_CV, target_C, stats)
        else:
            self.ops.describe(z_CV, target_C, stats, softcap=self.softcap, residual=residual)

    def rows(self, total: int, vocabulary: int, room: int | None = None) -> int:
        """Rows of one chunk: as many as the workspace (and ``room``) holds, evened out over the chunks, in whole tiles."""
        most = self.workspace // self.ops.scratch_bytes(vocabulary, self.dtype, self.softcap)
        if most < 1:
            least = self.ops.scratch_bytes(vocabulary, self.dtype, self.softcap)
            raise ValueError(f"workspace={self.workspace} bytes holds no row of logits; legal: at least {least}")
        most = most if room is None else min(most, room)
        if total <= most:
            return total
        tile = _TILE if most >= _TILE else 1
        even = math.ceil(total / math.ceil(total / (most - most % tile)))
        return math.ceil(even / tile) * tile

    def lead_rows(self, total: int, rows: int, head_VD: Tensor) -> int:
        """Rows whose logits are launched early, in whole tiles; few enough to be part of any first chunk of at most ``rows``."""
        if self.lead is None:
            return 0
        some = min(total // self.lead.one_in, rows // 4) // _TILE * _TILE
        return some if some * head_VD.numel() >= self.lead.least else 0


def chunks(total: int, rows: int) -> Iterator[slice]:
    """``0..total`` in slices of ``rows``."""
    return (slice(start, min(start + rows, total)) for start in range(0, total, max(rows, 1)))


def choose(impl: Impl, device: torch.device, dtype: torch.dtype) -> Literal["eager", "chunked", "triton"]:
    """The implementation that runs; ``auto`` says why on the logger ``widen.head`` (level DEBUG)."""
    if impl not in get_args(Impl):
        raise ValueError(f"impl={impl!r} is unknown; legal: {', '.join(get_args(Impl))}")
    if impl != "auto":
        if impl == "triton":
            _require_triton(device, dtype)
        return impl
    if device.type != "cuda":
        chosen, why = "chunked", f"the tensors are on {device.type}"
    elif dtype == torch.float64:
        chosen, why = "chunked", "the kernels compute in float32 and the tensors are float64"
    elif not _has_triton():
        chosen, why = "chunked", "Triton is not installed"
    else:
        chosen, why = "triton", f"the tensors are on {device} in {dtype}"
    _log.debug("impl=auto runs %s: %s", chosen, why)
    return cast(Literal["chunked", "triton"], chosen)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None  # a look into the file system, once a process


def _require_triton(device: torch.device, dtype: torch.dtype) -> None:
    if not _has_triton():
        raise ValueError("impl='triton' needs the package triton (pip install triton); impl='chunked' runs without it")
    from . import rows_triton

    if not rows_triton.runs_on(device):
        raise ValueError(
            f"impl='triton' needs CUDA tensors, these are on {device}; use impl='chunked', "
            "or set TRITON_INTERPRET=1 before Triton is first imported to test the kernels here"
        )
    if dtype == torch.float64:
        raise ValueError("impl='triton' computes in float32; float64 tensors need impl='chunked' or 'eager'")


def row_ops(impl: Literal["chunked", "triton"]) -> RowOps:
    """The module of row operations behind an implementation; Triton is imported here and nowhere before."""
    if impl == "triton":
        from . import rows_triton

        return rows_triton
    from . import rows_torch

    return rows_torch


def product_dtype(hidden_ND: Tensor, head_VD: Tensor, bias_V: Tensor | None) -> torch.dtype:
    """The dtype in which ``F.linear`` would multiply here: autocast's where it is on, else the tensors' own."""
    kind = hidden_ND.device.type
    dtypes = {x.dtype for x in (hidden_ND, head_VD, bias_V) if x is not None}
    if torch.is_autocast_enabled(kind) and torch.float64 not in dtypes:
        return torch.get_autocast_dtype(kind)
    if len(dtypes) > 1:
        named = ", ".join(sorted(str(d).removeprefix("torch.") for d in dtypes))
        raise ValueError(f"hidden_ND, head_VD and bias must share one dtype outside autocast, got {named}")
    return hidden_ND.dtype


@contextmanager
def computing_on(x: Tensor) -> Iterator[None]:
    """Where the head computes: autocast off, since the products' dtype is decided, and on the device of ``x``.

    Triton launches on the current device, which need not be that of a model spread over several.
    """
    kind = x.device.type
    with ExitStack() as inside:  # entered only where needed: a context costs the host as much as an operation
        if torch.is_autocast_enabled(kind):
            inside.enter_context(torch.autocast(kind, enabled=False))
        if x.is_cuda and x.device.index != torch.cuda.current_device():
            inside.enter_context(torch.cuda.device(x.device))
        yield


def check_shapes(hidden_ND: Tensor, head_VD: Tensor, target_N: Tensor, bias_V: Tensor | None) -> None:
    """Refuse shapes, devices and layouts that no implementation takes."""
    shapes = f"hidden_ND {tuple(hidden_ND.shape)}, head_VD {tuple(head_VD.shape)}, target_N {tuple(target_N.shape)}"
    if (hidden_ND.ndim, head_VD.ndim, target_N.ndim) != (2, 2, 1):
        raise ValueError(f"expected (N, D), (V, D) and (N,), got {shapes}; flatten batch and length into N first")
    if hidden_ND.shape[1] != head_VD.shape[1] or len(hidden_ND) != len(target_N):
        raise ValueError(f"N and D must agree, got {shapes}")
    if bias_V is not None and bias_V.shape != head_VD.shape[:1]:
        raise ValueError(f"bias must have shape ({len(head_VD)},) as head_VD has rows, got {tuple(bias_V.shape)}")
    for name, x in (("hidden_ND", hidden_ND), ("head_VD", head_VD), ("target_N", target_N), ("bias", bias_V)):
        if x is not None and x.device != hidden_ND.device:
            raise ValueError(f"{name} is on {x.device}, hidden_ND on {hidden_ND.device}; they must share one device")
        if x is not None and hasattr(x, "device_mesh"):
            raise ValueError(
                f"{name} is a DTensor; call the head inside the forward of the module that owns it, where FSDP2 has gathered "
                "the parameter, or pass x.full_tensor()"
            )


def default_workspace(device: torch.device) -> int:
    """Bytes of logits held at a time on ``device`` where the caller does not say: see `WORKSPACE`."""
    if device.type != "cuda":
        return WORKSPACE["cpu"]
    memory = _memory(device)
    size = " of 80 GB" if memory >= 80 * 10**9 else " of 40 GB" if memory >= 40 * 10**9 else ""
    return WORKSPACE["cuda" + size]


@cache
def _memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def plan_for(
    impl: Impl,
    head_VD: Tensor,
    dtype: torch.dtype,
    softcap: float | None,
    workspace: int | None,
    accumulate: torch.dtype | None,
) -> Plan | None:
    """The plan of a call, its options checked; None means eager."""
    device = head_VD.device
    chosen = choose(impl, device, dtype)
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap={softcap} is not positive; legal: None or a number above 0")
    if accumulate not in (None, torch.float32, torch.float64):
        raise ValueError(f"accumulate={accumulate}; legal: None, torch.float32 or torch.float64")
    if chosen == "eager":
        return None
    if workspace is None:
        workspace = default_workspace(device)
    return Plan(
        ops=row_ops(chosen), dtype=dtype, softcap=softcap, workspace=workspace, accumulate=accumulate,
        one_read=chosen == "triton" and dtype in ONE_READ and softcap is None and accumulate is None,
        lead=LEAD if chosen == "triton" else None,
    )  # fmt: skip
