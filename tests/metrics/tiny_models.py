"""Tiny random transformers with a word tokenizer, saved to a folder as real ones are."""

import json
from pathlib import Path

import torch


def tokenizer(folder: Path, *, bert: bool, limit: int) -> int:
    """A tokenizer of single letters and digits, with a begin and end for BERT; returns the vocabulary's size."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<unk>", "<s>", "</s>"]
    vocab = {token: i for i, token in enumerate([*special, *"abcdefghijklmnopqrstuvwxyzABCDEFGH"])}
    made = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bert:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", model_max_length=limit
    )
    fast.save_pretrained(folder)
    return len(vocab)


def gpt2(folder: Path, *, seed: int = 0, limit: int = 16) -> Path:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(seed)
    vocab = tokenizer(folder, bert=False, limit=limit)
    config = GPT2Config(
        vocab_size=vocab, n_positions=limit, n_embd=8, n_layer=2, n_head=2, bos_token_id=3, eos_token_id=3
    )
    GPT2Model(config).eval().save_pretrained(folder)
    return folder


def sentence_transformer(
    folder: Path, *, pooling: dict, normalise: bool = True, max_seq_length: int = 6, lower: bool = False
) -> Path:
    """A BERT with the files that sentence-transformers writes beside it."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    vocab = tokenizer(folder, bert=True, limit=16)
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    BertModel(config).eval().save_pretrained(folder)
    stages = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")] + (
        [("2", "2_Normalize", "Normalize")] if normalise else []
    )
    listed = [
        {"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, path, kind in stages
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": max_seq_length, "do_lower_case": lower})
    )
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 8, **pooling}))
    return folder
