"""The result of a fine-tuning in a few numbers (summary.json): how far the weights moved and how the training NLL fell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from widen.train.log import Log, read_log

from ..folder import RunFolder
from ..value import to_json
from .defaults import Chosen

HARDLY = 1e-4
"""Warn if the weights moved by less than this share of their norm."""
VALUES = 1 << 16
"""Values of each tensor that `sampled` keeps; a copy of all weights could fill the memory."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of a finished run.

    Args:
      loss: with the window that was chosen.
      steps: after which the saved model was trained. With early stopping they end at the lowest NLL of the held-out data.
      steps_made: with those after it.
      weight_change: ||w_end - w_start|| / ||w_start||.
      nll_first, nll_last: NLL per target token, mean over the first and the last tenth of the steps.
      eval_nll: NLL of the held-out data under the saved model; None without such data.
      weight_zero_share: share of the target tokens with weight 0, mean over the steps.
      weight_ess: effective sample size of the weights as a share of the tokens, mean over the steps.
    """

    chosen: Chosen
    loss: str
    steps: int
    steps_made: int
    weight_change: float
    nll_first: float
    nll_last: float
    eval_nll: float | None
    weight_zero_share: float
    weight_ess: float

    def __str__(self) -> str:
        text = (
            f"{self.loss}: the weights moved by {self.weight_change:.1e} of their norm; NLL per token of the training data "
            f"{self.nll_first:.3f} at first, {self.nll_last:.3f} at last"
        )
        text += f"; evaluation NLL {self.eval_nll:.3f}" if self.eval_nll is not None else ""
        text += f", the lowest: the model after step {self.steps:,} is saved" if self.steps < self.steps_made else ""
        return text + (
            f"; {self.weight_zero_share:.1%} of the target tokens left out" if self.weight_zero_share else ""
        )

    @property
    def warning(self) -> str | None:
        """A sentence if the run hardly changed the model."""
        if self.weight_change >= HARDLY:
            return None
        return (
            f"the weights hardly moved: by {self.weight_change:.1e} of their norm (the limit of this warning is {HARDLY:g}). Raise the "
            f"learning rate ({self.chosen.lr:g}), or train for more than {self.chosen.steps:,} steps"
        )


def sampled(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Up to `VALUES` evenly spaced values of each tensor, on the CPU, and the tensor's size."""
    kept = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().reshape(-1)
        kept[name] = (flat[:: max(1, flat.numel() // VALUES)][:VALUES].float().cpu().clone(), flat.numel())
    return kept


def weight_change(start: Mapping[str, Any], end: Mapping[str, Any]) -> float:
    """||w_end - w_start|| / ||w_start||, estimated from the `sampled` values; exact for tensors that are kept whole.

    >>> import torch
    >>> weight_change(sampled({"w": torch.tensor([3.0, 4.0])}), sampled({"w": torch.tensor([3.0, 4.5])}))
    0.1
    """
    moved = length = 0.0
    for name, (before, size) in start.items():
        factor = size / max(before.numel(), 1)
        moved += factor * float((end[name][0].double() - before.double()).square().sum())
        length += factor * float(before.double().square().sum())
    return math.sqrt(moved / length) if length else 0.0


def summarise(folder: RunFolder, chosen: Chosen, loss: str, change: float, *, lowest: bool) -> Summary:
    """Write summary.json, and add `weight_change` to the last step's line of the log."""
    lines = read_log(folder.log)
    last = int(lines[-1]["step"])
    evals = [(int(line["step"]), float(line["eval_nll"])) for line in lines if "eval_nll" in line]
    kept, eval_nll = (min(evals, key=lambda one: one[1]) if lowest else evals[-1]) if evals else (last, None)
    steps = [line for line in lines if "nll" in line and line["step"] <= kept]
    tenth = max(1, len(steps) // 10)
    summary = Summary(
        chosen=chosen,
        loss=loss,
        steps=kept + 1,
        steps_made=last + 1,
        weight_change=change,
        nll_first=_mean(steps[:tenth], "nll"),
        nll_last=_mean(steps[-tenth:], "nll"),
        eval_nll=eval_nll,
        weight_zero_share=_mean(steps, "weight_zero_share"),
        weight_ess=_mean(steps, "weight_ess"),
    )
    log = Log(folder.log, step=last)  # drops the lines of the last step, which are written again
    for line in lines:
        if line["step"] == last:
            log.write(line | ({"weight_change": change} if "nll" in line else {}))
    log.close()
    folder.write(folder.path / "summary.json", to_json(summary))
    return summary


def _mean(lines: list[dict[str, Any]], name: str) -> float:
    values = [float(line[name]) for line in lines if name in line]
    return sum(values) / len(values) if values else math.nan
