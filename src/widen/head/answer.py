"""Numbers that the host asks of the device without making it stand still."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor


class Answer:
    """A few numbers on their way to the host: asked now, read later. What is launched in between hides the wait.

    ``x.item()`` would wait for all that was launched before it is called, this only for what was launched before it was asked.
    """

    _spare: ClassVar[dict[Any, list[tuple[Tensor, Any]]]] = {}
    """Pinned memory and events of answers that were read, by shape: to make them takes the host longer than the copy."""

    def __init__(self, x: Tensor) -> None:
        self._host = x
        self._ready: Any = None
        self._read: Any = None
        if x.is_cuda:
            self._key = (x.shape, x.dtype, x.device)
            self._host, self._ready = self._room(x)
            self._host.copy_(x, non_blocking=True)
            # On the stream of the copy: the current device need not be that of x.
            self._ready.record(torch.cuda.current_stream(x.device))

    def _room(self, x: Tensor) -> tuple[Tensor, Any]:
        try:
            return self._spare.setdefault(self._key, []).pop()
        except IndexError:
            with torch.inference_mode(False):  # memory made in inference mode could not be written to outside it
                return torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def read(self) -> Any:
        """The numbers, as `Tensor.tolist` gives them."""
        if self._read is None:
            if self._ready is not None:
                self._ready.synchronize()
            self._read = self._host.tolist()
            if self._ready is not None:
                self._spare[self._key].append((self._host, self._ready))
        return self._read
