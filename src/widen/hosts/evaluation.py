"""Evaluation is NLL per target token, whatever the training loss: the one figure by which checkpoints of different losses compare.

The host averages the means of its batches, so that its ``eval_loss`` depends on how sequences of unequal length fall into batches. Here
the sums are kept.

Shapes: B rows, C columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from widen.data.targets import IGNORE, Sequences, shifted_targets
from widen.losses import NLL
from widen.train.objective import Objective

from .fused_head import Request, ask

__all__ = ["Evaluation"]


class Evaluation:
    """Sums of one pass over an evaluation set."""

    def __init__(self) -> None:
        self._nll, self._tokens = 0.0, 0.0
        self.begin(loss_only=False, gather=None)

    def begin(self, *, loss_only: bool, gather: Callable[..., Any] | None) -> None:
        """Before each batch.

        Args:
          loss_only: whether the logits may be left out.
          gather: joins the rows of all ranks and leaves out those that fill up the last batch; the host's.
        """
        self._loss_only, self._gather = loss_only, gather

    @property
    def nll(self) -> float | None:
        """NLL per target token so far; None without one."""
        return self._nll / self._tokens if self._tokens else None

    def watch(self, model: Any, inputs: dict[str, Any]) -> Callable[..., Any]:
        """A stand-in for ``model``: the fused head where only the loss is wanted, the model's own outputs otherwise."""

        def answer(**kwargs: Any) -> Any:
            target_BC = shifted_targets(inputs)
            if not self._loss_only:
                outputs = model(**kwargs)
                self.note(-_token_nll(outputs.logits, target_BC), target_BC)
                return outputs
            sequences = Sequences(target_BC)  # NLL asks for no position and no length: packed or not is the same to it
            count = kwargs.get("num_items_in_batch")
            request = Request(
                Objective(NLL()), sequences, sequences.mask_N.sum().clamp(min=1) if count is None else count
            )
            outputs = ask(model, kwargs, request)
            self.note(cast(Any, request.seen).logq_N.view_as(target_BC), target_BC)
            return outputs

        return answer

    def note(self, logq_BC: Float[Tensor, "B C"], target_BC: Tensor) -> None:
        """Add a batch; ``logq_BC`` is 0 where no target follows."""
        sums_B, tokens_B = -logq_BC.double().sum(1), (target_BC != IGNORE).sum(1).double()
        if self._gather is not None:
            sums_B, tokens_B = self._gather((sums_B, tokens_B))
        self._nll += float(sums_B.sum())
        self._tokens += float(tokens_B.sum())


def _token_nll(logits_BCV: Tensor, target_BC: Tensor) -> Float[Tensor, "B C"]:
    """-log q of each target; 0 where none follows."""
    flat = torch.nn.functional.cross_entropy(
        logits_BCV.float().flatten(0, 1),
        target_BC.flatten().to(logits_BCV.device),
        ignore_index=IGNORE,
        reduction="none",
    )
    return flat.view_as(target_BC)
