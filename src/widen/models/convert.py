"""The small Llama as a Hugging Face checkpoint, and back: a folder with ``config.json`` and ``model.safetensors`` in transformers' layout.

Writing and reading need no transformers; `to_transformers` and `from_transformers` do.
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

__all__ = ["from_transformers", "load_pretrained", "save_pretrained", "to_transformers"]

_LAYER = {
    "attention_norm": ("input_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Our parameter of a layer -> transformers' modules, whose weights stand under each other in it."""


def save_pretrained(model: TinyLlama, folder: str | Path, *, max_length: int = 2048) -> Path:
    """Write a folder that `transformers.LlamaForCausalLM.from_pretrained` and `load_pretrained` open.

    Args:
      max_length: the longest sequence transformers is told of; rotary positions have no table, so it costs nothing.
    """
    folder = Path(folder)
    config = json.dumps(config_of(model.shape, model.embed.dtype, max_length=max_length), indent=1)
    contents = {"model.safetensors": save(theirs(model), metadata={"format": "pt"}), "config.json": config.encode()}
    write_checksums(folder, contents)
    for name, data in contents.items():  # the config comes last: it marks the folder as complete
        write_bytes(folder / name, data)
    return folder


def load_pretrained(folder: str | Path) -> TinyLlama:
    """Open such a folder; a Llama with grouped heads, biases or a tied head is refused, as the small model has none of these."""
    folder = Path(folder)
    check_files(folder)
    return _build(shape_of(read_json(folder / "config.json")), load_tensors(folder / "model.safetensors"))


def to_transformers(model: TinyLlama) -> Any:
    """The same model as a `transformers.LlamaForCausalLM`, with the same logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**config_of(model.shape, model.embed.dtype, max_length=2048))
    other = LlamaForCausalLM(config).to(model.embed.dtype)
    other.load_state_dict(theirs(model))
    return other


def from_transformers(other: Any) -> TinyLlama:
    """A `LlamaForCausalLM` as a small Llama."""
    return _build(shape_of(other.config.to_dict()), other.state_dict())


def config_of(shape: LlamaShape, dtype: torch.dtype, *, max_length: int) -> dict[str, Any]:
    """transformers' ``config.json`` for this shape."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.dim,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": max_length,
        "initializer_range": shape.init_std,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": str(dtype).removeprefix("torch."),
    }


def shape_of(config: Mapping[str, Any]) -> LlamaShape:
    """The shape that a ``config.json`` describes."""
    legal = {
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
    }
    legal["num_key_value_heads"] = config["num_attention_heads"]
    for name, value in legal.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}={config[name]!r}: the small Llama needs {value!r}")
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_parameters={rope!r}: the small Llama needs rope_type 'default'")
    return LlamaShape(
        vocab=config["vocab_size"],
        layers=config["num_hidden_layers"],
        dim=config["hidden_size"],
        heads=config["num_attention_heads"],
        hidden=config["intermediate_size"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope["rope_theta"]),
        init_std=config.get("initializer_range", 0.02),
    )


def theirs(model: TinyLlama) -> dict[str, Tensor]:
    """Our parameters under transformers' names, cut where it keeps them apart."""
    mine = {name: parameter.detach() for name, parameter in model.named_parameters()}
    named = {
        "model.embed_tokens.weight": mine["embed"],
        "model.norm.weight": mine["norm"],
        "lm_head.weight": mine["head"],
    }
    for i in range(model.shape.layers):
        for name, modules in _LAYER.items():
            for module, part in zip(modules, mine[f"layers.{i}.{name}"].chunk(len(modules)), strict=True):
                named[f"model.layers.{i}.{module}.weight"] = part
    return {name: tensor.contiguous() for name, tensor in named.items()}


def _build(shape: LlamaShape, tensors: Mapping[str, Tensor]) -> TinyLlama:
    model = TinyLlama(shape).to(tensors["lm_head.weight"].dtype)
    mine = {
        "embed": tensors["model.embed_tokens.weight"],
        "norm": tensors["model.norm.weight"],
        "head": tensors["lm_head.weight"],
    }
    for i in range(shape.layers):
        for name, modules in _LAYER.items():
            mine[f"layers.{i}.{name}"] = torch.cat([tensors[f"model.layers.{i}.{module}.weight"] for module in modules])
    model.load_state_dict(mine)
    return model
