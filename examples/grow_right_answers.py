"""`widen grow` on a tiny model. The model knows three words with each letter; it finds more words and trains on the right ones.

Two of the six letters are held out: they only measure the result.
"""

import json
from itertools import product
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from widen.cli.__main__ import main

words = ["".join(letters) for letters in product("abcdef", repeat=3)]
tasks = [{"prompt": f"{x}:", "answers": [word for word in words if x in word]} for x in "abcdef"]
first = [{"prompt": one["prompt"], "completion": word} for one in tasks for word in one["answers"][::40]]
for name, rows in {"train": tasks[:4], "test": tasks[4:], "first": first}.items():
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

training = "--lr 3e-3 --batch-size 6 --device cpu"
assert main(f"train --model model --data first.jsonl --epochs 10 --precision fp32 {training} --out runs".split()) == 0
(start,) = Path("runs").iterdir()
command = f"grow {start} --prompts train.jsonl --task answers --data first.jsonl --held-out test.jsonl --num 32 --max-tokens 8"
assert main(f"{command} --weights uniform --epochs 3 {training} --out grown".split()) == 0
