"""Many small models at once: M configurations trained as batched products in one process, each as if it were alone.

A step for all models: log-probabilities -> weights -> backward -> optimizer, on flat buffers [M, P]. Each model has its own loss,
hyperparameters, data, seed and schedule; what they share is the shape of the model, the batch size and the number of steps. On a GPU
the whole step is one CUDA graph; the host only prepares the next batches. On a CPU the models go through in groups that stay in cache.

Shapes: M models, B sequences, L target positions, T = 1 + L tokens, P parameters, K steps of a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from widen.models.checkpoint import Checkpoint, state_from, state_tensors
from widen.models.likelihood import stacked_log_likelihood
from widen.models.tiny_llama import TinyLlama

from .engine import Engine, matmul_precision
from .flat_adamw import FlatAdamW
from .groups import Group, Workers, groups_of
from .order import Order
from .samples import samples_of
from .settings import Configuration

__all__ = ["SideBySide", "StepLog"]

CHUNK = 64
"""Steps whose batches are prepared, and whose figures are read back, together: one transfer each way in place of 64."""


@dataclass(frozen=True)
class StepLog:
    """One optimizer step of all models."""

    step: int
    loss_M: list[float]
    nll_M: list[float]
    grad_norm_M: list[float]


class SideBySide:
    """M configurations in training.

    Examples:
      >>> from widen.train.settings import Train
      >>> from widen.data.mulmod import MulMod
      >>> data = MulMod(modulus=7, high=9, under_representation=None, num_samples=64)
      >>> both = SideBySide([Configuration(data=data, loss=loss, train=Train(steps=2, batch_size=8)) for loss in ("nll", "gold")])
      >>> [log.step for log in both.advance()], both.step
      ([0, 1], 2)
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        *,
        engine: Engine | None = None,
        starts: Sequence[TinyLlama | None] | None = None,
    ) -> None:
        self.configurations, self.engine = tuple(configurations), engine or Engine()
        _check(self.configurations)
        first, engine = self.configurations[0], self.engine
        models = _initial(self.configurations, starts)
        self.flat_MP = torch.stack([model.flat() for model in models]).to(engine.device, engine.dtype)
        self.grad_MP = torch.zeros_like(self.flat_MP)
        self.optimizer = FlatAdamW(self.flat_MP, [c.train for c in self.configurations])
        self.samples = samples_of(self.configurations, share=engine.share).to(engine.device)
        self.orders = [
            Order(num_samples=c.data.num_samples, batch_size=c.train.batch_size, seed=c.seed)
            for c in self.configurations
        ]
        self.workers = Workers(engine)
        self.groups = groups_of(self.configurations, self.flat_MP, self.grad_MP, engine=engine, workers=self.workers)
        self.step, self.steps = 0, first.train.steps
        self._index_MB = torch.zeros(len(models), first.train.batch_size, dtype=torch.int64, device=engine.device)
        self._table_4M = torch.zeros(4, len(models), dtype=engine.dtype, device=engine.device)
        self._figures_3M = torch.zeros(3, len(models), dtype=engine.dtype, device=engine.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._prepared: tuple[tuple[int, int], Tensor, Tensor] | None = None

    def advance(self, steps: int | None = None) -> Iterator[StepLog]:
        """Train `steps` more steps (to the end, if not given), giving each step's figures in turn.

        Figures come in chunks: what is given has been trained, and `step` may already be ahead of it.
        """
        end = self.steps if steps is None else min(self.steps, self.step + steps)
        while self.step < end:
            start, count = self.step, min(CHUNK, end - self.step)
            figures_KQM = self._chunk(start, count, end)
            self.step += count
            for k, (loss, nll, norm) in enumerate(figures_KQM.tolist()):
                yield StepLog(start + k, loss, nll, norm)

    def _chunk(self, start: int, count: int, end: int) -> Float[Tensor, "K Q M"]:
        """`count` steps with one transfer to the device and one back."""
        prepared = self._prepared if self._prepared and self._prepared[0] == (start, count) else None
        _, index, table = prepared or self._prepare(start, count)
        index_KMB, table_KQM = index.to(self.engine.device), table.to(self.engine.device, self.engine.dtype)
        figures = []
        for k in range(count):
            for group in self.groups:
                group.weights.at_step(start + k)
            self._index_MB.copy_(index_KMB[k])
            self._table_4M.copy_(table_KQM[k])
            self._run()
            figures.append(self._figures_3M.clone())
        following = min(CHUNK, end - start - count)
        # Made here, while a GPU still works through what was queued above, and not after its figures have been waited for.
        self._prepared = self._prepare(start + count, following) if following else None
        return torch.stack(figures).cpu()

    def _prepare(self, start: int, count: int) -> tuple[tuple[int, int], Int[Tensor, "K M B"], Float[Tensor, "K Q M"]]:
        """Which samples, and the optimizer's numbers, of some steps to come."""
        indices = [order.indices(start, count).reshape(count, -1) for order in self.orders]
        tables = torch.stack([self.optimizer.table(start + k) for k in range(count)])
        return (start, count), torch.from_numpy(np.stack(indices, axis=1)), tables

    def _run(self) -> None:
        """One step on the batch that `_index_MB` names, at the rates of `_table_4M`."""
        if not self.engine.graph:
            with matmul_precision(self.engine):
                self._one_step()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        self._graph.replay()

    @torch.no_grad()
    def _one_step(self) -> None:
        def one(group: Group) -> None:
            batch = self.samples.batch(group.rows, self._index_MB[group.rows])
            self._figures_3M[:2, group.rows] = group.step(batch)

        # Either the groups go to the workers, or each group cuts its own batch for them: never both at once.
        if self.workers.count > 1 and all(group.parts == 1 for group in self.groups):
            self.workers.map(one, self.groups)
        else:
            for group in self.groups:
                one(group)
        self._figures_3M[2] = self.optimizer.step(self.grad_MP, self._table_4M)

    def _capture(self) -> None:
        """Record the step. The warm-up runs that a capture needs must not train: what they change is put back."""
        if not all(group.weights.capturable for group in self.groups):
            raise ValueError(
                "graph=True: a loss of your own class cannot be held in a CUDA graph; use Engine(graph=False)"
            )
        kept = self._mutable()
        copies = [tensor.clone() for tensor in kept]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), matmul_precision(self.engine):
            for _ in range(3):
                self._one_step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with matmul_precision(self.engine), torch.cuda.graph(graph):
            self._one_step()
        for tensor, copy in zip(kept, copies, strict=True):
            tensor.copy_(copy)
        self._graph = graph

    def _mutable(self) -> list[Tensor]:
        """Every tensor that a step changes and the next one reads."""
        tensors = [self.flat_MP, self.optimizer.first_MP, self.optimizer.second_MP]
        if self.optimizer.ema_MP is not None:
            tensors.append(self.optimizer.ema_MP)
        for group in self.groups:
            for trunc in group.weights.truncs:
                tensors += [trunc.ring, trunc.pushed, trunc.threshold]
        return tensors

    def checkpoint(self) -> Checkpoint:
        """Everything that the next step of every model depends on."""
        flat = {"weights": self.flat_MP, "first": self.optimizer.first_MP, "second": self.optimizer.second_MP}
        if self.optimizer.ema_MP is not None:
            flat["average"] = self.optimizer.ema_MP
        losses: dict[str, Tensor] = {}
        states = [state for group in self.groups for state in group.weights.states()]
        for m, state in enumerate(states):
            losses |= state_tensors(state, prefix=f"{m}.")
        return Checkpoint(self.step, {"flat": flat, "losses": losses}, {"configurations": self._names()})

    def restore(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint of the same configurations; another one is refused."""
        if saved.numbers["configurations"] != self._names():
            raise ValueError("the checkpoint was made by other configurations than these: not the same run")
        flat = saved.groups["flat"]
        self.flat_MP.copy_(flat["weights"])
        self.optimizer.first_MP.copy_(flat["first"])
        self.optimizer.second_MP.copy_(flat["second"])
        if self.optimizer.ema_MP is not None:
            self.optimizer.ema_MP.copy_(flat["average"])
        for group in self.groups:
            numbers = range(len(self.configurations))[group.rows]
            templates = [weight.init() for weight in group.weights.weights]
            states = [
                state_from(t, saved.groups["losses"], prefix=f"{m}.") for m, t in zip(numbers, templates, strict=True)
            ]
            group.weights.load(states, step=saved.step)
        self.step = saved.step

    def _names(self) -> list[str]:
        return [f"{replace(c, loss='nll')!r} {c.weight}" for c in self.configurations]

    def log_likelihood(
        self, tokens: NDArray[np.int64], temperatures: Sequence[float], *, average: bool = False
    ) -> NDArray[np.float64]:
        """log Q^t of every row of `tokens` [S, 1 + L] under every model, exactly: [M, T, S]. One pass, on this device."""
        flat = self.flat_MP
        if average:
            kept = [self.optimizer.average(m) for m in range(len(self.configurations))]
            flat = torch.stack([self.flat_MP[m] if mean is None else mean for m, mean in enumerate(kept)])
        return stacked_log_likelihood(flat, tokens, temperatures, shape=self.configurations[0].model)

    def model(self, index: int, *, average: bool = False) -> TinyLlama:
        """Model number `index` as it is now, on the CPU; with `average`, its averaged weights."""
        flat = self.optimizer.average(index) if average else self.flat_MP[index]
        if flat is None:
            raise ValueError(f"average=True: configuration {index} keeps no average; set Train(ema=...)")
        return TinyLlama(self.configurations[index].model).to(flat.dtype).load_flat(flat.cpu())


def _initial(configurations: Sequence[Configuration], starts: Sequence[TinyLlama | None] | None) -> list[TinyLlama]:
    """Each model before its first step: the one given for it, or the one of its seed."""
    starts = [None] * len(configurations) if starts is None else starts
    if len(starts) != len(configurations):
        raise ValueError(
            f"{len(configurations)} configurations but {len(starts)} starts: give one each, None for the seed's"
        )
    for number, (c, start) in enumerate(zip(configurations, starts, strict=True)):
        if start is not None and start.shape.parameter_shapes() != c.model.parameter_shapes():
            raise ValueError(
                f"starts[{number}] has the shape {start.shape}, its configuration {c.model}; they must agree"
            )
    return [start or TinyLlama(c.model, seed=c.seed) for c, start in zip(configurations, starts, strict=True)]


def _check(configurations: Sequence[Configuration]) -> None:
    """Refuse what cannot share its products."""
    if not configurations:
        raise ValueError("configurations is empty: give at least one")
    first = configurations[0]
    for number, c in enumerate(configurations):
        for name, mine, theirs in (
            ("train.steps", c.train.steps, first.train.steps),
            ("train.batch_size", c.train.batch_size, first.train.batch_size),
            ("data.length", c.data.length, first.data.length),
            ("model's parameters", c.model.parameter_shapes(), first.model.parameter_shapes()),
            ("model.heads", c.model.heads, first.model.heads),
            ("model.norm_eps", c.model.norm_eps, first.model.norm_eps),
            ("model.rope_theta", c.model.rope_theta, first.model.rope_theta),
        ):
            if mine != theirs:
                raise ValueError(
                    f"configuration {number}: {name} is {mine}, the first one's is {theirs}; side by side they must agree"
                )
