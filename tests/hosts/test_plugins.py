"""The plug-ins for other frameworks, each against its real package: the gradient of a step is that of `losses.weighted_nll`.

The packages pin versions of transformers that exclude each other, so each runs in an environment of its own:
``pytest -m slow tests/hosts/test_plugins.py`` there.
"""

import copy
import importlib.util
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from plugin_steps import by_definition, flat, through_our_head, verl_batch
from trainer_runs import apart, arguments, pad, rows, tiny_model

from widen.hosts.collate import WithColumns
from widen.losses import parse

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
LOSS = "cdiv:alpha=1.4"


def needs(package):
    found = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not found, reason=f"{package} is not installed: run this test where it is")


def word_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<bos>", "<eos>", *(f"w{i}" for i in range(45))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # other people's packages warn at import


# ---- torchtitan


@needs("torchtitan")
@pytest.mark.parametrize("loss", [LOSS, "focal:gamma=2 * tailr:gamma=0.1", "gem:beta=0.7"])
@pytest.mark.parametrize("chunks", [0, 2])
def test_torchtitan_takes_the_gradient_of_the_definition_whole_or_in_chunks(loss, chunks):
    from torchtitan.components.loss import ChunkedLossWrapper

    from widen.hosts.torchtitan import WeightedLoss

    model, config = tiny_model(), WeightedLoss.Config(loss=loss)
    batches = [pad(rows()[:3]), pad(rows()[3:4])]
    count = torch.tensor(sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches))
    for batch in batches:
        labels = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
        hidden = model.model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        if chunks:
            odd = hidden.shape[1] % chunks  # the wrapper wants equal chunks
            hidden = torch.nn.functional.pad(hidden, (0, 0, 0, odd))
            labels = torch.nn.functional.pad(labels, (0, odd), value=-100)
            component = ChunkedLossWrapper.Config(num_chunks=chunks, loss_fn=config).build()
            component.set_lm_head(model.lm_head)
            component(hidden, labels, count)[0].backward()
        else:
            config.build()(model.lm_head(hidden), labels, count)[0].backward()
    reference = through_our_head if loss.startswith("gem") else by_definition
    assert apart([flat(model)], [reference(model, batches, loss)]) < 1e-5


@needs("torchtitan")
def test_torchtitan_validates_with_nll_and_refuses_what_it_cannot_know():
    from torchtitan.components.loss import CrossEntropyLoss

    from widen.hosts.torchtitan import WeightedLoss

    logits, labels = torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))
    with torch.no_grad():
        ours = WeightedLoss.Config(loss=LOSS).build()(logits, labels, torch.tensor(10))[0]
        theirs = CrossEntropyLoss.Config().build()(logits, labels, torch.tensor(10))[0]
    torch.testing.assert_close(ours, theirs)
    for loss in ("lambda_pr:lam=0.5,gamma=0.1", "trunc:drop=0.1", "nll:steps=5 then cdiv:alpha=1.4", "asft:kl=0.1"):
        with pytest.raises(ValueError, match=f"torchtitan cannot train with loss='{parse(loss)}'.*legal"):
            WeightedLoss.Config(loss=loss).build()
    with pytest.raises(ValueError, match="global_valid_tokens"):
        WeightedLoss.Config(loss=LOSS).build()(logits, labels)


# ---- verl


@needs("verl")
@pytest.mark.parametrize("loss", ["nll", LOSS, "lambda_pr:lam=0.5,gamma=0.1"])
def test_verl_takes_the_gradient_of_the_definition_over_micro_batches(loss):
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.losses import sft_loss

    from widen.hosts.verl import weighted_loss

    model, theirs = tiny_model(), tiny_model()
    parts = [rows()[:3], rows()[3:4]]
    count = sum(label != -100 for part in parts for row in part for label in row["labels"][1:])
    for part in parts:
        output, data = verl_batch(model, part, count=count)
        weighted_loss(parse(loss), config=None, model_output=output, data=data)[0].backward()
        output, data = verl_batch(theirs, part, count=count)
        packed = tu.get_tensordict({"loss_mask": data.pop("loss_mask")}, non_tensor_dict=data)
        sft_loss(config=None, model_output=output, data=packed)[0].backward()
    expected = by_definition(model, [pad(part) for part in parts], loss)
    assert apart([flat(model)], [expected]) < 1e-5
    if loss == "nll":
        assert apart([flat(theirs)], [expected]) < 1e-5


@needs("verl")
def test_the_example_for_verl_is_read_by_hydra_as_a_loss():
    from hydra.core.override_parser.overrides_parser import OverridesParser

    last = shlex.split((EXAMPLES / "verl.sh").read_text(), comments=True)[-1]
    assert parse(OverridesParser.create().parse_override(last).value()) == parse(LOSS)


@needs("verl")
def test_the_trainer_of_verl_gets_the_loss_and_refuses_what_its_engine_cannot_give(monkeypatch):
    from verl.trainer.sft_trainer import SFTTrainer

    from widen.hosts.verl import trainer_with, weighted_loss

    for loss in ("gem:beta=0.7", "eaft", "trunc:drop=0.1", "nll:steps=5 then cdiv:alpha=1.4", "anchor:kl=0.2"):
        with pytest.raises(ValueError, match=f"verl cannot train with loss='{parse(loss)}'.*legal"):
            trainer_with(loss)

    class Worker:
        def set_loss_fn(self, loss_fn):
            self.loss_fn = loss_fn

    def build(self):  # verl's own builds the engine from the configuration and hands it sft_loss
        self.training_client = Worker()

    monkeypatch.setattr(SFTTrainer, "_build_engine", build)
    trainer = object.__new__(trainer_with(LOSS))
    trainer.engine_config = SimpleNamespace(strategy="fsdp", ulysses_sequence_parallel_size=1)
    trainer._build_engine()
    assert trainer.training_client.loss_fn.func is weighted_loss
    assert trainer.training_client.loss_fn.args == (parse(LOSS),)
    trainer.engine_config.strategy = "megatron"
    with pytest.raises(ValueError, match=f"verl cannot train with loss='{parse(LOSS)}' and engine=megatron.*legal"):
        trainer._build_engine()
    trainer = object.__new__(trainer_with("lambda_pr:lam=0.5,gamma=0.1"))
    trainer.engine_config = SimpleNamespace(strategy="fsdp", ulysses_sequence_parallel_size=2)
    with pytest.raises(ValueError, match=r"loss='lambda_pr.* and ulysses_sequence_parallel_size=2.*legal"):
        trainer._build_engine()


# ---- axolotl


def noting(seen):
    """A callback that notes the gradient of each step."""
    from transformers import TrainerCallback

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            seen.append(flat(model))

    return Note()


@needs("axolotl")
@pytest.mark.parametrize("loss", [LOSS, "lambda_pr:lam=0.5,gamma=0.1", "asft:kl=0.3"])
@pytest.mark.parametrize("packed", [False, True])
def test_axolotl_takes_the_gradient_of_the_definition_accumulated_and_packed(loss, packed, tmp_path):
    from axolotl.core.training_args import AxolotlTrainingArguments
    from axolotl.monkeypatch.data.batch_dataset_fetcher import apply_multipack_dataloader_patch
    from axolotl.utils.collators import DataCollatorForSeq2Seq, V2BatchSamplerDataCollatorForSeq2Seq
    from axolotl.utils.dict import DictDefault
    from datasets import Dataset

    from widen.hosts.axolotl import WidenPlugin

    examples, seen, model = [], [], tiny_model()
    for ids in (row["input_ids"] for row in rows()[:4]):  # every token is a target, the first ones too
        columns = {"position_ids": list(range(len(ids))), "loss_weights": [0.5 + token % 2 for token in ids]}
        examples.append({"input_ids": ids, "labels": ids, "ref_logq": [-token / 48 for token in ids]} | columns)
    if packed:
        apply_multipack_dataloader_patch()  # as axolotl does before it loads the model
    collator = (V2BatchSamplerDataCollatorForSeq2Seq if packed else DataCollatorForSeq2Seq)(word_tokenizer())
    start = copy.deepcopy(model)
    WidenPlugin().get_trainer_cls(DictDefault(widen_loss=loss))(
        model=model,
        args=arguments(
            tmp_path, kind=AxolotlTrainingArguments, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=1,
            sample_packing=packed, max_seq_length=max(len(row["labels"]) for row in examples),
        ),
        train_dataset=Dataset.from_list(examples),
        data_collator=collator,
        eval_data_collator=collator,
        callbacks=[noting(seen)],
    ).train()  # fmt: skip
    whole = WithColumns(pad, ["ref_logq", "loss_weights"])(examples)
    assert apart(seen, [through_our_head(start, [whole], loss)]) < 1e-5


@needs("axolotl")
def test_the_configuration_of_axolotl_takes_the_loss_and_refuses_other_objectives_and_split_sequences():
    import yaml
    from axolotl.integrations.base import PluginManager
    from axolotl.utils.dict import DictDefault

    from widen.hosts.axolotl import WidenArgs, WidenPlugin

    example = yaml.safe_load((EXAMPLES / "axolotl.yaml").read_text())
    manager = PluginManager.get_instance()
    for name in example["plugins"]:
        manager.register(name)
    assert manager.get_input_args() == ["widen.hosts.axolotl.WidenArgs"]
    parse(WidenArgs(**{k: v for k, v in example.items() if k.startswith("widen_")}).widen_loss)
    assert manager.get_trainer_cls(DictDefault(example)).__mro__[1].__name__ == "WeightedLoss"
    assert WidenPlugin().get_trainer_cls(DictDefault({})) is None
    refused = {
        "rl": "dpo",
        "reward_model": True,
        "use_eaft": True,
        "context_parallel_size": 2,
        "tensor_parallel_size": 2,
    }
    for name, value in refused.items():
        with pytest.raises(
            ValueError, match=f"axolotl cannot train with widen_loss: {LOSS} and {name}: {value}.*legal"
        ):
            WidenPlugin().get_trainer_cls(DictDefault({"widen_loss": LOSS, name: value}))


# ---- ms-swift


@pytest.fixture
def swift_folder(tmp_path):
    """A tiny model with a tokenizer, and chats of unequal length."""
    word_tokenizer().save_pretrained(tmp_path)
    tiny_model().save_pretrained(tmp_path)
    with open(tmp_path / "data.jsonl", "w") as out:
        for i in range(8):
            asked = " ".join(f"w{(i * 3 + j) % 45} " for j in range(2 + i % 3))
            answer = " ".join(f"w{(i * 7 + j * 5) % 45} " for j in range(2 + i % 4))
            chat = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            out.write(json.dumps({"messages": chat}) + "\n")
    return tmp_path


def swift_sft(folder, loss, **options):
    """The real ``swift sft`` with ``loss`` registered by a plug-in file; two steps of two micro-batches unless told otherwise."""
    from swift.pipelines import sft_main

    example = (EXAMPLES / "ms_swift.py").read_text()
    assert LOSS in example
    (folder / "plugin.py").write_text(example.replace(LOSS, loss))
    chosen = {
        "model": folder, "model_type": "llama", "template": "dummy", "dataset": folder / "data.jsonl",
        "external_plugins": folder / "plugin.py", "loss_type": "widen", "tuner_type": "full", "torch_dtype": "float32",
        "bf16": "false", "fp16": "false", "optim": "sgd", "learning_rate": 0.005, "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 2, "output_dir": folder / "out",
        "report_to": "none", "logging_steps": 1, "load_from_cache_file": "false", "dataset_num_proc": 1, "max_grad_norm": 0,
        "dataloader_num_workers": 0, "split_dataset_ratio": 0, "gradient_checkpointing": "false", "check_model": "false",
        "use_hf": "true", "add_version": "false", "seed": 1,
    } | options  # fmt: skip
    return sft_main([part for name, value in chosen.items() for part in (f"--{name}", str(value))])


@needs("swift")
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (LOSS, {}),
        (LOSS, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}),  # only the targets' logits
        ("lambda_pr:lam=0.5,gamma=0.1", {}),
    ],
)
def test_ms_swift_takes_the_gradient_of_the_definition_accumulated(loss, options, swift_folder, monkeypatch):
    from swift.trainers import Seq2SeqTrainer

    from widen.hosts import ms_swift

    batches, found, expected = [], [], []
    step, finish = Seq2SeqTrainer.training_step, ms_swift._Follow.on_pre_optimizer_step

    def noted_step(self, model, inputs, *args, **kwargs):
        if not batches:
            noted_step.start = copy.deepcopy(tiny_copy(model))
        batches.append({name: inputs[name].clone() for name in ("input_ids", "labels", "attention_mask")})
        return step(self, model, inputs, *args, **kwargs)

    def tiny_copy(model):
        other = tiny_model()
        other.load_state_dict(model.state_dict())
        return other

    def noted_finish(self, *args, **kwargs):
        found.append(flat(self.trainer.model))
        expected.append(by_definition(noted_step.start, batches, loss))
        batches.clear()
        finish(self, *args, **kwargs)

    monkeypatch.setattr(Seq2SeqTrainer, "training_step", noted_step)
    monkeypatch.setattr(ms_swift._Follow, "on_pre_optimizer_step", noted_finish)
    swift_sft(swift_folder, loss, **options)
    assert len(found) == 2
    assert apart(found, expected) < 1e-5


@needs("swift")
def test_ms_swift_resumes_a_loss_with_state_from_its_checkpoint(swift_folder):
    loss = "nll:steps=1 then truncr:drop=0.5,window=4 * cdiv:alpha=1.4"
    whole = swift_sft(swift_folder, loss, max_steps=4, save_steps=2, num_train_epochs=2)
    checkpoint = swift_folder / "out" / "checkpoint-2"
    assert json.loads((checkpoint / "widen_loss.json").read_text())["step"] == 2
    again = swift_sft(
        swift_folder, loss, max_steps=4, num_train_epochs=2, resume_from_checkpoint=checkpoint, output_dir=swift_folder / "again"
    )  # fmt: skip
    losses = [[line["loss"] for line in one["log_history"] if "loss" in line][2:4] for one in (whole, again)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert whole["log_history"][3]["weight_zero_share"] > 0


@needs("swift")
@pytest.mark.parametrize(
    ("loss", "options", "sentence"),
    [
        (
            LOSS,
            {"enable_dft_loss": "true"},
            f"ms-swift cannot train with loss='{LOSS}.* and enable_dft_loss=True.*legal",
        ),
        (
            LOSS,
            {"label_smoothing_factor": 0.1},
            f"ms-swift cannot train with loss='{LOSS}.* and label_smoothing_factor=0.1",
        ),
        ("asft:kl=0.3", {}, "ms-swift cannot train with loss='asft:kl=0.3': it reads the column ref_logq.*legal"),
    ],
)
def test_ms_swift_refuses_what_it_cannot_train(loss, options, sentence, swift_folder):
    with pytest.raises(ValueError, match=sentence):
        swift_sft(swift_folder, loss, **options)


@needs("swift")
def test_ms_swift_refuses_packed_positions_split_sequences_and_preferences():
    from widen.hosts.ms_swift import WeightedLoss

    def made(name, loss, **template):
        template = SimpleNamespace(**{"sequence_parallel_size": 1, "padding_free": False} | template)
        trainer = type(name, (), {"template": template})()
        return WeightedLoss(SimpleNamespace(), trainer, loss=loss)

    made("Seq2SeqTrainer", LOSS, padding_free=True)  # looks at one token: packing does not matter
    counts = "lambda_pr:lam=0.5,gamma=0.1"
    for refused, loss, template in (
        (
            f"ms-swift with --packing or --padding_free cannot train with loss='{counts}'",
            counts,
            {"padding_free": True},
        ),
        (
            "ms-swift cannot train with loss='anchor:kl=0.2': it reads the column",
            "anchor:kl=0.2",
            {"padding_free": True},
        ),
        (
            f"ms-swift cannot train with loss='{LOSS}.* and sequence_parallel_size=2",
            LOSS,
            {"sequence_parallel_size": 2},
        ),
    ):
        with pytest.raises(ValueError, match=f"{refused}.*legal"):
            made("Seq2SeqTrainer", loss, **template)
    with pytest.raises(ValueError, match=f"Megatron cannot train with loss='{LOSS}.*legal: `swift sft`"):
        made("BaseMegatronTrainer", LOSS)
    with pytest.raises(ValueError, match="DPOTrainer: supervised losses only"):
        made("DPOTrainer", LOSS)
