"""A training loop of your own with a loss of widen: hidden states, the fused head, one optimizer step."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from widen.head import linear_logprob
from widen.losses import parse, weighted_nll

torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(config)  # in practice AutoModelForCausalLM.from_pretrained(...)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
tokens = torch.randint(3, 64, (8, 12))
mask = torch.ones(8, 12, dtype=torch.bool)
mask[:, :3] = False  # the prompt is no target; padding would be False too

weight = parse("nll:steps=5 then cdiv:alpha=1.4")
state = weight.init()
for step in range(20):
    micro_batches = [slice(0, 4), slice(4, 8)]
    num_tokens = mask[:, 1:].sum()  # targets of the *whole* step: then accumulation changes nothing
    for rows in micro_batches:
        hidden = model.model(tokens[rows, :-1]).last_hidden_state
        target = tokens[rows, 1:].masked_fill(~mask[rows, 1:], -100)
        logq = linear_logprob(hidden.flatten(0, 1), model.lm_head.weight, target.flatten()).view(target.shape)
        loss, state = weighted_nll(logq, mask[rows, 1:], weight, state, num_tokens=num_tokens)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    state = weight.observe(weight.seen(state), state)  # once a step: windows and schedules move on
    if step % 5 == 0:
        print(f"step {step}: {weight.now(state)}, last micro-batch's loss {loss.item():.3f}")
