"""What `bench_head.py` times: the head and its loss, ours and other people's, on random tensors of one shape."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.nn.functional as F

from widen import losses
from widen.head import linear_logprob, weighted_linear_nll
from widen.head.gradients import add_product_
from widen.head.head_config import HeadCall, config_for
from widen.head.logit_buffer import LogitBuffer
from widen.head.row_ops import RowOps, RowStats

Run = Callable[[], Any]


def add_peers(folder: Path) -> None:
    """Make other people's packages importable from a folder of unpacked wheels, or from its subfolder site-packages.

    QuACK cannot be imported from a folder with another name: it fingerprints every function that its kernels use, takes those in
    a folder site-packages as given, and fails on the others. The CUTLASS DSL keeps its packages in a folder of its own; an
    installation adds it to the path, unpacking a wheel does not.
    """
    site = folder / "site-packages"
    site = site if site.is_dir() else folder
    sys.path[:0] = [str(site), str(site / "nvidia_cutlass_dsl" / "dsl_packages")]


class Shape(NamedTuple):
    name: str
    tokens: int
    hidden: int
    vocabulary: int


class Active:
    """A weight that is 0 for all but a share of the rows."""

    token_local = True

    def __init__(self, share: float) -> None:
        self.share = share

    def weigh(self, rows):
        return (rows.position <= self.share * rows.length).float()


class Head:
    """Random hidden states, head and targets of one shape, and what can be run on them."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        n, d, v = shape.tokens, shape.hidden, shape.vocabulary
        self.shape = shape
        self.hidden = torch.randn(n, d, device=device, dtype=dtype).requires_grad_()
        self.head = (torch.randn(v, d, device=device, dtype=dtype) / d**0.5).requires_grad_()
        self.target = torch.randint(0, v, (n,), device=device)
        self.length = torch.full((n,), n, device=device)
        self.position = torch.randperm(n, device=device) + 1
        self._logits: torch.Tensor | None = None

    def roof(self) -> None:
        h, w = self.hidden.detach(), self.head.detach()
        if self._logits is None:
            self._logits, self._dx, self._dw = h.new_empty(len(h), len(w)), torch.empty_like(h), torch.empty_like(w)
        torch.mm(h, w.t(), out=self._logits)
        torch.mm(self._logits, w, out=self._dx)
        torch.mm(self._logits.t(), h, out=self._dw)

    def chunked(self, *, softmax: bool) -> Run:
        """The three products in our chunks, dW summed over them: what every head of this workspace pays.

        With ``softmax`` also the row kernel between them, or the exponentials that the head takes instead. A whole call adds the weights,
        the scaled rows and the waits.
        """
        h, w = self.hidden.detach(), self.head.detach()
        config = config_for(HeadCall(h, w, self.target, None, "auto", -100, None, None, RowOps()))
        assert config is not None

        def logits(memory: torch.Tensor) -> Iterator[tuple[torch.Tensor, slice]]:
            for start in range(0, len(h), len(memory)):
                at = slice(start, min(start + len(memory), len(h)))
                yield torch.mm(h[at], w.t(), out=memory[: at.stop - start]), at

        def residuals(memory: torch.Tensor) -> Iterator[tuple[torch.Tensor, slice]]:
            buffer, stats = LogitBuffer(h, w, None, self.target, config, memory), RowStats.empty(len(h), w, plain=True)
            buffer.start(len(h), None, stats)
            for chunk in buffer.chunks():
                config.ops.fill_stats(chunk.z_CV, self.target[chunk.at], stats.part(chunk.at), residual=True)
                yield chunk.z_CV, chunk.at

        def run() -> tuple[torch.Tensor, ...]:
            dx, dw = torch.empty_like(h), torch.empty_like(w)
            for z, at in (residuals if softmax else logits)(config.new_buffer(len(h), w)):
                add_product_(dx[at], z, w, scale=1.0, fresh=True)
                add_product_(dw, z.t(), h[at], scale=1.0, fresh=at.start == 0)
            return dx, dw

        return run

    def gradient(self, loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(loss, (self.hidden, self.head))

    def weighted(self, weight: Any, **kw: Any) -> Run:
        weight = losses.parse(weight) if isinstance(weight, str) else weight
        return lambda: self.gradient(
            weighted_linear_nll(
                self.hidden, self.head, self.target, weight,
                position_N=self.position, length_N=self.length, num_tokens=len(self.target), **kw,
            ).loss
        )  # fmt: skip

    def logprob(self, share: float = 1.0, **kw: Any) -> Run:
        weight_N = (self.position <= share * self.length).float() / len(self.target)
        return lambda: self.gradient(-(weight_N * linear_logprob(self.hidden, self.head, self.target, **kw)).sum())

    def plain(self, hidden, head, target):
        logq = F.linear(hidden, head).float().log_softmax(-1).gather(-1, target[:, None])[:, 0]
        return -((-0.4 * logq.detach()).exp().clamp(max=1e4) * logq).mean()

    def compiled_nll(self) -> Run:
        step = torch.compile(
            lambda hidden, head, target: F.cross_entropy(F.linear(hidden, head), target), dynamic=False
        )
        return lambda: self.gradient(step(self.hidden, self.head, self.target))

    def eager(self) -> Run:
        return lambda: self.gradient(self.plain(self.hidden, self.head, self.target))

    def compiled(self) -> Run:
        step = torch.compile(self.plain, dynamic=False)
        return lambda: self.gradient(step(self.hidden, self.head, self.target))

    def liger(self, **kw: Any) -> Run:
        module = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")
        loss = module.LigerFusedLinearCrossEntropyLoss(**kw)
        return lambda: self.gradient(loss(self.head, self.hidden, self.target))

    def liger_cute(self) -> Run:
        """Liger's CuTe head for Hopper. It keeps all logits, and refuses tokens % 128 and vocabularies % 256."""
        module = importlib.import_module("liger_kernel.ops.cutedsl.ops.fused_linear_cross_entropy_sm90")
        loss = module.liger_fused_linear_cross_entropy_sm90
        return lambda: self.gradient(loss(self.hidden, self.head, self.target))

    def liger_cute_tokens(self) -> Run:
        """Liger's CuTe head for Hopper that returns one NLL per token and computes the logits a second time in backward."""
        module = importlib.import_module("liger_kernel.ops.cutedsl.ops.fused_scaled_cross_entropy_sm90")
        loss = module.LigerFusedScaledCrossEntropySM90Function.apply
        return lambda: self.gradient(loss(self.hidden, self.head, self.target).mean())

    def quack(self, **kw: Any) -> Run:
        """QuACK's head in its default chunks of 4096 rows, or 8192 for a hidden size of 4096.

        Version 0.6.5 raises an error for a chunk with as many rows as columns: it cannot tell a vector of rows from one of columns.
        """
        loss = importlib.import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy
        size = 8192 if self.shape.hidden == 4096 else 4096
        return lambda: self.gradient(loss(self.hidden, self.head, self.target, chunk_size=size, **kw))

    def cut(self) -> Run:
        loss = importlib.import_module("cut_cross_entropy").linear_cross_entropy
        return lambda: self.gradient(loss(self.hidden, self.head, self.target))

    def torch_chunked(self) -> Run:
        if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
            raise ModuleNotFoundError("an older torch", name="torch.nn.LinearCrossEntropyOptions")
        options = torch.nn.LinearCrossEntropyOptions()  # type: ignore[attr-defined]
        return lambda: self.gradient(F.linear_cross_entropy(self.hidden, self.head, self.target, options=options))
