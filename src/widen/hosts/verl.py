"""Train with a loss of this package in verl's SFT trainer. Replace the module in the command that starts it:

    torchrun ... -m widen.hosts.verl '+widen.loss="cdiv:alpha=1.4"' model.path=... data.train_files=...

verl's engine passes the log-probability of each token, and the number of targets of the whole step on all ranks. So losses that weigh
tokens work, and losses that need the whole softmax do not. verl's PPO and GRPO trainers do not take these losses.

Shapes: B sequences, C tokens of the longest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from widen.losses import NLL, Weight, parse, weighted_nll
from widen.losses.residual import only_weighs

from .refuse import refuse_loss


def weighted_loss(
    weight: Weight, config: Any, model_output: Any, data: Any, dp_group: Any = None
) -> tuple[Tensor, dict[str, Any]]:
    """Replace verl's ``sft_loss`` by the weighted sum over the targets, divided by the number of targets of the whole step.

    Evaluation, where verl takes no gradient, is always NLL.
    """
    logq_BC, mask_BC = _padded(model_output["log_probs"], data)
    used = weight if torch.is_grad_enabled() else NLL()
    loss, _ = weighted_nll(logq_BC, mask_BC, used, used.init(), num_tokens=data["batch_num_tokens"])
    return loss * data["dp_size"], {}


def _padded(log_probs: Tensor, data: Any) -> tuple[Tensor, Tensor]:
    """Log-probabilities and targets, one sequence per row. Entry c of verl's log-probabilities belongs to token c + 1."""
    if not log_probs.is_nested:
        return log_probs, data["response_mask"].bool()
    mask_BC = data["loss_mask"].to_padded_tensor(0).bool()
    # Shift each sequence by itself: verl shifts all at once, so the end of one sequence would predict the start of the next.
    return log_probs.to_padded_tensor(0.0), torch.nn.functional.pad(mask_BC[:, 1:], (0, 1), value=False)


def trainer_with(loss: str | Weight) -> type:
    """A subclass of verl's ``SFTTrainer`` that trains with ``loss``."""
    from verl.trainer.sft_trainer import SFTTrainer

    weight = parse(loss)
    refuse_loss(weight, host="verl", state=False)
    if not only_weighs(weight) or weight.needs & {"entropy", "top1"}:
        raise ValueError(
            f"verl cannot train with loss={str(weight)!r}: it needs the whole softmax of each token, and verl passes only the "
            "log-probability of the target; legal: losses that weigh a token by its log-probability, position and length, such as cdiv, "
            "gold, dft, tailr, lambda_pr, focal"
        )

    class WidenSFTTrainer(SFTTrainer):
        """verl's trainer with a loss of widen."""

        def _build_engine(self) -> None:
            if self.engine_config.strategy == "megatron":
                raise ValueError(
                    f"verl cannot train with loss={str(weight)!r} and engine=megatron, because this was not tested; legal: engine=fsdp"
                )
            ranks = getattr(self.engine_config, "ulysses_sequence_parallel_size", 1)
            if ranks > 1 and weight.needs - {"logq"}:
                raise ValueError(
                    f"verl cannot train with loss={str(weight)!r} and ulysses_sequence_parallel_size={ranks}, because the loss counts "
                    "positions and this was not tested; legal: ulysses_sequence_parallel_size=1"
                )
            super()._build_engine()
            self.loss_fn = partial(weighted_loss, weight, config=None)
            self.training_client.set_loss_fn(loss_fn=self.loss_fn)

    return WidenSFTTrainer


def main() -> None:
    """Run verl's ``sft_trainer`` with its own configuration, plus ``+widen.loss=SPEC``."""
    import hydra
    from verl.trainer import sft_trainer
    from verl.utils.device import auto_set_device

    def start(config: Any) -> None:
        if not (config.get("widen") or {}).get("loss"):
            raise ValueError(
                "widen.loss is missing; add '+widen.loss=\"cdiv:alpha=1.4\"' to the command, with both pairs of quotes"
            )
        sft_trainer.SFTTrainer = trainer_with(config.widen.loss)  # the name that run_sft looks up
        auto_set_device(config)
        sft_trainer.run_sft(config)

    hydra.main(config_path="pkg://verl.trainer.config", config_name="sft_trainer_engine", version_base=None)(start)()


if __name__ == "__main__":
    main()
