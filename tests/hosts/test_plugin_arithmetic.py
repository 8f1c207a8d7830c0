"""What the plug-ins for other frameworks compute, without these frameworks; `test_plugins.py` has the real packages."""

import pytest
import torch
import transformers
import trl
from plugin_steps import by_definition, flat, through_our_head, verl_batch
from trainer_runs import EVERY_LOSS, apart, arguments, pad, rows, tiny_model

from widen.data.targets import read_sequences
from widen.hosts.transformers import WeightedLoss
from widen.hosts.verl import weighted_loss
from widen.losses import parse
from widen.train.objective import Objective


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_a_loss_on_logits_has_the_gradient_of_the_fused_head(loss):
    model, batches = tiny_model(), [pad(rows()[:3]), pad(rows()[3:4])]
    for batch in batches:
        batch["ref_logq"] = -torch.rand(batch["labels"].shape)
    expected = through_our_head(model, batches, loss)
    found = [read_sequences(batch, columns=["ref_logq"]) for batch in batches]
    count = sum(one.mask_N.sum() for one in found)
    for batch, sequences in zip(batches, found, strict=True):
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        Objective(parse(loss)).through_logits(logits.flatten(0, 1), sequences, num_tokens=count).loss.backward()
    assert apart([flat(model)], [expected]) < 1e-5


def test_logits_without_a_target_give_a_differentiable_zero():
    logits = torch.randn(3, 5, requires_grad=True)
    out = Objective(parse("cdiv:alpha=1.4")).through_logits(
        logits, read_sequences({"labels": torch.full((1, 3), -100)}), num_tokens=7
    )
    out.loss.backward()
    assert out.loss.item() == 0
    assert logits.grad.abs().sum() == 0


@pytest.mark.parametrize("loss", ["cdiv:alpha=1.4", "lambda_pr:lam=0.5,gamma=0.1"])
def test_nested_log_probabilities_of_verl_give_the_gradient_of_the_definition(loss):
    model, parts = tiny_model(), [rows()[:3], rows()[3:4]]
    count = sum(label != -100 for part in parts for row in part for label in row["labels"][1:])
    for part in parts:
        output, data = verl_batch(model, part, count=count, dp_size=2)
        weighted_loss(parse(loss), config=None, model_output=output, data=data)[0].backward()
    expected = 2 * by_definition(model, [pad(part) for part in parts], loss)  # FSDP takes the mean over the ranks
    assert apart([flat(model)], [expected]) < 1e-5


def test_a_host_whose_compute_loss_reads_the_model_sees_its_attributes(tmp_path):
    seen = []

    class Theirs(transformers.Trainer):
        def compute_loss(self, model, inputs, **kwargs):
            seen.append((model.training, model.config.vocab_size))
            return super().compute_loss(model, inputs, **kwargs)

    class Mine(WeightedLoss, Theirs):
        pass

    model = tiny_model()
    Mine(
        model=model, args=arguments(tmp_path, max_steps=1), train_dataset=rows(), data_collator=pad, loss="nll"
    ).train()
    assert set(seen) == {(True, model.config.vocab_size)}


def test_a_batch_may_be_any_mapping_such_as_the_one_that_a_tokenizer_returns(tmp_path):
    transformers_trainer = type("Mine", (WeightedLoss, transformers.Trainer), {})
    trained = transformers_trainer(
        model=tiny_model(),
        args=arguments(tmp_path, max_steps=1),
        train_dataset=rows(),
        data_collator=lambda features: transformers.BatchEncoding(pad(features)),
        loss="nll",
    ).train()
    assert trained.global_step == 1


@pytest.mark.parametrize("theirs", [trl.DPOTrainer, trl.KTOTrainer, trl.GRPOTrainer, trl.RewardTrainer])
def test_a_trainer_on_preferences_or_rewards_is_refused(theirs):
    class Mine(WeightedLoss, theirs):
        pass

    with pytest.raises(ValueError, match="Mine: supervised losses only"):
        Mine(loss="nll")
