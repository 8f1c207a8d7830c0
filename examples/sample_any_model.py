"""Draw samples from a Hugging Face model under several decodings, into files that survive a crash."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from widen.sample import Decoding, LocalEngine, Prompt, Settings, collect, read_samples


class Letters:
    """A tokenizer of a-z; with a real model, AutoTokenizer.from_pretrained(path)."""

    bos_token_id, eos_token_id = 0, 1

    def __call__(self, text):
        return type("Encoded", (), {"input_ids": [ord(c) - 95 for c in text]})

    def batch_decode(self, rows, skip_special_tokens=True):
        return ["".join(chr(i + 95) for i in row if i > 1) for row in rows]


torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=28, bos_token_id=0, eos_token_id=1, initializer_range=0.3, **sizes))
engine = LocalEngine(model, Letters(), batch=64)

prompts = [Prompt(text="once"), Prompt(text="upon")]
specs = ["t=0", "t=1", "t=0.7,top_p=0.9", "t=0.7,top_p=0.9,order=temperature_last", "t=1,kl_sigma=3"]
settings = [Settings(decoding=Decoding.parse(spec), max_tokens=12) for spec in specs]
for _ in range(2):  # the second time everything is on disk, and nothing is drawn
    files = collect(engine, prompts, settings, num=20, folder=Path("samples"))
print(f"{engine.prefilled} prompts read once for {len(specs)} methods x 20 samples")
for path in files:
    samples = read_samples(path)
    distinct = len({(s.prompt, s.text) for s in samples}) / len(samples)
    mean = sum(s.logq for s in samples) / len(samples)
    print(f"{path.name:32} {distinct:4.0%} distinct, mean log q {mean:6.2f}, e.g. {samples.samples[0].text}")
