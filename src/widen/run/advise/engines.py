"""A decoding in the words of the software that will use it: widen, Transformers, vLLM and llama.cpp."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widen.sample.decoding import FILTERS, Decoding, as_text

LLAMA_CPP = {"temperature": "--temp", "top_k": "--top-k", "top_p": "--top-p", "min_p": "--min-p"}
"""llama.cpp's flag of each step; the names of its samplers are ours."""
TRANSFORMERS = {name: name for name in ("temperature", *FILTERS) if name != "top_n_sigma"}
TRANSFORMERS |= {"typical": "typical_p", "epsilon": "epsilon_cutoff", "eta": "eta_cutoff"}
"""Keys of generation_config.json, in the order in which transformers applies them."""
DECODING_KEYS = {"do_sample", *TRANSFORMERS.values()}
NEUTRAL = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
"""Said in every call: for what a call leaves out, ``generate`` takes the model's generation_config.json."""
IN_CHAT = """talk = [{"role": "user", "content": prompt}]
inputs = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=True, return_tensors="pt").to(model.device)"""
"""The ``inputs`` of a ``prompt``, by the chat template of a ``tokenizer``."""
VLLM = ("temperature", "min_p", "top_k", "top_p")
"""vLLM's order of steps."""


def how_to_decode(decoding: Decoding, model: str, *, max_tokens: int, chat: bool = False) -> dict[str, str]:
    """How to ask each engine for a decoding, or why it cannot do it. ``model`` is a folder or a hub name.

    With ``chat``, the prompts go through the model's chat template.

    >>> found = how_to_decode(Decoding.truncate_then_heat(min_p=0.1, temperature=2), "MODEL", max_tokens=8)
    >>> print(found["widen"])
    widen sample MODEL --prompts FILE --max-tokens 8 --decodings t=2,min_p=0.1,order=temperature_last
    >>> print(found["transformers"].rpartition("\\n")[0])
    from widen.sample import Decoding, logits_processors
    steps = logits_processors(Decoding.parse("t=2,min_p=0.1,order=temperature_last"))
    >>> print(found["vLLM"])
    vllm serve MODEL --logits-processors widen.sample.vllm_plugin:MinPFirst
    in each request: "max_tokens": 8, "temperature": 2, "top_p": 1, "top_k": -1, "repetition_penalty": 1, "vllm_xargs": {"min_p_first": 0.1}
    >>> print(found["llama.cpp"])
    hf download MODEL --local-dir MODEL
    python convert_hf_to_gguf.py MODEL --outfile MODEL.gguf
    llama-server -m MODEL.gguf --samplers "min_p;temperature" --min-p 0.1 --temp 2
    in each request: "max_tokens": 8
    >>> how_to_decode(Decoding(temperature=0.7), "MODEL", max_tokens=8)["transformers"]
    'model.generate(**inputs, max_new_tokens=8, do_sample=True, temperature=0.7, top_k=0, top_p=1.0, repetition_penalty=1.0)'
    >>> how_to_decode(Decoding(), "MODEL", max_tokens=8, chat=True)["llama.cpp"].splitlines()[-1]
    'in each request to /v1/chat/completions: "max_tokens": 8'
    """
    run, spec = shlex.quote(model.removesuffix("/checkpoint")), shlex.quote(decoding.spec)
    chat_flag = " --chat" if chat else ""
    return {
        "widen": f"widen sample {run} --prompts FILE --max-tokens {max_tokens} --decodings {spec}{chat_flag}",
        "transformers": transformers_call(decoding, chat=chat, max_new_tokens=max_tokens),
        "vLLM": _vllm(decoding, shlex.quote(model), max_tokens, chat=chat),
        "llama.cpp": _llama_cpp(decoding, model, max_tokens, chat=chat),
    }


def transformers_call(decoding: Decoding, *, chat: bool = False, **more: object) -> str:
    """Python that samples a ``model`` of transformers for some ``inputs``, in chat for a ``prompt``; ``more`` goes to `generate`."""
    settings, lines = generation_settings(decoding), [IN_CHAT] if chat else []
    if settings is not None:
        return "\n".join([*lines, _generate(more | (settings if decoding.greedy else NEUTRAL | settings))])
    lines += ["from widen.sample import Decoding, logits_processors"]
    lines.append(f'steps = logits_processors(Decoding.parse("{decoding.spec}"))')
    return "\n".join([*lines, _generate(more | NEUTRAL | {"logits_processor": "steps"})])


def _generate(settings: Mapping[str, object]) -> str:
    return f"model.generate(**inputs, {', '.join(f'{name}={value}' for name, value in settings.items())})"


def generation_settings(decoding: Decoding) -> dict[str, Any] | None:
    """The decoding as keys of generation_config.json; None if transformers has other steps or applies them in another order.

    >>> generation_settings(Decoding.parse("t=0.7,top_p=0.9"))
    {'do_sample': True, 'temperature': 0.7, 'top_k': 0, 'top_p': 0.9}
    >>> generation_settings(Decoding.truncate_then_heat())
    """
    if decoding.greedy:
        return {"do_sample": False}
    names = [name for name, _ in decoding.steps]
    if names != [name for name in TRANSFORMERS if name in names] or decoding.kl_sigma is not None:
        return None
    found = {TRANSFORMERS[name]: value for name, value in decoding.steps}
    return {"do_sample": True, "temperature": 1.0, "top_k": 0} | found  # without a top_k transformers takes 50


def _each_request(chat: bool) -> str:
    return "in each request to /v1/chat/completions:" if chat else "in each request:"


def _vllm(decoding: Decoding, model: str, max_tokens: int, *, chat: bool) -> str:
    names = [name for name, _ in decoding.steps]
    # for what a request leaves out, vLLM takes the model's generation_config.json
    asked = {"max_tokens": max_tokens, "temperature": decoding.temperature, "top_p": 1, "top_k": -1}
    asked["repetition_penalty"] = 1
    if decoding.greedy or (all(name in VLLM for name in names) and names == sorted(names, key=VLLM.index)):
        return f"vllm serve {model}\n{_each_request(chat)} {_fields(asked | dict(decoding.steps))}"
    if names == ["min_p", "temperature"]:
        plugin = f"vllm serve {model} --logits-processors widen.sample.vllm_plugin:MinPFirst"
        own = f'"vllm_xargs": {{"min_p_first": {as_text(decoding.min_p)}}}'
        return f"{plugin}\n{_each_request(chat)} {_fields(asked)}, {own}"
    return f"cannot express this order ({decoding.in_words}): vLLM applies the temperature first"


def _fields(values: Mapping[str, float]) -> str:
    return ", ".join(f'"{name}": {as_text(value)}' for name, value in values.items())


def _llama_cpp(decoding: Decoding, model: str, max_tokens: int, *, chat: bool) -> str:
    steps = dict(decoding.steps) or {"temperature": decoding.temperature}
    steps.setdefault("temperature", decoding.temperature)
    if other := [name for name in steps if name not in LLAMA_CPP]:
        return f"cannot express this decoding: it has no {', '.join(other)}"
    flags = " ".join(f"{LLAMA_CPP[name]} {as_text(value)}" for name, value in steps.items())
    lines, folder = [], model
    if not Path(model).is_dir():  # a hub name: the script takes folders only
        folder = model.rpartition("/")[2]
        lines = [f"hf download {shlex.quote(model)} --local-dir {shlex.quote(folder)}"]
    file = shlex.quote(f"{folder}.gguf")
    lines.append(f"python convert_hf_to_gguf.py {shlex.quote(folder)} --outfile {file}")
    lines.append(f'llama-server -m {file} --samplers "{";".join(steps)}" {flags}' + (" --jinja" if chat else ""))
    return "\n".join([*lines, f"{_each_request(chat)} {_fields({'max_tokens': max_tokens})}"])
