"""ms-swift's ``swift sft`` with a loss of this package, through its registry of losses.

A file ``plugin.py`` with two lines, and two options:

    from widen.hosts.ms_swift import register
    register("cdiv:alpha=1.4")

    swift sft --external_plugins plugin.py --loss_type widen ...

ms-swift computes the logits and hands them over with the labels and the number of targets of the whole step. The loss's state goes into
its checkpoints. Supervised fine-tuning only.
"""

from __future__ import annotations

from typing import Any

from swift.loss import BaseLoss, loss_map
from torch import Tensor
from transformers import TrainerCallback

from widen.data.targets import LOSS_WEIGHTS, Sequences, shifted_targets
from widen.losses import NLL, Weight, idle, parse, refuse_late_start
from widen.train.objective import Objective

from .refuse import refuse_loss, refuse_unsupervised
from .state import load_state, save_state


def register(loss: str | Weight, *, name: str = "widen", weight_scale: str = "raw") -> None:
    """Make ``--loss_type name`` train with ``loss``.

    Args:
      loss: a spec string or a weight object.
      name: of the entry in ms-swift's ``loss_map``.
      weight_scale: as in `widen.train.objective.Objective`.
    """
    weight = parse(loss)
    Objective(weight, weight_scale=weight_scale)  # refuses a wrong scale here

    class Registered(WeightedLoss):
        """The loss that was registered; ms-swift makes it with its own two arguments."""

        def __init__(self, args: Any, trainer: Any) -> None:
            super().__init__(args, trainer, loss=weight, weight_scale=weight_scale)

    loss_map[name] = Registered


class WeightedLoss(BaseLoss):
    """A loss of this package in the form of ms-swift's ``BaseLoss``. In evaluation it is NLL, whatever the loss."""

    def __init__(self, args: Any, trainer: Any, *, loss: str | Weight, weight_scale: str = "raw") -> None:
        super().__init__(args, trainer)
        self.objective = Objective(parse(loss), weight_scale=weight_scale)
        self._refuse()
        self._follows = False

    def _refuse(self) -> None:
        args, weight, template = self.args, self.objective.asked, self.trainer.template
        if self.is_megatron:
            raise ValueError("Megatron: its engine keeps the logits to itself; use `swift sft`, not `megatron sft`")
        refuse_unsupervised(type(self.trainer), supervised="Seq2SeqTrainer")
        if template.sequence_parallel_size > 1:
            raise ValueError(
                f"sequence_parallel_size={template.sequence_parallel_size}: a sequence lies on several ranks, and ms-swift replaces the "
                "logits by its own loss there; leave it at 1"
            )
        if getattr(args, "enable_dft_loss", False) or getattr(args, "label_smoothing_factor", 0):
            raise ValueError(
                f"enable_dft_loss, label_smoothing_factor and the loss {weight} are two losses; give one of them ('dft' and 'smooth' are "
                "losses of widen too)"
            )
        host = "ms-swift with packing or padding_free" if template.padding_free else "ms-swift"
        refuse_loss(weight, host=host, positions=not template.padding_free)

    def __call__(
        self,
        outputs: Any,
        labels: Tensor,
        *,
        num_items_in_batch: Any = None,
        loss_scale: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Sum of the weighted losses of the targets, divided by the targets of the whole step."""
        if outputs.logits is None:
            raise ValueError(
                "the model returned no logits (a fused cross entropy or unsloth): the loss would be another one"
            )
        logits_BCV = outputs.logits
        target_BC = shifted_targets({"labels": labels}).to(logits_BCV.device)
        columns = {}
        if loss_scale is not None:  # already moved to the place before each token
            columns[LOSS_WEIGHTS] = loss_scale.view_as(target_BC).to(logits_BCV.device).float()
        sequences = Sequences(target_BC, columns=columns)
        if not self.trainer.model.training:
            count = sequences.mask_N.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
            return Objective(NLL()).through_logits(logits_BCV.flatten(0, 1), sequences, num_tokens=count).loss
        if num_items_in_batch is None:
            raise ValueError(
                "ms-swift did not count the targets of the step (num_items_in_batch is None): micro-batches of unequal length would "
                "weigh alike"
            )
        self._follow()
        divided_by = float(num_items_in_batch) * self.objective.divisor
        out = self.objective.through_logits(logits_BCV.flatten(0, 1), sequences, num_tokens=divided_by)
        self.objective.add(out, sequences, labels, divided_by=divided_by)
        return out.loss

    def _follow(self) -> None:
        """At the first loss of a run: the trainer is complete now, and takes our callback."""
        if not self._follows:
            self._follows = True
            follow = _Follow(self)
            self.trainer.add_callback(follow)
            follow.begin(self.trainer.args, self.trainer.state)


class _Follow(TrainerCallback):
    """Ends each optimizer step of the loss, logs its figures and keeps its state in the checkpoints."""

    def __init__(self, loss: WeightedLoss) -> None:
        self.objective, self.trainer = loss.objective, loss.trainer

    def begin(self, args: Any, state: Any) -> None:
        """Fit the loss to the run, or go on from the checkpoint."""
        objective = self.objective
        refuse_late_start(objective.asked, steps=state.max_steps)
        batch_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        if state.global_step:
            load_state(args.resume_from_checkpoint, objective)
        else:
            objective.fit(state.max_steps * batch_size)
        if warning := idle(objective.weight, steps=state.max_steps, batch_size=batch_size):
            print(warning)

    def on_pre_optimizer_step(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """All gradients of the step are in."""
        seen = self.objective.finish(step=state.global_step + 1)
        for name, value in self.objective.logged(seen).items():
            self.trainer.custom_metrics["train"][name].update(value)

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Beside the host's files."""
        if args.should_save:
            save_state(f"{args.output_dir}/checkpoint-{state.global_step}", self.objective, step=state.global_step)
