"""A tiny random Llama with a tokenizer of its own, as a folder that transformers loads; small files of examples; a short training."""

import json
from pathlib import Path

from widen.run.finetune import FineTune, Source

WORDS = "what is plus times ? # n0 n1 = 1.0 2.0 3.0 4.0 5.0 6.0 answer + * a door opens and she walks in"


def make_tokenizer(first=True):
    """Byte-level BPE with 320 pieces, which begins a text with <s> if asked to."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([WORDS] * 4, trainer)
    if first:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", clean_up_tokenization_spaces=False
    )


def save_model(folder, seed=0, **changes):
    """Write the model and its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = LlamaConfig(**({"vocab_size": 320, "max_position_embeddings": 256} | ends | sizes | changes))
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def save_sums(path, count=24):
    """Examples of mathqa_python: sums and products of small numbers."""
    lines = []
    for i in range(count):
        a, b, sign = 1 + i % 3, 1 + i // 3 % 4, "+*"[i % 2]
        program = f"n0 = {a}.0\nn1 = {b}.0\nanswer = n0 {sign} n1" + "\nanswer = answer + n0" * (i % 4)
        lines.append(
            {"question": f"what is {a} {sign} {b} ?", "program": program, "answer": str(eval(f"{a}{sign}{b}"))}
        )
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def tiny_training(folder, *, count=24, **changes):
    """A short training of the model on so many sums, which are saved in ``folder``."""
    train = Source(task="mathqa_python", path=save_sums(folder / "sums.jsonl", count))
    about = {"precision": "fp32", "lr": 1e-3, "warmup_steps": 0, "batch_size": 4, "micro_batch": 4, "max_length": 80}
    return FineTune(**{"model": save_model(folder / "tiny-model"), "train": train, **about, **changes})
