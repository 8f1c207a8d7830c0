"""A tiny model knows three words with each letter and grows more: it samples, right new words are kept, it trains on them."""

import json
from itertools import product
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from widen.run.finetune import FineTune, Source, fine_tune
from widen.run.grow import Growth, grow

words = ["".join(letters) for letters in product("abcdef", repeat=3)]
tasks = [{"prompt": f"{x}:", "answers": [word for word in words if x in word]} for x in "abcdef"]
first = [{"prompt": one["prompt"], "completion": word} for one in tasks for word in one["answers"][::40]]
for name, rows in {"tasks": tasks, "first": first}.items():
    Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

# A random Llama that reads one letter at a time; in practice, the folder of your model.
set_seed(0)
ids = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", *"abcdef:"])}
tokens = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse()
special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
PreTrainedTokenizerFast(tokenizer_object=tokens, **special).save_pretrained("model")
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LlamaForCausalLM(LlamaConfig(vocab_size=len(ids), max_position_embeddings=32, **sizes, **ends)).save_pretrained("model")

training = {"batch_size": 6, "micro_batch": 6, "lr": 3e-3, "precision": "fp32", "max_length": 16}
start = fine_tune(
    FineTune(model="model", train=Source(path="first.jsonl"), epochs=10, **training), "runs", device="cpu"
)
about = {"num": 32, "max_tokens": 8, "weights": "uniform", "training": {**training, "epochs": 3.0}}
problems = {"prompts": Source(task="answers", path="tasks.jsonl"), "data": Source(path="first.jsonl")}
rounds = grow(Growth(model=str(start.path), **problems, **about), "grown", say=print)
print(f"{len(first)} answers have become {rounds[-1].rows}, of {sum(len(one['answers']) for one in tasks)} right ones")
