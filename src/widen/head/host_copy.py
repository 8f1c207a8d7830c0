"""Numbers that the host reads from the device later than it asks for them, so that the device keeps working.

Shapes: N tokens, T target rows (rows whose target is not ignored).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from .row_ops import RowOps


class HostCopy:
    """An asynchronous copy of a small tensor to the host: started here, awaited in `read`.

    ``x.item()`` waits for everything launched before the call. `read` waits only for what was launched before the copy was started.
    """

    _spare: ClassVar[dict[Any, list[tuple[Tensor, Any]]]] = {}
    """Pinned memory and events of finished copies, by shape. Allocating them takes longer than the copy."""

    def __init__(self, x: Tensor) -> None:
        self._host = x
        self._ready: Any = None
        self._numbers: Any = None
        if x.is_cuda:
            self._key = (x.shape, x.dtype, x.device)
            self._host, self._ready = self._pinned(x)
            self._host.copy_(x, non_blocking=True)
            # Record on the stream of the copy: the current device may not be the device of x.
            self._ready.record(torch.cuda.current_stream(x.device))

    def _pinned(self, x: Tensor) -> tuple[Tensor, Any]:
        try:
            return self._spare.setdefault(self._key, []).pop()
        except IndexError:
            with torch.inference_mode(False):  # a tensor made in inference mode cannot be written to outside it
                return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def read(self) -> Any:
        """The numbers, as `Tensor.tolist` returns them."""
        if self._numbers is None:
            if self._ready is not None:
                self._ready.synchronize()
            self._numbers = self._host.tolist()
            if self._ready is not None:
                self._spare[self._key].append((self._host, self._ready))
        return self._numbers


class TargetRows:
    """Finds the rows whose target is not ``ignore_index``: launched here, awaited in `rows`.

    Queue other work between the two calls; otherwise the GPU idles until the next launch. ``row_N`` holds the indices of the target rows,
    then zeros, before the host knows their number. It is None if the row operations cannot find them without a wait.
    """

    def __init__(self, target_N: Tensor, vocabulary: int, ignore_index: int, ops: RowOps) -> None:
        self._target_N, self._vocabulary, self._ignore = target_N, vocabulary, ignore_index
        self.row_N, counts = ops.find_targets(target_N, vocabulary, ignore_index)
        self._counts = HostCopy(counts)

    def rows(self) -> Tensor | None:
        """The indices of the target rows, or None if all rows are target rows.

        The one wait for the device also tells whether a target lies outside the vocabulary. Such a target is refused here: the kernels
        would read memory of another row.
        """
        count, wrong = self._counts.read()
        if wrong:
            wrong_N = (self._target_N != self._ignore) & ((self._target_N < 0) | (self._target_N >= self._vocabulary))
            raise ValueError(
                f"target_N has {wrong} value(s) outside the vocabulary, the first {self._target_N[wrong_N][0].item()}; "
                f"legal: 0 <= target < {self._vocabulary}, or ignore_index={self._ignore}"
            )
        if count == len(self._target_N):
            return None
        return (self._target_N != self._ignore).nonzero()[:, 0] if self.row_N is None else self.row_N[:count]
