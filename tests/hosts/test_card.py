"""The model card that the trainers write and `push_to_hub` uploads; nothing goes over a network."""

import transformers
import trl
from huggingface_hub import ModelCard
from trainer_runs import arguments, pad, rows, tiny_model, tiny_tokenizer

import widen.hosts.transformers
import widen.hosts.trl


def sft(folder):
    from datasets import Dataset

    changes = {"dataset_kwargs": {"skip_prepare_dataset": True}, "max_length": None, "bf16": False}
    return widen.hosts.trl.SFTTrainer(
        model=tiny_model(),
        args=arguments(folder, kind=trl.SFTConfig, gradient_checkpointing=False, **changes),
        train_dataset=Dataset.from_list(rows()),
        processing_class=tiny_tokenizer(),
        loss="truncr:drop=0.1",
    )


def test_trls_card_names_loss_data_and_how_to_find_a_decoding(tmp_path):
    trainer = sft(tmp_path)
    for _ in range(2):  # at every checkpoint, and at the push
        trainer.create_model_card(model_name="mine", dataset_name="owner/data")
    card = ModelCard.load(tmp_path / "README.md")
    assert {"widen", "sft"} <= set(card.data.tags)
    assert card.text.count("## Training loss") == 1
    assert "`truncr:drop=0.1" in card.text
    assert "owner/data, 18 rows" in card.text
    assert "widen score" in card.text
    assert "TRL" in card.text


def test_push_to_hub_uploads_that_card(tmp_path, monkeypatch):
    sent = {}

    class Hub:
        def upload_folder(self, *, folder_path, **kwargs):
            sent["card"] = ModelCard.load(f"{folder_path}/README.md")

    monkeypatch.setattr(transformers.trainer, "hf_api", Hub)
    trainer = sft(tmp_path)
    trainer.hub_model_id = "me/mine"
    trainer.push_to_hub(dataset_name="owner/data")
    assert "## Training loss" in sent["card"].text


def test_the_transformers_trainers_card_has_them_too(tmp_path):
    trainer = widen.hosts.transformers.Trainer(
        model=tiny_model(), args=arguments(tmp_path), train_dataset=rows(), data_collator=pad, loss="cdiv:alpha=1.4"
    )
    trainer.create_model_card(dataset="owner/data")
    card = ModelCard.load(tmp_path / "README.md")
    assert "widen" in card.data.tags
    assert "`cdiv:alpha=1.4" in card.text
    assert "owner/data, 18 rows" in card.text
