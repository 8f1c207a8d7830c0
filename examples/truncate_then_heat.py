"""Cut off unlikely tokens, then raise the temperature: `generate` of Transformers in an order that its own arguments do not offer."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from widen.sample import Decoding, logits_processors

torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, bos_token_id=0, eos_token_id=1, initializer_range=0.3, **sizes))
prompt = torch.tensor([[0, 5, 7]])

decodings = {
    "temperature alone": Decoding(temperature=5),
    "heat, then truncate": Decoding(temperature=5, min_p=0.1),  # what generate(temperature=5, min_p=0.1) does
    "truncate, then heat": Decoding.truncate_then_heat(min_p=0.1, temperature=5),
}
dropped = {}
for name, decoding in decodings.items():
    out = model.generate(
        prompt.repeat(500, 1),
        attention_mask=torch.ones(500, 3, dtype=torch.long),
        pad_token_id=1,
        max_new_tokens=1,
        do_sample=True,
        temperature=1.0,  # for what a call leaves out, generate takes the model's generation_config.json
        top_k=0,
        top_p=1.0,
        logits_processor=logits_processors(decoding),
    )
    q = model(prompt).logits[0, -1].softmax(-1)
    drawn = out[:, 3]
    dropped[name] = (q[drawn] < 0.1 * q.max()).float().mean().item()
    print(
        f"{name:20} {len(drawn.unique()):2} different tokens, {dropped[name]:4.0%} of samples below a tenth of the largest"
    )
assert dropped["truncate, then heat"] == 0 < dropped["heat, then truncate"]
