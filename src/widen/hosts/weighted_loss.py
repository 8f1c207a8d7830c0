"""The mixin: what any ``transformers.Trainer`` subclass needs to train with a loss of this package and keep everything else.

The host counts the targets of the whole optimizer step, multiplies by the number of ranks, accumulates, clips and logs. Its own
``compute_loss`` is called with a stand-in for the model, which asks the real one for our loss.

Shapes: B rows, C columns, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback
from transformers.utils import logging

from widen.data.rows import COLUMNS, needs_of
from widen.data.targets import IGNORE, LOSS_WEIGHTS, LossWeightError, Sequences, read_sequences, shifted_targets
from widen.losses import NLL, Weight, idle, parse, refuse_late_start, was_idle
from widen.train.figures import Figures
from widen.train.guard import dataset_rows
from widen.train.objective import Objective

from .card import add_loss
from .collate import WithColumns, has_column, is_known
from .fused_head import Reply, Request, add_fused_head, ask
from .head_check import check_head
from .refuse import refuse_arguments, refuse_auxiliary_loss, refuse_host, refuse_liger, refuse_model
from .state import load_state, newest_finished, save_state

if TYPE_CHECKING:
    from transformers import Trainer as _Host
else:
    _Host = object

logger = logging.get_logger(__name__)


class WeightedLoss(_Host):
    """Mix into a trainer, to the left: ``class Mine(WeightedLoss, TheirTrainer)``.

    Args:
      loss: a spec string (``"cdiv:alpha=1.4"``, ``"nll:steps=500 then truncr:drop=0.1"``) or a weight object.
      weight_scale: ``raw``, or ``mean_one``: weights divided by their mean over the whole optimizer step before (`Objective`).
      *args, **kwargs: the host's own.

    A column ``loss_weights`` of the data set multiplies the weight of each target, whatever the loss: one number per row, or a list with
    one number per token of ``input_ids``. The sum is still divided by the number of targets, not by the weights. Evaluation ignores it.
    """

    loss_is_scaled_for_ga: bool | None = True  # every loss is a sum over the targets of the *whole* step's count
    on_trl = False  # TRL's trainers need the mixin of `widen.hosts.trl`
    data_collator: Any

    def __init__(self, *args: Any, loss: str | Weight, weight_scale: str = "raw", **kwargs: Any) -> None:
        self.objective = Objective(parse(loss), weight_scale=weight_scale)
        self._window = Figures()  # since the last line of the log
        self._evaluated = (0.0, 0.0)  # NLL and targets of the evaluation so far
        self._loss_only = False
        self._head_is_checked = False
        refuse_host(type(self), on_trl=self.on_trl)
        if (given := kwargs.get("args", args[1] if len(args) > 1 else None)) is not None:
            refuse_liger(given)
        super().__init__(*args, **kwargs)
        refuse_arguments(self)
        self._keep_columns()
        self._adopt(self.model)
        # Pass the count of targets on even if the model's own forward would not take it.
        self.model_accepts_loss_kwargs = True
        # A row's first token is never a target. transformers 5 guesses that from the class's name; transformers 4 counts these tokens.
        self._counts_first_tokens = not hasattr(self, "_loss_shifts_labels")
        self._loss_shifts_labels = True
        self.add_callback(_Settle(self))

    @property
    def _columns(self) -> tuple[str, ...]:
        """Columns of the batch that the loss reads, besides tokens and labels."""
        return (LOSS_WEIGHTS, *sorted(needs_of(self.objective.asked).difference(COLUMNS)))

    def _keep_columns(self) -> None:
        """Wrap the host's collator, which would drop the columns that the loss reads."""
        kept = [name for name in self._columns if has_column(self.train_dataset, name) is not False]
        if kept and is_known(self.data_collator):
            self.data_collator = WithColumns(self.data_collator, kept)

    def _set_signature_columns_if_needed(self) -> None:
        """Add our columns to those that the host keeps."""
        super()._set_signature_columns_if_needed()
        self._signature_columns += [name for name in self._columns if name not in self._signature_columns]

    def _adopt(self, model: Any) -> None:
        """Check a model and give it the fused head."""
        if not self.on_trl:  # TRL adds the balancing loss of experts itself
            refuse_auxiliary_loss(model)
        refuse_model(model)
        add_fused_head(model)

    def call_model_init(self, trial: Any = None) -> Any:
        """Give a model that ``model_init`` makes the fused head too."""
        model = super().call_model_init(trial)
        self._adopt(model)
        return model

    # ---- the loss

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        """Count the targets as the host does, without the first token of each row."""
        if self._counts_first_tokens:
            batch_samples = [
                {"labels": shifted_targets(batch)} if "labels" in batch else batch for batch in batch_samples
            ]
        return super()._get_num_items_in_batch(batch_samples, device)

    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Tensor | int | None = None
    ) -> Any:  # fmt: skip
        """Compute our loss in training and NLL in evaluation."""
        columns = self._columns
        for_model = {key: value for key, value in inputs.items() if key not in columns}
        if not self._head_is_checked:
            half = torch.bfloat16 if self.args.bf16 else torch.float16 if self.args.fp16 else None
            check_head(model, for_model, half=half)
            self._head_is_checked = True
        before = len(self.objective.pending)
        if model.training:
            self._refuse_batch(inputs, num_items_in_batch)
        stand_in = _StandIn(model, partial(self._answer, model, inputs, num_items_in_batch))
        loss = super().compute_loss(
            stand_in, for_model, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
        )
        if model.training and len(self.objective.pending) != before + 1:
            raise RuntimeError(
                f"{type(self).__name__}.compute_loss did not take the loss from the model: `loss` would not be what is trained"
            )
        return loss

    def _refuse_batch(self, inputs: Mapping[str, Any], num_items: Tensor | int | None) -> None:
        if num_items is None:
            raise ValueError(
                "the trainer did not count the targets of the step (num_items_in_batch is None): without it micro-batches of unequal "
                "length would weigh alike. The collator must give 'labels', and a compute_loss of your own must hand num_items_in_batch "
                "on to super().compute_loss"
            )
        if LOSS_WEIGHTS not in inputs and has_column(self.train_dataset, LOSS_WEIGHTS):
            raise ValueError(
                f"the data set has a column {LOSS_WEIGHTS!r} and the batch has not: the collator dropped it. Wrap the collator: "
                "data_collator=widen.hosts.collate.WithColumns(collator), or remove the column"
            )

    def _answer(self, model: Any, inputs: Mapping[str, Any], num_items: Any, kwargs: dict[str, Any]) -> Any:
        """Answer the host's call of the model: with a loss if it asks for one, otherwise as the model does.

        Evaluation notes the NLL of each row. The fused head computes it, unless the host wants the logits.
        """
        if not self._is_asked_for_loss(kwargs):
            return model(**kwargs)
        if model.training:
            sequences = self._sequences(inputs)
            request = Request(self.objective, sequences, num_items)
        else:
            target_BC = shifted_targets(inputs)
            if not (self._loss_only or self.on_trl):
                outputs = model(**kwargs)
                logits_BVC = outputs.logits.float().transpose(1, 2)
                target = target_BC.to(logits_BVC.device)
                self._note(-cross_entropy(logits_BVC, target, ignore_index=IGNORE, reduction="none"), target_BC)
                return outputs
            count = kwargs.get("num_items_in_batch")
            if count is None:
                count = (target_BC != IGNORE).sum().clamp(min=1)
            request = Request(Objective(NLL()), Sequences(target_BC), count)
        reply = ask(model, kwargs, request)
        seen = request.seen
        assert seen is not None
        if not model.training:
            self._note(seen.logq_N.view_as(target_BC), target_BC)
            return self._outputs(reply, request)
        self.objective.add(seen, sequences, inputs["input_ids"], divided_by=request.divided_by)
        if reply.loss.dtype != seen.loss.dtype:
            # FSDP2's mixed precision hands the loss out in bfloat16: its gradient is right, its value has three digits.
            reply = reply._replace(loss=reply.loss + (seen.loss - reply.loss.detach()))
        return self._outputs(reply, request)

    def _sequences(self, inputs: Mapping[str, Any]) -> Sequences:
        """Read the batch; a bad weight of the data is refused with its row of the data set."""
        try:
            return read_sequences(inputs, columns=self._columns[1:])
        except LossWeightError as error:
            bare = read_sequences({key: value for key, value in inputs.items() if key != LOSS_WEIGHTS})
            bad_N = torch.zeros_like(bare.mask_N)
            bad_N[error.place] = True
            found = dataset_rows(bare, inputs["input_ids"], bad_N, self.train_dataset)
            raise ValueError(f"{error}. It comes from {found}") from None

    def _is_asked_for_loss(self, kwargs: dict[str, Any]) -> bool:
        """Whether the host's call of the model is for the loss."""
        return True

    def _outputs(self, reply: Reply, request: Request) -> Any:
        """Put the model's answer into the form that the host reads."""
        return reply

    # ---- the step

    def _end_of_step(self) -> None:
        """Finish a step when all its gradients are in, before the optimizer moves; also after a last, incomplete accumulation."""
        if not self.objective.pending:
            raise RuntimeError(
                f"step {self.state.global_step + 1} is not made: none of its losses came from WeightedLoss.compute_loss; "
                f"{type(self).__name__} overrides it without calling super(), and would train on another loss than {self.objective.weight}"
            )
        self._window += self.objective.finish(step=self.state.global_step + 1, dataset=self.train_dataset)

    def _begin(self, steps: int) -> None:
        """Fit the loss to the number of steps; refuse one that would never start, warn of one that cannot drop."""
        refuse_late_start(self.objective.asked, steps=steps)
        rows = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        batch_size = round(rows * self._sequences_per_row())
        if not self._resumed:
            self.objective.fit(steps * batch_size)
        self._warn(idle(self.objective.weight, steps=steps, batch_size=batch_size))

    def _sequences_per_row(self) -> float:
        """Sequences in a row of the training data: more than one if the host packed the data set."""
        return 1.0

    def _warn(self, text: str | None) -> None:
        """Log a sentence, in the first process only."""
        if text is not None and self.is_world_process_zero():
            logger.warning(text)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add our figures to the host's line with the training loss."""
        if "loss" in logs:
            self._warn(self.objective.warning(self._window))
            logs |= self._figures(self.objective.logged(self._window))
            self._window = Figures()
        super().log(logs, start_time)

    def _figures(self, figures: dict[str, float]) -> dict[str, float]:
        """Choose the figures that go into the host's log."""
        return figures

    # ---- evaluation: NLL per target token, whatever the loss. The host's own eval_loss is a mean of batch means.

    def _note(self, logq_BC: Float[Tensor, "B C"], target_BC: Tensor) -> None:
        """Add a batch; ``logq_BC`` is 0 where no target follows. `gather_for_metrics` drops the rows that pad the last batch."""
        sums_B, tokens_B = -logq_BC.double().sum(1), (target_BC != IGNORE).sum(1).double()
        sums_B, tokens_B = self.accelerator.gather_for_metrics((sums_B, tokens_B))
        nll, tokens = self._evaluated
        self._evaluated = (nll + float(sums_B.sum()), tokens + float(tokens_B.sum()))

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        """Note whether the host wants the loss only: then the logits are never built."""
        self._loss_only = prediction_loss_only
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Replace ``eval_loss`` by the NLL per target token; nan without a target, because 0 would win every comparison."""
        self._evaluated = (0.0, 0.0)
        output = super().evaluation_loop(*args, **kwargs)
        prefix = kwargs.get("metric_key_prefix", args[4] if len(args) > 4 else "eval")
        if output.metrics is not None and f"{prefix}_loss" in output.metrics:
            nll, tokens = self._evaluated
            output.metrics[f"{prefix}_loss"] = nll / tokens if tokens else math.nan
        return output

    # ---- files

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save the loss's state first, so that a checkpoint that is complete for the host is complete for us."""
        if self.args.should_save:
            folder = f"{self._get_output_dir(trial=trial)}/checkpoint-{self.state.global_step}"
            save_state(folder, self.objective, step=self.state.global_step)
        running, self.args.logging_nan_inf_filter = self.args.logging_nan_inf_filter, self._filtered
        try:
            super()._save_checkpoint(model, trial)  # with the arguments as the user gave them
        finally:
            self.args.logging_nan_inf_filter = running

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Add the loss and the data to the host's card, which ``push_to_hub`` uploads."""
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            names = kwargs.get("dataset_name") or kwargs.get("dataset") or ()
            dataset = ", ".join([names] if isinstance(names, str) else names)
            add_loss(Path(self.args.output_dir) / "README.md", self, dataset or None)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train; ``resume_from_checkpoint=True`` skips a checkpoint that a kill left half written, with a warning."""
        if resume_from_checkpoint is True:
            whole, broken = newest_finished(self.args.output_dir)
            if whole is not None and broken:
                self._warn(f"{broken[0]} was not finished; going on from {whole}")
            resume_from_checkpoint = str(whole) if whole is not None else True
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _inner_training_loop(
        self, batch_size: Any = None, args: Any = None, resume_from_checkpoint: Any = None, **kwargs: Any
    ) -> Any:
        """Begin a run, resumed or not, with the state of the loss from the checkpoint or a new one."""
        refuse_arguments(self)
        self.objective.reset()
        self._window = Figures()
        self._resumed = resume_from_checkpoint is not None
        if resume_from_checkpoint is not None:
            load_state(resume_from_checkpoint, self.objective)
        # The host's filter waits for every backward pass to keep a nan out of the log. Here such a loss ends the run.
        self._filtered, self.args.logging_nan_inf_filter = self.args.logging_nan_inf_filter, False
        try:
            return super()._inner_training_loop(
                batch_size=batch_size, args=args, resume_from_checkpoint=resume_from_checkpoint, **kwargs
            )
        finally:
            self.args.logging_nan_inf_filter = self._filtered


class _StandIn:
    """Answers a call in the model's place; a host that looks at the model's attributes sees the model's."""

    def __init__(self, model: Any, answer: Callable[[dict[str, Any]], Any]) -> None:
        self._model, self._answer = model, answer

    def __call__(self, **kwargs: Any) -> Any:
        return self._answer(kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Settle(TrainerCallback):
    """Hears from the host when a run begins and ends, and when a step's gradients are complete."""

    def __init__(self, trainer: WeightedLoss) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        self.trainer._begin(state.max_steps)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.trainer._warn(was_idle(self.trainer.objective.weight, self.trainer.objective.state))

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.trainer._end_of_step()
