"""The small Llama as a Hugging Face checkpoint, and back: a folder with ``config.json`` and ``model.safetensors`` in transformers' layout.

Only `to_transformers` and `from_transformers` need transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from widen.disk.atomic import write_bytes
from widen.disk.checksums import check_files, write_checksums
from widen.disk.json_file import read_json

from .checkpoint import load_tensors
from .tiny_llama import LlamaShape, TinyLlama

_TOP = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
_LAYER = {
    "attention_norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Our parameter of a layer -> transformers' modules, whose weights are stacked in it."""
_SIZES = {
    "vocab_size": "vocab",
    "hidden_size": "dim",
    "intermediate_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "rms_norm_eps": "norm_eps",
    "initializer_range": "init_std",
}
"""transformers' name of each size -> ours."""
_FIXED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
"""What every small Llama has in common."""


def save_pretrained(model: TinyLlama, folder: str | Path) -> Path:
    """Write a folder that `transformers.LlamaForCausalLM.from_pretrained` and `load_pretrained` open."""
    folder = Path(folder)
    config = json.dumps(config_of(model), indent=1)
    contents = {"model.safetensors": save(theirs(model), metadata={"format": "pt"}), "config.json": config.encode()}
    write_checksums(folder, contents)
    for name, data in contents.items():  # the config comes last: it marks the folder as complete
        write_bytes(folder / name, data)
    return folder


def load_pretrained(folder: str | Path) -> TinyLlama:
    """Open such a folder. A Llama with grouped heads, biases or a tied head is refused."""
    folder = Path(folder)
    check_files(folder)
    return _build(shape_of(read_json(folder / "config.json")), load_tensors(folder / "model.safetensors"))


def to_transformers(model: TinyLlama) -> Any:
    """The same model as a `transformers.LlamaForCausalLM`, with the same logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    other = LlamaForCausalLM(LlamaConfig(**config_of(model))).to(model.embed.dtype)
    other.load_state_dict(theirs(model))
    return other


def from_transformers(other: Any) -> TinyLlama:
    """A `LlamaForCausalLM` as a small Llama."""
    return _build(shape_of(other.config.to_dict()), other.state_dict())


def config_of(model: TinyLlama) -> dict[str, Any]:
    """transformers' ``config.json`` for this model."""
    shape = model.shape
    return {
        "architectures": ["LlamaForCausalLM"],
        **_FIXED,
        **{name: getattr(shape, ours) for name, ours in _SIZES.items()},
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": 2048,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": str(model.embed.dtype).removeprefix("torch."),
    }


def shape_of(config: Mapping[str, Any]) -> LlamaShape:
    """The shape that a ``config.json`` describes."""
    for name, value in {**_FIXED, "num_key_value_heads": config["num_attention_heads"]}.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}={config[name]!r}: the small Llama needs {value!r}")
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_parameters={rope!r}: the small Llama needs rope_type 'default'")
    config = {"initializer_range": 0.02, **config}
    return LlamaShape(rope_theta=float(rope["rope_theta"]), **{ours: config[name] for name, ours in _SIZES.items()})


def theirs(model: TinyLlama) -> dict[str, Tensor]:
    """Our parameters under transformers' names, unstacked."""
    mine = {name: parameter.detach() for name, parameter in model.named_parameters()}
    named = {other: mine[name] for name, other in _TOP.items()}
    for i in range(model.shape.layers):
        for name, modules in _LAYER.items():
            for module, part in zip(modules, mine[f"layers.{i}.{name}"].chunk(len(modules)), strict=True):
                named[f"model.layers.{i}.{module}.weight"] = part
    return {name: tensor.contiguous() for name, tensor in named.items()}


def _build(shape: LlamaShape, tensors: Mapping[str, Tensor]) -> TinyLlama:
    model = TinyLlama(shape).to(tensors["lm_head.weight"].dtype)
    mine = {name: tensors[other] for name, other in _TOP.items()}
    for i in range(shape.layers):
        for name, modules in _LAYER.items():
            mine[f"layers.{i}.{name}"] = torch.cat([tensors[f"model.layers.{i}.{module}.weight"] for module in modules])
    model.load_state_dict(mine)
    return model
