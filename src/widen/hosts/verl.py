"""verl's SFT trainer with a loss of this package. Replace the module in the command that starts it:

    torchrun ... -m widen.hosts.verl '+widen.loss="cdiv:alpha=1.4"' model.path=... data.train_files=...

verl's engine gives the log-probability of each token, and the targets of the whole step on all ranks. So the losses that weigh tokens work;
those that need the whole softmax do not. Supervised fine-tuning only: verl's PPO and GRPO trainers do not take these losses.

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
    """In the place of verl's ``sft_loss``: the weighted sum over the targets, divided by the targets of the whole step.

    In evaluation, where verl takes no gradient, it is NLL whatever the loss.
    """
    logq_BC, mask_BC = _padded(model_output["log_probs"], data)
    used = weight if torch.is_grad_enabled() else NLL()
    loss, _ = weighted_nll(logq_BC, mask_BC, used, used.init(), num_tokens=data["batch_num_tokens"])
    return loss * data["dp_size"], {}


def _padded(log_probs: Tensor, data: Any) -> tuple[Tensor, Tensor]:
    """Log-probabilities and targets, one sequence a row. Entry c of verl's log-probabilities is about token c + 1."""
    if not log_probs.is_nested:
        return log_probs, data["response_mask"].bool()
    mask_BC = data["loss_mask"].to_padded_tensor(0).bool()
    # verl shifts the mask of all sequences at once, so that a first token that is a target would be predicted by another sequence.
    return log_probs.to_padded_tensor(0.0), torch.nn.functional.pad(mask_BC[:, 1:], (0, 1), value=False)


def trainer_with(loss: str | Weight) -> type:
    """A subclass of verl's ``SFTTrainer`` that trains with ``loss``."""
    from verl.trainer.sft_trainer import SFTTrainer

    weight = parse(loss)
    refuse_loss(weight, host="verl", state=False)
    if not only_weighs(weight) or weight.needs & {"entropy", "top1"}:
        raise ValueError(
            f"{weight} needs the whole softmax of each token, and verl's SFT engine gives the target's log-probability alone; legal: "
            "losses that weigh the token by its log-probability, position and length, such as cdiv, gold, dft, tailr, lambda_pr, focal"
        )

    class WidenSFTTrainer(SFTTrainer):
        """verl's trainer with a loss of widen."""

        def _build_engine(self) -> None:
            super()._build_engine()
            if self.engine_config.strategy == "megatron":
                raise ValueError("engine=megatron is not tested with a loss of widen; use engine=fsdp")
            if getattr(self.engine_config, "ulysses_sequence_parallel_size", 1) > 1 and weight.needs - {"logq"}:
                raise ValueError(
                    f"ulysses_sequence_parallel_size={self.engine_config.ulysses_sequence_parallel_size} with {weight}, which counts "
                    "positions: this was not tested; leave it at 1"
                )
            self.loss_fn = partial(weighted_loss, weight, config=None)
            self.training_client.set_loss_fn(loss_fn=self.loss_fn)

    return WidenSFTTrainer


def main() -> None:
    """verl's ``sft_trainer`` with its own configuration, plus ``+widen.loss=SPEC``."""
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
