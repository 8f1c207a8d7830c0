"""One optimizer step is one optimizer step: however its data is cut into micro-batches and packs, for every loss and both trainers."""

import functools
import re
from functools import cache

import pytest
import torch
import transformers
from trainer_runs import EVERY_LOSS, WAYS, apart, rows, tiny_model, train, train_sft

from widen.hosts.transformers import Trainer
from widen.losses import LOSSES, CDiv, Rows, TokenWeight, parse

OTHER_WAYS = ["1x4", "packed 2x2"]


@cache
def reference(loss):
    return train(Trainer, WAYS["4x1"], loss=loss)[0]


def same_weights(a, b):
    """The same sequences with the same weights, step by step."""
    assert [sorted(step) for step in a] == [sorted(step) for step in b]
    for left, right in zip(a, b, strict=True):
        for key in left:
            torch.testing.assert_close(torch.tensor(left[key]), torch.tensor(right[key]), rtol=1e-3, atol=1e-4)


def test_every_loss_of_the_catalogue_is_among_those_compared():
    named = set(re.findall(r"[a-z_]+", re.sub(r"[:,]\w+=[\w.]+", "", " ".join(EVERY_LOSS))))
    assert set(LOSSES) <= named | {"nll"}
    assert any(loss.startswith("nll:steps=") for loss in EVERY_LOSS)


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_accumulated_and_packed_steps_have_the_gradient_of_the_whole_batch(loss):
    whole = reference(loss)
    assert len(whole.gradients) == 5  # the last accumulation is incomplete
    if "trunc" in loss:  # some sequences are left out, and not all
        left_out = [max(w) == 0 for step in whole.weights for w in step.values()]
        assert 0 < sum(left_out) < len(left_out)
    for way in OTHER_WAYS:
        cut = train(Trainer, WAYS[way], loss=loss)[0]
        assert apart(cut.gradients, whole.gradients) < 1e-5, way
        same_weights(cut.weights, whole.weights)


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_trl_gives_the_gradients_of_the_transformers_trainer_packed_or_not(loss):
    from widen.hosts.trl import SFTTrainer

    whole = reference(loss)
    for way in OTHER_WAYS:
        theirs = train_sft(SFTTrainer, WAYS[way], loss=loss)[0]
        assert apart(theirs.gradients, whole.gradients) < 1e-5, way
        same_weights(theirs.weights, whole.weights)


ALONE = {  # name of a loss -> options with which its weights differ between tokens or sequences
    "asft": "kl=0.3", "cdiv": "alpha=1.4", "dco": "n=4", "entropy": "bonus=0.05", "lambda_pr": "lam=0.5,gamma=0.1",
    "tailr": "gamma=0.1", "tofu": "gamma=1,beta=0.8", "trunc": "drop=0.5,window=4", "truncr": "drop=0.5,window=4",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_each_loss_alone_has_one_gradient_in_every_cut_and_both_trainers(name):
    from widen.hosts.trl import SFTTrainer

    loss = f"{name}:{ALONE[name]}" if name in ALONE else name
    whole = reference(loss)
    for way in OTHER_WAYS:
        assert apart(train(Trainer, WAYS[way], loss=loss)[0].gradients, whole.gradients) < 1e-5, way
        assert apart(train_sft(SFTTrainer, WAYS[way], loss=loss)[0].gradients, whole.gradients) < 1e-5, way


def test_the_gradient_is_that_of_the_definition():
    """An oracle in plain PyTorch on the first step: full logits, a loop over sequences, weights by `apply` on one row."""
    for loss in ("cdiv:alpha=1.4", "lambda_pr:lam=0.5,gamma=0.1"):
        model, weight, total = tiny_model(), parse(loss), 0.0
        for row in rows()[:4]:
            ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
            logq = model(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
            mask = labels[:, 1:] != -100
            w, _ = weight.apply(Rows(logq.detach()), mask, weight.init())
            total = total - (w * logq)[mask].sum()
        (total / sum((torch.tensor(row["labels"][1:]) != -100).sum() for row in rows()[:4])).backward()
        named = sorted(model.named_parameters())
        assert apart(reference(loss).gradients[:1], [torch.cat([p.grad.flatten() for _, p in named])]) < 1e-5


def test_our_nll_is_the_hosts_own_loss():
    for way in WAYS:
        host, trainer = train(transformers.Trainer, WAYS[way])
        ours, our_trainer = train(Trainer, WAYS[way], loss="nll")
        assert apart(ours.gradients, host.gradients) < 1e-5
        assert logged(our_trainer, "loss") == pytest.approx(logged(trainer, "loss"), rel=1e-5)
        assert logged(our_trainer, "nll") == pytest.approx(logged(trainer, "loss"), rel=1e-5)


@pytest.mark.parametrize("loss", ["lambda_pr:lam=0.5,gamma=0.1", "truncr:drop=0.5,window=8"])
def test_trls_packing_of_a_data_set_changes_nothing(loss):
    """All rows in one step, as TRL packs in an order of its own; three epochs of it, so that a window fills."""
    from widen.hosts.trl import SFTTrainer

    changes, data = {"num_train_epochs": 3, "dataset_kwargs": None}, rows()[:8]
    plain = train_sft(SFTTrainer, (8, 1, False), loss=loss, data=data, changes=changes)[0]
    packed = train_sft(
        SFTTrainer, (8, 1, False), loss=loss, data=data, changes=changes | {"packing": True, "max_length": 30}
    )
    assert len(packed[1].train_dataset) < 8
    assert len(packed[0].gradients) == 3
    assert apart(packed[0].gradients, plain.gradients) < 1e-5
    same_weights(packed[0].weights, plain.weights)


def test_trls_own_losses_are_ours():
    import trl

    from widen.hosts.trl import SFTTrainer

    for loss in ("nll", "dft"):
        for changes, most in (({"learning_rate": 0.0}, 1e-6), ({}, 1e-5)):  # weights that move soon differ by rounding
            host, trainer = train_sft(trl.SFTTrainer, WAYS["1x4"], changes={"loss_type": loss, **changes})
            here, our_trainer = train_sft(SFTTrainer, WAYS["1x4"], loss=loss, changes=changes)
            assert apart(here.gradients, host.gradients) < most
            assert logged(our_trainer, "loss") == pytest.approx(logged(trainer, "loss"), rel=1e-6)


def test_mean_one_divides_by_the_mean_weight_of_the_step_before_whatever_the_cut():
    whole, trainer = train(Trainer, WAYS["4x1"], loss="cdiv:alpha=1.4", weight_scale="mean_one")
    assert (
        apart(train(Trainer, WAYS["1x4"], loss="cdiv:alpha=1.4", weight_scale="mean_one")[0].gradients, whole.gradients)
        < 1e-5
    )
    from widen.hosts.trl import SFTTrainer

    theirs = train_sft(SFTTrainer, WAYS["packed 2x2"], loss="cdiv:alpha=1.4", weight_scale="mean_one")[0]
    assert apart(theirs.gradients, whole.gradients) < 1e-5
    small = {
        "loss": "truncr:drop=0.5,window=4 * dft",
        "weight_scale": "mean_one",
    }  # a divisor far below 1, steps of few tokens
    one_by_one = train(Trainer, (1, 1, False), **small)[0]
    assert apart(train_sft(SFTTrainer, (1, 1, False), **small)[0].gradients, one_by_one.gradients) < 1e-5
    means = logged(trainer, "weight_mean")
    raw = train(Trainer, WAYS["4x1"], loss="cdiv:alpha=1.4", changes={"learning_rate": 0.0})[1]
    scaled = train(
        Trainer, WAYS["4x1"], loss="cdiv:alpha=1.4", weight_scale="mean_one", changes={"learning_rate": 0.0}
    )[1]
    divisors = [1.0, *logged(raw, "weight_mean")[:-1]]
    expected = [value / divisor for value, divisor in zip(logged(raw, "loss"), divisors, strict=True)]
    assert logged(scaled, "loss") == pytest.approx(expected, rel=1e-5)
    assert min(means) > 1.5  # so that the division does something


def test_a_loss_may_be_an_object_of_ones_own():
    class Focal(TokenWeight):
        def weigh(self, rows):
            return -torch.expm1(rows.logq)

    assert (
        apart(
            train(Trainer, WAYS["1x4"], loss=Focal())[0].gradients,
            train(Trainer, WAYS["packed 4x1"], loss=Focal())[0].gradients,
        )
        < 1e-5
    )
    assert (
        apart(train(Trainer, WAYS["4x1"], loss=CDiv(alpha=1.4))[0].gradients, reference("cdiv:alpha=1.4").gradients)
        == 0
    )


SHAPE = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def capped():
    torch.manual_seed(0)
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=2.0))


def scaled():
    torch.manual_seed(0)
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(**SHAPE, logits_scaling=0.2))


def experts():
    torch.manual_seed(0)
    shape = SHAPE | {"num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.5}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**shape, output_router_logits=True))


def test_trl_adds_the_balancing_loss_of_experts_to_any_loss():
    import trl

    from widen.hosts.trl import SFTTrainer

    host, trainer = train_sft(trl.SFTTrainer, WAYS["1x4"], model=experts())
    for loss in ("nll", "gem:beta=1"):
        here, ours = train_sft(SFTTrainer, WAYS["1x4"], model=experts(), loss=loss)
        assert apart(here.gradients, host.gradients) < 1e-5
        assert logged(ours, "aux_loss") == pytest.approx(logged(trainer, "aux_loss"), rel=1e-5)
    assert min(logged(trainer, "aux_loss")) > 1


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (lambda: tiny_model(tied=True), {}),
        (tiny_model, {"gradient_checkpointing": True}),
        (capped, {}),
        (scaled, {}),
    ],
    ids=["tied", "checkpointed", "soft-capped logits", "scaled logits"],
)
def test_the_head_is_the_models_own(model, changes):
    """NLL through the fused head against the host's loss through the model's logits."""
    host = train(transformers.Trainer, WAYS["1x4"], model=model(), changes=changes)[0]
    ours = train(Trainer, WAYS["1x4"], model=model(), changes=changes, loss="nll")[0]
    assert apart(ours.gradients, host.gradients) < 1e-5


@pytest.mark.filterwarnings(
    "ignore:Model has .tie_word_embeddings=True"
)  # peft before 0.20 sees a tie that is not there
def test_lora_trains_its_adapters_alike_in_both_trainers():
    from peft import LoraConfig, get_peft_model

    from widen.hosts.trl import SFTTrainer

    def adapted(**changes):
        torch.manual_seed(3)
        return get_peft_model(
            tiny_model(), LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False, **changes)
        )

    loss = "truncr:drop=0.5,window=4 * cdiv:alpha=1.4"
    whole = train(Trainer, WAYS["4x1"], model=adapted(), loss=loss)[0]
    assert apart(train(Trainer, WAYS["packed 2x2"], model=adapted(), loss=loss)[0].gradients, whole.gradients) < 1e-5
    assert apart(train_sft(SFTTrainer, WAYS["1x4"], model=adapted(), loss=loss)[0].gradients, whole.gradients) < 1e-5
    host = train(transformers.Trainer, WAYS["4x1"], model=adapted(modules_to_save=["lm_head"]))[0]
    ours = train(Trainer, WAYS["4x1"], model=adapted(modules_to_save=["lm_head"]), loss="nll")[0]
    assert apart(ours.gradients, host.gradients) < 1e-5
    assert len(ours.gradients[0]) > len(whole.gradients[0])  # the whole head is trained too


def test_bfloat16_autocast_errs_no_more_than_the_host():
    half = {"changes": {"bf16": True}}
    host = train(transformers.Trainer, WAYS["1x4"], **half)[0].gradients[:1]
    ours = train(Trainer, WAYS["1x4"], loss="nll", **half)[0].gradients[:1]
    error = apart(host, reference("nll").gradients[:1])
    assert error > 1e-3  # autocast is on
    assert apart(ours, host) < error / 2
    weighted = train(Trainer, WAYS["1x4"], loss="cdiv:alpha=1.4", **half)[0].gradients[:1]
    assert apart(weighted, reference("cdiv:alpha=1.4").gradients[:1]) < 2 * error


def test_a_model_that_takes_no_count_and_one_made_by_model_init_are_trained_alike():
    whole = reference("cdiv:alpha=1.4")

    class Plain(transformers.LlamaForCausalLM):
        accepts_loss_kwargs = False

    own = Plain(tiny_model().config)
    own.load_state_dict(tiny_model().state_dict())
    assert apart(train(Trainer, WAYS["1x4"], loss="cdiv:alpha=1.4", model=own)[0].gradients, whole.gradients) < 1e-5
    made = train(functools.partial(Made, model_init=lambda: tiny_model()), WAYS["1x4"], loss="cdiv:alpha=1.4")[0]
    assert apart(made.gradients, whole.gradients) < 1e-5


class Made(Trainer):
    """Leaves the model to ``model_init``, which is called again when training begins."""

    def __init__(self, *args, model=None, **kwargs):
        super().__init__(*args, **kwargs)


def test_a_micro_batch_without_targets_changes_nothing():
    data = rows()[:4]
    data[1] = data[1] | {"labels": [-100] * len(data[1]["labels"])}
    for loss in ("cdiv:alpha=1.4", "truncr:drop=0.5,window=2"):
        whole = train(Trainer, WAYS["4x1"], data=data * 3, loss=loss)[0]
        assert apart(train(Trainer, WAYS["1x4"], data=data * 3, loss=loss)[0].gradients, whole.gradients) < 1e-5
        assert all(gradient.isfinite().all() for gradient in whole.gradients)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_a_class_whose_name_the_host_does_not_know_is_divided_by_its_targets():
    """GPT2LMHeadModel: the host would count every row's first token, which nothing predicts."""
    shape = {"vocab_size": 48, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=1))
    data = [row | {"labels": row["input_ids"]} for row in rows()]
    trainer = train(Trainer, WAYS["4x1"], loss="nll", model=model, data=data)[1]
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["loss"] == pytest.approx(entry["nll"], rel=1e-4) for entry in logs)


@pytest.mark.parametrize("name", ["logits_soft_cap", "output_logit_soft_cap"])
def test_a_soft_cap_is_known_by_its_other_names(name):
    class Capped(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = 0.5 * torch.tanh(out.logits / 0.5)
            return out

    config = tiny_model().config
    setattr(config, name, 0.5)
    torch.manual_seed(0)
    watch = train(Trainer, WAYS["4x1"], loss="nll", model=Capped(config), changes={"remove_unused_columns": False})[0]
    assert len(watch.gradients) > 0
