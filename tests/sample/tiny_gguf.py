"""A small random Llama as a GGUF file for llama.cpp. Each letter is a token; some tokens are invisible, two are half a letter."""

import gguf
import numpy as np
from small_models import llama

SPECIAL = "<x>"
BYTES = ["<0xC3>", "<0xA9>"]  # together they are one letter
CONTROL = ["<s>", "</s>", SPECIAL, "<think>", "</think>"]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ3<>"
TOKENS = [*CONTROL, "<unk>", *BYTES, *LETTERS]
KINDS = dict.fromkeys(CONTROL, gguf.TokenType.CONTROL) | dict.fromkeys(BYTES, gguf.TokenType.BYTE)
KINDS["<unk>"] = gguf.TokenType.UNKNOWN
TEMPLATE = "{% for m in messages %}{{ m['content'] }}3{% endfor %}"
LAYER = {
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def ids(text):
    return [TOKENS.index(letter) for letter in text]


def text(ids):
    """What llama.cpp shows of these tokens."""
    pieces = [bytes([int(TOKENS[i][3:5], 16)]) if TOKENS[i] in BYTES else TOKENS[i].encode() for i in ids if visible(i)]
    return b"".join(pieces).decode(errors="replace")


def visible(token):
    return TOKENS[token] not in (*CONTROL, "<unk>")


def save_gguf(path):
    """Write the file; returns the same model for transformers."""
    model = llama(vocab=len(TOKENS))
    config, weights = model.config, {name: one.detach().numpy() for name, one in model.state_dict().items()}
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_dimension_count(config.head_dim)
    out.add_tokenizer_model("llama")
    out.add_token_list(TOKENS)
    out.add_token_scores([0.0] * len(TOKENS))
    out.add_token_types([KINDS.get(one, gguf.TokenType.NORMAL) for one in TOKENS])
    out.add_bos_token_id(0)
    out.add_eos_token_id(1)
    out.add_unk_token_id(TOKENS.index("<unk>"))
    out.add_add_bos_token(False)
    out.add_add_space_prefix(False)
    out.add_chat_template(TEMPLATE)
    out.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    out.add_tensor("output_norm.weight", weights["model.norm.weight"])
    out.add_tensor("output.weight", weights["lm_head.weight"])
    for i in range(config.num_hidden_layers):
        theirs, ours = f"blk.{i}.", f"model.layers.{i}."
        for name, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            turned = paired(weights[f"{ours}self_attn.{name}_proj.weight"], heads)
            out.add_tensor(f"{theirs}attn_{name}.weight", turned)
        for name, source in LAYER.items():
            out.add_tensor(f"{theirs}{name}.weight", weights[f"{ours}{source}.weight"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return model


def paired(weight, heads):
    """llama.cpp rotates neighbouring dimensions, transformers the two halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
