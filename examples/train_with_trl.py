"""TRL's SFTTrainer with a loss of widen: one import and one argument are new. Runs without network on a tiny model."""

import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig

from widen.hosts.trl import SFTTrainer  # was: from trl import SFTTrainer

words = ["<pad>", "<eos>", *"0123456789", "=", "even", "odd"]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
config = LlamaConfig(
    vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
)
config.bos_token_id, config.eos_token_id = None, 1
model = LlamaForCausalLM(config)  # in practice the name of a model
rows = [{"prompt": f"{i % 10} =", "completion": " odd" if i % 2 else " even"} for i in range(64)]

with tempfile.TemporaryDirectory() as folder:
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(folder, max_steps=6, logging_steps=2, max_length=16, bf16=False, report_to=[], use_cpu=True),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        loss="nll:steps=2 then truncr:drop=0.1 * cdiv:alpha=1.4",  # new
    )
    trainer.train()
