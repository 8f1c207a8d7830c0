"""Many small models as one on a GPU: their parameters stacked to [M, ...], one forward for all by `torch.func.vmap`.

Each model keeps its own `Loop` and `Objective`: its weights come from the loss's own code, and its log and checkpoint are those of a
model trained alone. Models whose equal losses keep no scores are weighed together. A model whose loss is not finite stops moving on
the device; the host reads the figures of many steps at once and then ends the run.

Shapes: M models, B sequences, T tokens of a row, C = T - 1 positions, N = B C places, P parameters, K steps of a chunk, k sums.
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
from widen.data.rows import Rows
from widen.data.targets import IGNORE, LOSS_WEIGHTS, Sequences
from widen.head import SUMS, target_sums
from widen.losses import PLAIN, Warmup, Weight
from widen.models import checkpoint
from widen.models.tiny_llama import LlamaShape, TinyLlama, plain_attention

from .figures import Figures
from .flat_adamw import FlatAdamW
from .log import Log
from .loop import Loop
from .loss_state import advance_on_host, on_device, tensors_of
from .objective import Objective
from .order import Order
from .settings import Configuration
from .step import StepFigures, refuse_figures

__all__ = ["Stacked", "run_stacked"]

CHUNK = 64
"""Steps whose batches are copied to the device, and whose figures are read back, together."""

OnSteps = Callable[[int, StepFigures], None]
"""Called with a number of steps, and the figures of one of them."""


def run_stacked(
    loops: Sequence[Loop],
    configurations: Sequence[Configuration],
    *,
    progress: OnSteps,
    compile: bool = True,
) -> None:
    """Train all loops to their end; those that agree in shape, batch size and steps are stacked.

    ``progress`` is called with how many steps were made, and the figures of one of them.
    """
    groups: dict[Hashable, list[int]] = {}
    for m, (loop, c) in enumerate(zip(loops, configurations, strict=True)):
        model = c.model
        size = (tuple(model.parameter_shapes().items()), model.heads, model.norm_eps, model.rope_theta)
        width = c.data.train_batch().tokens_BL.shape[1]
        groups.setdefault((size, width, c.train.batch_size, c.train.steps, loop.step), []).append(m)
    for members in groups.values():
        mine = [loops[m] for m in members]
        Stacked(mine, [configurations[m] for m in members], compile=compile).run(progress)


class Stacked:
    """The loops of models of one shape, advanced together.

    Args:
      loops: each holds its model, optimizer, loss and folder; all at the same step.
      configurations: what each loop trains on.
      compile: pass the forward through `torch.compile`; it takes about half a minute, once.
      graph: hold the whole step in one CUDA graph. None does so on a GPU if every loss is one of `widen.losses`: these never wait for
        the device. A loss of your own may, so it runs without a graph.
    """

    def __init__(
        self,
        loops: Sequence[Loop],
        configurations: Sequence[Configuration],
        *,
        compile: bool = False,
        graph: bool | None = None,
    ) -> None:
        for loop in loops:
            if getattr(loop.weight, "rows_fn", None) is not None:
                raise ValueError(
                    f"{loop.weight} has a rows_fn, which models trained together cannot run; use train_one"
                )
        self.loops, self.step, M = list(loops), loops[0].step, len(loops)
        self.device = next(loops[0].model.parameters()).device
        self.graph = (self.device.type == "cuda" and all(map(_ours, loops))) if graph is None else graph
        self.flat_MP = torch.stack([_model(loop).flat() for loop in loops])
        self.optimizer = FlatAdamW(self.flat_MP, [c.train for c in configurations])
        self._load_optimizer()
        samples = [c.data.train_batch() for c in configurations]
        self.orders = [
            Order(num_samples=len(data.tokens_BL), batch_size=c.train.batch_size, seed=c.seed)
            for c, data in zip(configurations, samples, strict=True)
        ]
        self.samples, self.offset_M = _joined(samples, self.device)
        self._bent = any(loop.weight.residual != PLAIN for loop in loops)
        self.forward = _forward(configurations[0].model, self.device, bent=self._bent, compile=compile)
        self.together = [at.to(self.device) for at in _together(loops)]
        for objective in self._objectives():
            objective.state = on_device(objective.state, self.device)
        # What a step reads and writes: tensors of its own, so that a CUDA graph can be replayed on them.
        self._index_MB = torch.zeros(M, configurations[0].train.batch_size, dtype=torch.int64, device=self.device)
        self._table_4M = torch.zeros(4, M, dtype=self.flat_MP.dtype, device=self.device)
        self._residual_M3 = torch.zeros(M, 3, dtype=self.flat_MP.dtype, device=self.device)
        self._set_residuals()
        self._alive_M = torch.ones(M, dtype=torch.bool, device=self.device)
        self._found_Mq = torch.zeros(M, len(SUMS) + 1, dtype=torch.float64, device=self.device)
        self._captured: torch.cuda.CUDAGraph | None = None

    def run(self, progress: OnSteps) -> None:
        """Train to the end, with the logs and checkpoints of `Loop.run`."""
        first = self.loops[0]
        steps, every = first.train.steps, first.save_every
        logs = [Log(loop.folder / "log.jsonl", step=self.step) if loop.folder else None for loop in self.loops]
        try:
            while self.step < steps:
                start = self.step
                chunk = self.advance(min(CHUNK, steps - start, every - start % every))
                for step, figures in enumerate(chunk, start):
                    if (step + 1) % first.log_every == 0 or step in (0, steps - 1):
                        for loop, log, one in zip(self.loops, logs, figures, strict=True):
                            if log is not None:
                                log.write(loop.record(one, step=step))
                    progress(len(self.loops), figures[0])
                if self.step % every == 0 or self.step == steps:
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

    def advance(self, count: int = 1) -> list[list[StepFigures]]:
        """`count` steps of every model, with one transfer to the device and one back; the figures of each step and model.

        Raises:
          NonFiniteLossError: a loss or gradient was not finite. That model kept the weights of the step before.
        """
        start = self.step
        chosen = np.stack([order.indices(start, count).reshape(count, -1) for order in self.orders], axis=1)
        index_KMB = torch.from_numpy(chosen).to(self.device) + self.offset_M[None, :, None]
        table_K4M = torch.stack([self.optimizer.table(start + k) for k in range(count)]).to(self._table_4M)
        found = []
        for k in range(count):
            self._index_MB.copy_(index_KMB[k])
            self._table_4M.copy_(table_K4M[k])
            self._run()
            found.append(self._found_Mq.clone())
            self.step += 1
        chunk = [[StepFigures.of(Figures(*sums), norm) for *sums, norm in rows] for rows in torch.stack(found).tolist()]
        for k, rows in enumerate(chunk):
            for loop, one in zip(self.loops, rows, strict=True):
                refuse_figures(one, loop.objective.weight, step=start + k + 1)
        for loop in self.loops:
            loop.step = self.step
        return chunk

    def _run(self) -> None:
        """One step on what `_index_MB` and `_table_4M` hold."""
        changes = any(_changes_at(loop.weight, self.step) for loop in self.loops)
        if changes:
            self._set_residuals()
        if not self.graph:
            self._one_step()
            return
        if self._captured is None or changes:
            self._capture()
        assert self._captured is not None
        self._captured.replay()
        for objective in self._objectives():
            advance_on_host(objective.state)

    def _set_residuals(self) -> None:
        """Write down the residual of each model's loss at this step."""
        for at, objective in zip(self.together, self._objectives(), strict=True):
            now = objective.weight.now(objective.state).residual
            self._residual_M3[at] = self._residual_M3.new_tensor([now.tau, now.smooth, now.entropy])

    def _one_step(self) -> None:
        """Forward, weights, backward, check, optimizer, observe. Nothing here waits for the device."""
        tokens_MBT = self.samples.tokens_BL[self._index_MB]
        mask_MBT = self.samples.mask_BL[self._index_MB]
        target_MBC = tokens_MBT[..., 1:].masked_fill(~mask_MBT[..., 1:], IGNORE)
        parameters = {name: view.requires_grad_() for name, view in self._views()}
        value_MN, logq_MN, entropy_MN, top1_MN = self.forward(
            parameters, tokens_MBT[..., :-1], target_MBC, self._residual_M3
        )
        w_MN = self._weigh(logq_MN, entropy_MN, top1_MN, target_MBC)
        tokens_M = (target_MBC != IGNORE).sum((1, 2))
        active_MN = w_MN != 0  # a token of weight 0 may have probability 0: its share is 0, not 0 * -inf
        share_MN = torch.where(active_MN, w_MN / tokens_M.clamp(min=1)[:, None], 0.0)
        loss = -(share_MN * torch.where(active_MN, value_MN, 0.0)).sum()
        grads = torch.autograd.grad(loss, list(parameters.values()))
        grad_MP = torch.cat([grad.flatten(1) for grad in grads], dim=1)
        norm_M: Tensor = torch.linalg.vector_norm(grad_MP, dim=1)
        sums_Mk = vmap(lambda *columns: target_sums(*columns[:4], tokens=columns[4]))(
            logq_MN, w_MN, entropy_MN, top1_MN, tokens_M
        )
        if self._bent:  # the value of a token is not its log q
            sums_Mk[:, 0] = torch.where(active_MN, w_MN * value_MN.detach(), 0.0).sum(1)
        self._found_Mq.copy_(torch.cat([sums_Mk, norm_M[:, None]], dim=1))
        self._alive_M &= norm_M.isfinite() & sums_Mk[:, 0].isfinite() & ~sums_Mk[:, SUMS.index("logq")].isnan()
        with torch.no_grad():
            self.optimizer.step(grad_MP, norm_M, self._table_4M, self._alive_M)
        for objective in self._objectives():
            self._observe(objective)

    def _weigh(
        self,
        logq_MN: Float[Tensor, "M N"],
        entropy_MN: Float[Tensor, "M N"],
        top1_MN: Float[Tensor, "M N"],
        target_MBC: Int[Tensor, "M B C"],
    ) -> Float[Tensor, "M N"]:
        """Each model's weights by its own loss; equal losses without scores take one call together."""
        w_MN = torch.empty_like(logq_MN)
        weights = None if self.samples.weights_BL is None else self.samples.weights_BL[self._index_MB][..., 1:]
        for at, objective in zip(self.together, self._objectives(), strict=True):
            columns = (
                {}
                if weights is None
                else {LOSS_WEIGHTS: torch.where(target_MBC[at] == IGNORE, 0.0, weights[at]).flatten(0, 1)}
            )
            rows = Rows(logq_MN, entropy=entropy_MN, top1=top1_MN).map(lambda x, at=at: x[at].flatten())  # type: ignore[misc]
            w = objective.weigh(rows, Sequences(target_MBC[at].flatten(0, 1), columns=columns))
            w_MN[at] = w.view(len(at), -1)
        return w_MN

    def _observe(self, objective: Objective) -> None:
        """End the step of one loss; inside a graph its state stays in the same tensors."""
        weight, before = objective.weight, self._states[id(objective)] if self.graph else ()
        after = weight.observe(weight.seen(objective.state), objective.state)
        if not self.graph:
            objective.state = after
            return
        for old, new in zip(tensors_of(before), tensors_of(after), strict=True):
            if old.device.type != "cpu":
                old.copy_(new)
        objective.state = before

    def _objectives(self) -> list[Objective]:
        """The first objective of every group that is weighed together: its state is that of the whole group."""
        return [self.loops[int(at[0])].objective for at in _together(self.loops)]

    def _capture(self) -> None:
        """Record the step. The runs that a capture needs first must not train: restore what they change."""
        self._states = {id(objective): objective.state for objective in self._objectives()}
        kept = [self.flat_MP, self.optimizer.first_MP, self.optimizer.second_MP, self._alive_M]
        kept += [] if self.optimizer.ema_MP is None else [self.optimizer.ema_MP]
        kept += [tensor for state in self._states.values() for tensor in tensors_of(state) if tensor.is_cuda]
        copies = [tensor.clone() for tensor in kept]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._one_step()
        torch.cuda.current_stream().wait_stream(stream)
        self._captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._captured):
            self._one_step()
        for tensor, copy in zip(kept, copies, strict=True):
            tensor.copy_(copy)

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
        """Copy weights, moments, averages and loss states into the loops."""
        for members, objective in zip(self.together, self._objectives(), strict=True):
            for m in members.tolist():
                self.loops[m].objective.state = objective.state
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


def _model(loop: Loop) -> TinyLlama:
    assert isinstance(loop.model, TinyLlama)
    return loop.model


def _joined(samples: Sequence[Batch], device: torch.device) -> tuple[Batch, Int[Tensor, " M"]]:
    """All training samples in one table, and the first row of each model's."""
    sizes = torch.tensor([0] + [len(batch.tokens_BL) for batch in samples[:-1]])
    tokens, mask = (torch.cat([getattr(batch, name) for batch in samples]) for name in ("tokens_BL", "mask_BL"))
    weights = None
    if any(batch.weights_BL is not None for batch in samples):
        weights = torch.cat(
            [batch.mask_BL.float() if batch.weights_BL is None else batch.weights_BL for batch in samples]
        )
    return Batch(tokens, mask, weights).to(device), sizes.cumsum(0).to(device)


def _forward(
    shape: LlamaShape, device: torch.device, *, bent: bool, compile: bool
) -> Callable[..., tuple[Tensor, ...]]:
    """Value of each target, which alone has a gradient, its log-probability, the entropy, and whether it is the most likely token.

    The value is the log-probability; with ``bent`` it is the one that each model's residual asks for (`widen.losses.Residual`).
    """
    net = TinyLlama(shape, attend=plain_attention).to(device)

    def one(
        parameters: dict[str, Tensor], inputs_BC: Tensor, target_BC: Tensor, residual_3: Tensor
    ) -> tuple[Tensor, ...]:
        hidden = functional_call(net, parameters, (inputs_BC,))
        logp_BCV = F.linear(hidden, parameters["head"]).log_softmax(-1)
        counts = target_BC != IGNORE
        place = target_BC.clamp(min=0)[..., None]
        logq = logp_BCV.gather(-1, place)[..., 0]
        value = logq
        if bent:
            tau, smooth, bonus = residual_3
            tempered_BCV = tau * (logp_BCV / tau).log_softmax(-1)
            value = (1 - smooth) * tempered_BCV.gather(-1, place)[..., 0] + smooth * tempered_BCV.mean(-1)
            value = value - bonus * (logp_BCV.exp() * logp_BCV).sum(-1)
        seen = logp_BCV.detach()
        entropy = -(seen.exp() * seen).sum(-1)
        top1 = (logq.detach() == seen.amax(-1)).to(logq.dtype)
        return tuple(torch.where(counts, x, 0.0).flatten() for x in (value, logq.detach(), entropy, top1))

    stacked = vmap(one)
    return torch.compile(stacked, dynamic=False) if compile else stacked


def _together(loops: Sequence[Loop]) -> list[Int[Tensor, " g"]]:
    """Models that are weighed in one call: those with equal losses, unless the loss keeps scores of its own sequences."""
    groups: dict[Hashable, list[int]] = {}
    for m, loop in enumerate(loops):
        alone = loop.weight.score_columns or type(loop.weight).__hash__ is None
        groups.setdefault(("model", m) if alone else ("loss", loop.weight), []).append(m)
    return [torch.tensor(members) for members in groups.values()]


def _ours(loop: Loop) -> bool:
    """Whether a loss and its parts are from `widen.losses`, which never wait for the device."""
    weight = loop.weight.then if isinstance(loop.weight, Warmup) else loop.weight
    return all(type(part).__module__.startswith("widen.losses.") for part in (weight, *getattr(weight, "factors", ())))


def _changes_at(weight: Weight, step: int) -> bool:
    """Whether a schedule passes to its next loss at this step."""
    return isinstance(weight, Warmup) and weight.steps == step
