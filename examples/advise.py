"""`widen advise` on a made-up model and task: which loss and which decoding give the most right answers at precision >= 0.8?

Every prompt asks for a member of a group, and every right answer is listed, so all scores are exact and nothing is sampled.
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from widen.cli.__main__ import main

GROUPS = {
    "animal": ["cat", "dog", "fox", "owl", "hen", "pig", "cow", "bee", "ant", "elk"],
    "colour": ["red", "blue", "green", "pink", "gold", "grey", "teal"],
    "metal": ["iron", "zinc", "lead", "tin"],
}
rows = [{"prompt": f"{g} {n} :", "answers": members} for g, members in GROUPS.items() for n in range(12)]
Path("all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

words = ["<s>", "</s>", ":", *map(str, range(12)), *GROUPS, *(word for group in GROUPS.values() for word in group)]
made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="</s>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **sizes, **ends)).save_pretrained("model")
tokenizer.save_pretrained("model")

command = """advise --model model --data all.jsonl --task answers --num 20 --budget 10m --batch-size 32 --lr 0.02
    --losses cdiv:alpha=1.4 --seed 2 --device cpu --out advice --wish"""
assert main([*command.split(), "recall at precision >= 0.8"]) == 0
