"""AdamW and the running average of the weights for M models at once, on flat buffers [M, P].

`torch.optim.AdamW` cannot give each row of a tensor its own rate, decay and betas. This gives the same numbers as one
`torch.optim.AdamW` per model.

Shapes: M models, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .settings import Train, ema_decay


class FlatAdamW:
    """The optimizer state of M models and its step.

    Args:
      flat_MP: parameters, changed in place.
      trains: one `Train` per model.
    """

    def __init__(self, flat_MP: Float[Tensor, "M P"], trains: Sequence[Train]) -> None:
        self.flat_MP, self.trains = flat_MP, tuple(trains)
        self.first_MP, self.second_MP = torch.zeros_like(flat_MP), torch.zeros_like(flat_MP)
        self.ema_MP = flat_MP.clone() if any(train.ema for train in trains) else None

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).to(flat_MP.device, flat_MP.dtype)[:, None]

        self.beta1 = column([1 - train.optimizer.betas[0] for train in trains])
        self.beta2 = column([1 - train.optimizer.betas[1] for train in trains])
        self.eps = column([train.optimizer.eps for train in trains])
        self.max_norm = column([train.optimizer.max_grad_norm for train in trains])
        self.clips = any(train.optimizer.max_grad_norm < torch.inf for train in trains)

    def table(self, step: int) -> Float[Tensor, "4 M"]:
        """Step size, root of the second bias correction, decay and average factor of step `step` (from 0), in float64."""
        rows = []
        for train in self.trains:
            (beta1, beta2), lr = train.optimizer.betas, train.lr(step)
            correct1, correct2 = 1 - beta1 ** (step + 1), 1 - beta2 ** (step + 1)
            rows.append(
                [lr / correct1, correct2**0.5, 1 - lr * train.optimizer.weight_decay, 1 - ema_decay(train.ema, step)]
            )
        return torch.tensor(rows, dtype=torch.float64).t().contiguous()

    def step(
        self,
        grad_MP: Float[Tensor, "M P"],
        norm_M: Float[Tensor, " M"],
        table_4M: Float[Tensor, "4 M"],
        alive_M: Bool[Tensor, " M"],
    ) -> None:
        """One step of the models that are alive; ``norm_M`` are the norms of their gradients."""
        alive_M1 = alive_M[:, None]
        size, root, keep, follow = (row[:, None] for row in table_4M)
        size, keep, follow = size * alive_M1, torch.where(alive_M1, keep, 1.0), follow * alive_M1
        grad_MP = torch.where(alive_M1, grad_MP, 0.0)  # 0 times nan is nan: the gradient itself must go
        if self.clips:
            grad_MP.mul_(
                (self.max_norm / (norm_M[:, None] + 1e-6)).nan_to_num_(1.0).clamp_(max=1)
            )  # 1e-6: as clip_grad_norm_
        self.flat_MP.mul_(keep)
        self.first_MP.lerp_(grad_MP, self.beta1)
        self.second_MP.lerp_(grad_MP.square(), self.beta2)
        change = self.second_MP.sqrt().div_(root).add_(self.eps)
        self.flat_MP.addcmul_(self.first_MP / change, size, value=-1)
        if self.ema_MP is not None:
            self.ema_MP.lerp_(self.flat_MP, follow)
