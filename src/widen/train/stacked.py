"""Many small models as one on a GPU: their parameters stacked to [M, ...], one forward for all by `torch.func.vmap`.

Only forward, backward and optimizer are stacked. Each model keeps its own `Loop` with its own `Objective`, so that its loss is the
loss's own code, and its log and checkpoint are those of a model trained alone. Models whose equal losses keep no scores are
weighed together.

Shapes: M models, B sequences, C positions, N = B C places, P parameters, K steps of a chunk, k sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional as F

from widen.data.batch import Batch
from widen.data.targets import Sequences
from widen.head import HostCopy, target_sums
from widen.models import checkpoint
from widen.models.tiny_llama import LlamaShape, TinyLlama, plain_attention

from .flat_adamw import FlatAdamW
from .log import Log
from .loop import Loop
from .objective import MicroBatch
from .order import Order
from .progress import OnProgress, Progress
from .settings import Configuration
from .step import StepFigures, refuse_gradient

__all__ = ["Stacked", "run_stacked"]

CHUNK = 64
"""Steps whose batches are prepared and copied to the device together."""


def run_stacked(
    loops: Sequence[Loop],
    configurations: Sequence[Configuration],
    *,
    progress: Callable[[Loop], OnProgress],
    compile: bool = True,
) -> None:
    """Train all loops to their end; those that agree in shape, batch size and steps are stacked.

    ``progress(loop)`` is called with the steps of each loop.
    """
    groups: dict[Hashable, list[int]] = {}
    for m, (loop, c) in enumerate(zip(loops, configurations, strict=True)):
        model = c.model
        size = (tuple(model.parameter_shapes().items()), model.heads, model.norm_eps, model.rope_theta)
        width = c.data.train_batch().tokens_BL.shape[1]
        groups.setdefault((size, width, c.train.batch_size, c.train.steps, loop.step), []).append(m)
    for members in groups.values():
        mine = [loops[m] for m in members]
        Stacked(mine, [configurations[m] for m in members], compile=compile).run([progress(loop) for loop in mine])


class Stacked:
    """The loops of models of one shape, advanced together.

    Args:
      loops: each holds its model, optimizer, loss and folder; all at the same step.
      configurations: what each loop trains on.
      compile: pass the forward through `torch.compile` with CUDA graphs; it takes half a minute, once.
    """

    def __init__(
        self, loops: Sequence[Loop], configurations: Sequence[Configuration], *, compile: bool = False
    ) -> None:
        self.loops, self.step = list(loops), loops[0].step
        first = configurations[0]
        self.device = next(loops[0].model.parameters()).device
        self.flat_MP = torch.stack([_model(loop).flat() for loop in loops])
        self.optimizer = FlatAdamW(self.flat_MP, [c.train for c in configurations])
        self._load_optimizer()
        samples = [c.data.train_batch() for c in configurations]
        self.orders = [
            Order(num_samples=len(data.tokens_BL), batch_size=c.train.batch_size, seed=c.seed)
            for c, data in zip(configurations, samples, strict=True)
        ]
        self.samples, self.offset_M = _joined(samples, self.device)
        self.forward = _forward(first.model, self.device, compile=compile)
        self.together = _together(loops)
        self._index_KMB: tuple[range, Tensor] = (range(0), torch.empty(0))

    def run(self, progress: Sequence[OnProgress]) -> None:
        """Train to the end, with the logs and checkpoints of `Loop.run`."""
        first = self.loops[0]
        logs = [Log(loop.folder / "log.jsonl", step=self.step) if loop.folder else None for loop in self.loops]
        try:
            while self.step < first.train.steps:
                figures = self.advance()
                last = self.step == first.train.steps
                if self.step % first.log_every == 0 or self.step == 1 or last:
                    for loop, log, one in zip(self.loops, logs, figures, strict=True):
                        if log is not None:
                            log.write(loop.record(one))
                for tell, one in zip(progress, figures, strict=True):
                    tell(Progress(self.step, first.train.steps, one.loss, one.nll, math.nan))
                if self.step % first.save_every == 0 or last:
                    self.save(logs)
        finally:
            for log in logs:
                if log is not None:
                    log.close()

    def save(self, logs: Sequence[Log | None]) -> None:
        """Bring every loop up to date and write its checkpoint."""
        self.write_back()
        for loop, log in zip(self.loops, logs, strict=True):
            if log is not None and loop.folder is not None:
                log.sync()
                checkpoint.save(loop.folder / "resume", loop.checkpoint())

    def advance(self) -> list[StepFigures]:
        """One step of every model."""
        batch = self.samples.rows(self._indices(self.step).flatten())
        M, target_BC = len(self.loops), batch.sequences.target_BC
        target_MBC = target_BC.view(M, -1, target_BC.shape[1])
        parameters = {name: view.requires_grad_() for name, view in self._views()}
        logq_MN, entropy_MN, top1_MN = self.forward(
            parameters, batch.inputs.view(M, -1, target_BC.shape[1]), target_MBC
        )
        w_MN = self._weigh(logq_MN.detach(), target_MBC)
        tokens_M = (target_MBC != -100).sum((1, 2))
        share_MN = w_MN / tokens_M.clamp(min=1)[:, None]
        loss = -torch.where(share_MN == 0, 0.0, share_MN * torch.where(share_MN == 0, 0.0, logq_MN)).sum()
        sums_Mk = vmap(lambda *columns: target_sums(*columns[:4], tokens=columns[4]))(
            logq_MN.detach(), w_MN, entropy_MN, top1_MN, tokens_M
        )
        grads = torch.autograd.grad(loss, list(parameters.values()))
        grad_MP = torch.cat([grad.flatten(1) for grad in grads], dim=1)
        norm_M: Tensor = torch.linalg.vector_norm(grad_MP, dim=1)
        figures = self._finish(torch.cat([sums_Mk, norm_M[:, None].double()], dim=1), batch, logq_MN, w_MN)
        self.optimizer.step(grad_MP, norm_M, self.optimizer.table(self.step).to(self.device, self.flat_MP.dtype))
        self.step += 1
        for loop in self.loops:
            loop.step = self.step
        return figures

    def _weigh(self, logq_MN: Float[Tensor, "M N"], target_MBC: Int[Tensor, "M B C"]) -> Float[Tensor, "M N"]:
        """Each model's weights by its own loss; equal losses without scores take one call together."""
        w_MN = torch.empty_like(logq_MN)
        for members in self.together:
            at = members.to(self.device)
            objectives = [self.loops[m].objective for m in members.tolist()]
            w = objectives[0].weigh(logq_MN[at].flatten(), Sequences(target_MBC[at].flatten(0, 1)))
            for other in objectives[1:]:
                other.state = objectives[0].state
            w_MN[at] = w.view(len(at), -1)
        return w_MN

    def _finish(self, found_Mq: Tensor, batch: Batch, logq_MN: Tensor, w_MN: Tensor) -> list[StepFigures]:
        """Read every model's sums and gradient norm, stop if one is not finite, and let each loss observe."""
        figures, M = [], len(self.loops)
        target_MBC = batch.sequences.target_BC.view(M, -1, batch.targets.shape[1])
        for m, (loop, (*sums, norm)) in enumerate(zip(self.loops, HostCopy(found_Mq).read(), strict=True)):
            objective, mine = loop.objective, Sequences(target_MBC[m])
            tokens = batch.inputs.view_as(target_MBC)[m]
            objective.pending.append(
                MicroBatch(
                    _Known(sums), sums[-1] or 1.0, _Known(len(tokens)), logq_MN.new_tensor(-sums[0]), logq_MN[m], w_MN[m], mine, tokens
                )
            )  # fmt: skip
            made = objective.finish(step=self.step + 1)
            refuse_gradient(norm, objective, step=self.step + 1)
            figures.append(StepFigures(-made.weighted / max(made.tokens, 1), norm, made))
        return figures

    def _indices(self, step: int) -> Int[Tensor, "M B"]:
        """Which samples make up this step's batches, from a chunk of steps that was copied to the device at once."""
        held, index_KMB = self._index_KMB
        if step not in held:
            held = range(step, step + CHUNK)
            chosen = np.stack([order.indices(step, CHUNK).reshape(CHUNK, -1) for order in self.orders], axis=1)
            index_KMB = torch.from_numpy(chosen).to(self.device) + self.offset_M[None, :, None]
            self._index_KMB = held, index_KMB
        return index_KMB[step - held.start]

    def _views(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter of all models as a view [M, ...] of the flat buffer."""
        at = 0
        for name, shape in _model(self.loops[0]).shape.parameter_shapes().items():
            count = math.prod(shape)
            yield name, self.flat_MP[:, at : at + count].detach().view(len(self.loops), *shape)
            at += count

    def _load_optimizer(self) -> None:
        """Take over the moments and averages of resumed loops."""
        for m, loop in enumerate(self.loops):
            model, parameters = _model(loop), dict(loop.model.named_parameters())
            for name, flat_MP in (("exp_avg", self.optimizer.first_MP), ("exp_avg_sq", self.optimizer.second_MP)):
                states = [loop.optimizer.state.get(parameters[key]) for key in model.shape.parameter_shapes()]
                if all(states):
                    flat_MP[m] = torch.cat([state[name].reshape(-1) for state in states if state])
            if loop.average is not None and self.optimizer.ema_MP is not None:
                self.optimizer.ema_MP[m] = torch.cat(
                    [loop.average[key].reshape(-1) for key in model.shape.parameter_shapes()]
                )

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy weights, moments and averages into the loops."""
        for m, loop in enumerate(self.loops):
            model = _model(loop).load_flat(self.flat_MP[m])
            for name, parameter in model.named_parameters():
                loop.optimizer.state[parameter] = {"step": torch.tensor(float(self.step))}
                if loop.average is not None:
                    loop.average[name] = torch.empty_like(parameter)
            at, parameters = 0, dict(model.named_parameters())
            for key, shape in model.shape.parameter_shapes().items():
                part = slice(at, at + math.prod(shape))
                state: Any = loop.optimizer.state[parameters[key]]
                state["exp_avg"] = self.optimizer.first_MP[m, part].view(shape).clone()
                state["exp_avg_sq"] = self.optimizer.second_MP[m, part].view(shape).clone()
                if loop.average is not None and self.optimizer.ema_MP is not None:
                    loop.average[key].copy_(self.optimizer.ema_MP[m, part].view(shape))
                at = part.stop


class _Known:
    """Numbers that are already on the host."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def read(self) -> Any:
        return self.numbers


def _model(loop: Loop) -> TinyLlama:
    assert isinstance(loop.model, TinyLlama)
    return loop.model


def _joined(samples: Sequence[Batch], device: torch.device) -> tuple[Batch, Int[Tensor, " M"]]:
    """All training samples in one table, and the first row of each model's."""
    sizes = torch.tensor([0] + [len(batch.tokens_BL) for batch in samples[:-1]])
    tokens, mask = (torch.cat([getattr(batch, name) for batch in samples]) for name in ("tokens_BL", "mask_BL"))
    return Batch(tokens, mask).to(device), sizes.cumsum(0).to(device)


def _forward(shape: LlamaShape, device: torch.device, *, compile: bool) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Log-probability of each target, entropy and whether the target is the most likely token, each [M, N]."""
    net = TinyLlama(shape, attend=plain_attention).to(device)

    def one(parameters: dict[str, Tensor], inputs_BC: Tensor, target_BC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = functional_call(net, parameters, (inputs_BC,))
        logp_BCV = F.linear(hidden, parameters["head"]).log_softmax(-1)
        counts = target_BC != -100
        logq = logp_BCV.gather(-1, target_BC.clamp(min=0)[..., None])[..., 0]
        seen = logp_BCV.detach()
        entropy = -(seen.exp() * seen).sum(-1)
        top1 = (logq.detach() == seen.amax(-1)).to(logq.dtype)
        return tuple(torch.where(counts, x, 0.0).flatten() for x in (logq, entropy, top1))  # type: ignore[return-value]

    stacked = vmap(one)
    return torch.compile(stacked, mode="reduce-overhead", dynamic=False) if compile else stacked


def _together(loops: Sequence[Loop]) -> list[Int[Tensor, " g"]]:
    """Models that are weighed in one call: those with equal losses, unless the loss keeps scores of its own sequences."""
    groups: dict[Hashable, list[int]] = {}
    for m, loop in enumerate(loops):
        alone = loop.weight.score_columns or type(loop.weight).__hash__ is None
        groups.setdefault(("model", m) if alone else ("loss", loop.weight), []).append(m)
    return [torch.tensor(members) for members in groups.values()]
