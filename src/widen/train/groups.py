"""Models that go through the products together, and the threads of a CPU that share the groups, or the sequences of one group, out.

A GPU takes all models in one group. On a CPU a group is one model: its activations stay in cache, and each core works on a model, or on a
part of the batch, of its own. Letting every small operation be split over the cores instead leaves them waiting for each other hundreds of
times a step.

Shapes: M models, B sequences, L target positions, P parameters; m models of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from widen.models.prefix import SharedBatch
from widen.models.stacked import StackedLlama
from widen.models.stacked_cpu import in_place
from widen.models.stacked_ops import Ops, compiled

from .engine import Engine
from .settings import Configuration
from .stacked_weights import StackedWeights

__all__ = ["Group", "Workers", "groups_of"]

X = TypeVar("X")
Y = TypeVar("Y")


class Workers:
    """Threads that each do their torch operations on one core; none on a GPU.

    Args:
      engine: `engine.workers` of them; None takes as many as torch has threads.
    """

    def __init__(self, engine: Engine) -> None:
        on_gpu = torch.device(engine.device).type == "cuda"
        threads = torch.get_num_threads()
        self.count = 1 if on_gpu else engine.workers or threads
        self.pool: ThreadPoolExecutor | None = None
        if self.count > 1:
            # Every worker meets the others at the barrier, so each has set its own number of threads when this is over. The number is
            # also what torch gives to threads that come later: the last line puts that back.
            ready = Barrier(self.count)
            self.pool = ThreadPoolExecutor(self.count, initializer=torch.set_num_threads, initargs=(1,))
            list(self.pool.map(lambda _: ready.wait(), range(self.count)))
            torch.set_num_threads(threads)

    def map(self, function: Callable[[X], Y], items: Iterable[X]) -> list[Y]:
        """`function` of every item, in order, without gradients (a thread has its own switch for these)."""
        if self.pool is None:
            return [function(item) for item in items]
        return list(self.pool.map(torch.no_grad()(function), items))


class Group:
    """Some models: their network, once for each part of the batch, and their losses."""

    def __init__(
        self, rows: slice, configurations: Sequence[Configuration], nets: Sequence[StackedLlama], workers: Workers
    ) -> None:
        self.rows, self.nets, self.workers = rows, tuple(nets), workers
        flat, length = nets[0].flat_MP, configurations[0].data.length
        weights = [c.weight for c in configurations]
        self.weights = StackedWeights(weights, length=length, device=flat.device, dtype=flat.dtype)

    @property
    def parts(self) -> int:
        """Into how many parts the batch is cut."""
        return len(self.nets)

    def step(self, batch: SharedBatch) -> Float[Tensor, "2 m"]:
        """Forward, weights, backward; loss and NLL per token."""
        pairs = list(zip(self.nets, batch.parts(self.parts), strict=True))
        if self.parts == 1:
            traces = [self.nets[0].forward(batch)]
        else:
            traces = self.workers.map(lambda pair: pair[0].forward(pair[1]), pairs)
        logq = torch.cat([trace.logq_MLB for trace in traces], dim=2)
        count = logq.shape[1] * logq.shape[2]
        w = self.weights.apply(logq)
        upstream = (w / -count).split([trace.logq_MLB.shape[2] for trace in traces], dim=2)
        if self.parts == 1:
            self.nets[0].backward(traces[0], upstream[0])
        else:
            work = list(zip(self.nets, traces, upstream, strict=True))
            self.workers.map(lambda item: item[0].backward(item[1], item[2]), work)
            for net in self.nets[1:]:
                self.nets[0].grad_MP.add_(net.grad_MP)
        # A token of probability 0 that its loss leaves out counts 0, not 0 * inf.
        loss = (w * logq).masked_fill(w == 0, 0.0).sum((1, 2))
        return torch.stack([loss, logq.sum((1, 2))]) / -count


def groups_of(
    configurations: Sequence[Configuration],
    flat_MP: Float[Tensor, "M P"],
    grad_MP: Float[Tensor, "M P"],
    *,
    engine: Engine,
    workers: Workers,
) -> list[Group]:
    """Cut the models into groups, and a lone group's batch into one part a worker."""
    on_gpu, M = torch.device(engine.device).type == "cuda", len(configurations)
    size = engine.models_at_once or (M if on_gpu else 1)
    parts = max(1, workers.count // -(-M // size))
    split = engine.split or (4 if on_gpu else 1)
    # The parts of a group are open at the same time, the groups of a worker one after the other: buffers for each part.
    ops = [compiled() if engine.compile else Ops() if on_gpu else in_place(engine.dtype) for _ in range(parts)]
    groups = []
    for at in range(0, M, size):
        rows = slice(at, min(at + size, M))
        nets = []
        for part in range(parts):
            grad = grad_MP[rows] if part == 0 else torch.zeros_like(grad_MP[rows])
            nets.append(StackedLlama(flat_MP[rows], grad, shape=configurations[0].model, ops=ops[part], split=split))
        groups.append(Group(rows, configurations[rows], nets, workers))
    return groups
