"""What cannot work with `loss` is refused in a sentence, never trained on something else in silence."""

import functools
from types import SimpleNamespace

import pytest
import torch
import transformers
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from trainer_runs import WAYS, apart, arguments, pad, rows, tiny_model, train, train_sft

from widen.hosts.refuse import refuse_loss
from widen.hosts.transformers import Trainer, WeightedLoss
from widen.losses import parse

LOSS = "cdiv:alpha=1.4"


def make(folder, *, trainer_class=Trainer, model=None, changes=None, **kwargs):
    return trainer_class(
        model=model or tiny_model(),
        args=arguments(folder, **(changes or {})),
        train_dataset=rows(),
        data_collator=pad,
        **{"loss": LOSS} | kwargs,
    )


def test_liger_s_fused_head(tmp_path):
    with pytest.raises(ValueError, match=r"Liger's fused cross entropy, which knows no weights.*Leave it out"):
        make(tmp_path, changes={"use_liger_kernel": True})
    layers_only = {"fused_linear_cross_entropy": False, "cross_entropy": False}
    make(tmp_path, changes={"use_liger_kernel": True, "liger_kernel_config": layers_only})


def test_liger_s_fused_head_in_trl_whose_package_is_not_here():
    from widen.hosts.trl import SFTTrainer

    with pytest.raises(ValueError, match="use_liger_kernel=True replaces the model's forward"):
        train_sft(SFTTrainer, WAYS["4x1"], loss=LOSS, changes={"use_liger_kernel": True})


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ({"sp_size": 2, "sp_backend": "deepspeed"}, "Ulysses.*never calls compute_loss.*Use FSDP2 or DDP"),
        ({"cp_size": 2}, "context parallelism splits a sequence over ranks.*Use FSDP2 or DDP"),
        ({"tp_size": 2}, "tensor parallelism.*use FSDP2 or DDP"),
    ],
    ids=["ulysses", "context", "tensor"],
)
def test_parallelism_that_goes_past_the_loss(tmp_path, monkeypatch, plan, sentence):
    from accelerate import Accelerator
    from accelerate.parallelism_config import ParallelismConfig

    from widen.hosts.trl import SFTTrainer

    # As after `accelerate launch` with such a plan; made after the accelerator, which would look for the devices.
    monkeypatch.setattr(Accelerator, "parallelism_config", property(lambda self: plans[-1]))
    plans = [None]

    def late(host):
        class Parallel(host):
            def create_accelerator_and_postprocess(self):
                super().create_accelerator_and_postprocess()
                plans.append(ParallelismConfig(**plan))

        return Parallel

    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, trainer_class=late(Trainer))
    plans.append(None)
    with pytest.raises(ValueError, match=sentence):
        train_sft(late(SFTTrainer), WAYS["4x1"], loss=LOSS)


def test_data_parallel(tmp_path):
    args = arguments(tmp_path)
    args.device  # noqa: B018  # set up, so that it is not counted again
    args._n_gpu = 2
    with pytest.raises(ValueError, match=r"n_gpu=2.*DataParallel.*torchrun or accelerate launch"):
        Trainer(model=tiny_model(), args=args, train_dataset=rows(), data_collator=pad, loss=LOSS)


def test_an_adapter_on_the_head(tmp_path):
    adapted = get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj", "lm_head"]))
    with pytest.raises(ValueError, match=r"adapter on lm_head.*Remove 'lm_head'.*modules_to_save=\['lm_head'\]"):
        make(tmp_path, model=adapted)


def test_trained_tokens_of_a_shared_head(tmp_path):
    settings = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], trainable_token_indices=[5, 6])
    with pytest.raises(ValueError, match=r"trainable_token_indices on an embedding that lm_head shares"):
        make(tmp_path, model=get_peft_model(tiny_model(tied=True), settings))


def test_prompt_tuning(tmp_path):
    adapted = get_peft_model(tiny_model(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ValueError, match=r"virtual tokens before each row.*supports LoRA"):
        make(tmp_path, model=adapted)


@pytest.mark.parametrize(
    ("two", "sentence"),
    [
        (
            {"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: 0},
            "compute_loss_func and loss='cdiv.*give one of them",
        ),
        ({"changes": {"label_smoothing_factor": 0.1}}, "label_smoothing_factor=0.1 and loss='cdiv.*Leave it at 0"),
    ],
)
def test_two_losses_at_once(tmp_path, two, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, **two)


def test_two_losses_at_once_in_trl():
    from widen.hosts.trl import SFTTrainer

    with pytest.raises(ValueError, match=r"loss_type='dft' and loss='cdiv.*leave loss_type at 'nll'"):
        train_sft(SFTTrainer, WAYS["4x1"], loss=LOSS, changes={"loss_type": "dft"})
    with pytest.raises(ValueError, match=r"compute_loss_func and loss"), pytest.warns(FutureWarning):
        train_sft(SFTTrainer, WAYS["4x1"], loss=LOSS, compute_loss_func=lambda *a, **k: 0)
    with pytest.raises(ValueError, match=r"label_smoothing_factor=0.1 and loss"), pytest.warns(FutureWarning):
        train_sft(SFTTrainer, WAYS["4x1"], loss=LOSS, changes={"label_smoothing_factor": 0.1})


def test_a_count_of_targets_per_rank():
    from widen.hosts.refuse import refuse_arguments

    args = SimpleNamespace(
        label_smoothing_factor=0, use_liger_kernel=False, n_gpu=1, average_tokens_across_devices=False
    )
    accelerator = SimpleNamespace(num_processes=2, parallelism_config=None)
    objective = SimpleNamespace(weight="nll")
    with pytest.raises(ValueError, match=r"average_tokens_across_devices=False.*leave it at True"):
        refuse_arguments(
            SimpleNamespace(args=args, accelerator=accelerator, objective=objective, compute_loss_func=None)
        )


def test_a_balancing_loss_of_experts(tmp_path):
    model = tiny_model()
    model.config.output_router_logits, model.config.router_aux_loss_coef = True, 0.01

    class Mixed(WeightedLoss, transformers.Trainer):
        pass

    for trainer_class in (Trainer, Mixed):
        with pytest.raises(ValueError, match=r"output_router_logits=True.*widen\.hosts\.trl"):
            make(tmp_path, trainer_class=trainer_class, model=model)


def test_a_model_without_a_linear_head(tmp_path):
    with pytest.raises(ValueError, match=r"no causal language model with an lm_head"):
        make(tmp_path, model=tiny_seq2seq())
    model = tiny_model()
    model.base_model_prefix = ""
    with pytest.raises(ValueError, match=r"does not say which of its parts gives the hidden states"):
        make(tmp_path, model=model)
    model = tiny_model()
    model.lm_head = torch.nn.Sequential(torch.nn.Linear(16, 48))
    with pytest.raises(ValueError, match=r"its output layer is Sequential"):
        make(tmp_path, model=model)


def tiny_seq2seq():
    shape = {"vocab_size": 48, "d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**shape))


def test_a_forward_that_does_more_than_a_linear_head():
    class Sharper(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 3
            return out

    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"differ from those of its own logits by .*the loss would be wrong"):
        train(
            Trainer,
            WAYS["4x1"],
            loss=LOSS,
            model=Sharper(tiny_model().config),
            changes={"remove_unused_columns": False},
        )


def test_a_forward_replaced_after_the_trainer_was_made(tmp_path):
    trainer = make(tmp_path)
    trainer.model.forward = functools.partial(type(trainer.model).forward, trainer.model)
    with pytest.raises(RuntimeError, match=r"something replaced its forward"):
        trainer.train()


def test_a_trainer_whose_own_compute_loss_never_asks_the_model():
    class Theirs(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return next(self.model.parameters()).sum()

    class Mixed(WeightedLoss, Theirs):
        pass

    with pytest.raises(RuntimeError, match=r"Mixed\.compute_loss did not take the loss from the model"):
        train(Mixed, WAYS["4x1"], loss=LOSS)


def test_the_mixin_serves_another_trainer():
    class Theirs(transformers.Trainer):
        calls = 0

        def compute_loss(self, model, inputs, **kwargs):
            Theirs.calls += 1
            return super().compute_loss(model, inputs, **kwargs)

    class Mixed(WeightedLoss, Theirs):
        pass

    watch = train(Mixed, WAYS["4x1"], loss=LOSS)[0]
    assert Theirs.calls == 5
    assert [step.norm() for step in watch.gradients] == [
        step.norm() for step in train(Trainer, WAYS["4x1"], loss=LOSS)[0].gradients
    ]


def test_the_mixin_of_the_transformers_trainer_on_one_of_trl_s():
    import trl

    class Theirs(trl.SFTTrainer):
        pass

    class Wrong(WeightedLoss, Theirs):
        pass

    with pytest.raises(
        ValueError, match=r"Wrong is a subclass of TRL's SFTTrainer.*widen\.hosts\.trl import WeightedLoss"
    ):
        train_sft(Wrong, WAYS["4x1"], loss=LOSS)


def test_the_mixin_of_trl_serves_a_subclass_of_its_trainer():
    import trl

    from widen.hosts.trl import SFTTrainer
    from widen.hosts.trl import WeightedLoss as OnTrl

    class Theirs(trl.SFTTrainer):
        pass

    class Mine(OnTrl, Theirs):
        pass

    mine, ours = (train_sft(kind, WAYS["4x1"], loss=LOSS)[0] for kind in (Mine, SFTTrainer))
    assert apart(mine.gradients, ours.gradients) == 0


def test_weights_that_are_nan(tmp_path):
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[:] = torch.nan
    with pytest.raises(ValueError, match=r"its own logits \(LlamaForCausalLM\) are nan"):
        make(tmp_path, model=model).train()


def test_a_compute_loss_that_keeps_the_count_of_targets_to_itself(tmp_path):
    class Forgetful(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return super().compute_loss(model, inputs, return_outputs)

    with pytest.raises(ValueError, match=r"hand num_items_in_batch on to super\(\)\.compute_loss"):
        make(tmp_path, trainer_class=Forgetful).train()


def test_a_batch_without_labels_or_with_a_target_that_nothing_precedes():
    with pytest.raises(ValueError, match=r"did not count the targets"):
        train(Trainer, WAYS["4x1"], loss=LOSS, collator=lambda examples: {"input_ids": pad(examples)["input_ids"]})

    def leaky(examples):
        batch = transformers.DataCollatorWithFlattening()(examples)
        return batch | {"labels": batch["input_ids"]}

    with pytest.raises(ValueError, match=r"begins a packed sequence and is a target.*-100"):
        train(Trainer, WAYS["4x1"], loss=LOSS, collator=leaky)


def test_arguments_of_the_loss(tmp_path):
    with pytest.raises(ValueError, match=r"weight_scale='mean'; legal: 'raw' or 'mean_one'"):
        make(tmp_path, weight_scale="mean")
    with pytest.raises(ValueError, match=r"did you mean 'alpha'"):
        make(tmp_path, loss="cdiv:alfa=1.4")
    with pytest.raises(TypeError, match=r"loss"):
        Trainer(model=tiny_model(), args=arguments(tmp_path), train_dataset=rows(), data_collator=pad)


def bert():
    """A decoder whose head is a transform before the linear layer: at this initialisation its log-probabilities are nearly uniform."""
    shape = {
        "vocab_size": 48,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    return transformers.BertLMHeadModel(transformers.BertConfig(**shape, is_decoder=True, max_position_embeddings=64))


def test_a_head_with_a_transform_before_it():
    with pytest.raises(ValueError, match=r"does more than a linear head"):
        train(Trainer, WAYS["4x1"], loss=LOSS, model=bert())


def test_a_wrong_head_in_evaluation_alone(tmp_path):
    trainer = make(tmp_path, model=bert(), eval_dataset=rows(4))
    with pytest.raises(ValueError, match=r"does more than a linear head"):
        trainer.evaluate()


def test_a_wrong_head_in_trl():
    from widen.hosts.trl import SFTTrainer

    class Sharper(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 1.2
            return out

    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"does more than a linear head"):
        train_sft(SFTTrainer, WAYS["4x1"], loss=LOSS, model=Sharper(tiny_model().config))


def test_a_subclass_whose_compute_loss_goes_past_ours():
    class Mine(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss

    with pytest.raises(RuntimeError, match=r"step 1 is not made.*Mine overrides it without calling super"):
        train(Mine, WAYS["4x1"], loss=LOSS)


def test_a_batch_of_embeddings_alone(tmp_path):
    trainer = make(tmp_path)
    batch = {"inputs_embeds": torch.zeros(1, 3, 16), "labels": torch.ones(1, 3, dtype=torch.long)}
    with pytest.raises(ValueError, match=r"no 'input_ids'.*embeddings alone are not supported"):
        trainer.compute_loss(trainer.model.train(), batch, num_items_in_batch=torch.tensor(2))


@pytest.mark.parametrize(
    ("loss", "offered", "reason"),
    [
        ("trunc:drop=0.1", {"state": False}, "it keeps a state between optimizer steps"),
        ("nll:steps=5 then gem:beta=0.5", {"state": False}, "it keeps a state between optimizer steps"),
        ("asft:kl=0.3", {}, "it reads the column ref_logq of the data"),
        ("lambda_pr:lam=0.5,gamma=0.1", {"positions": False}, "it counts positions or looks at whole sequences"),
    ],
)
def test_a_plug_in_that_refuses_a_loss_names_itself_the_loss_and_legal_ones(loss, offered, reason):
    with pytest.raises(ValueError, match=f"theirs cannot train with loss='{loss}': {reason}.*theirs.*; legal: losses"):
        refuse_loss(parse(loss), host="theirs", **offered)
    for legal in ("cdiv:alpha=1.4", "gold", "dft", "tailr:gamma=0.1", "focal:gamma=2"):  # those that the message names
        refuse_loss(parse(legal), host="theirs", state=False, positions=False)
