"""A decoding in the words of the software that will use it: Transformers, vLLM and llama.cpp."""

from __future__ import annotations

from typing import Any

from widen.sample.decoding import FILTERS, Decoding

LLAMA_CPP = {"temperature": "--temp", "top_k": "--top-k", "top_p": "--top-p", "min_p": "--min-p"}
"""llama.cpp's flag of each step; the names of its samplers are ours."""
TRANSFORMERS = {name: name for name in ("temperature", *FILTERS) if name != "top_n_sigma"}
TRANSFORMERS |= {"typical": "typical_p", "epsilon": "epsilon_cutoff", "eta": "eta_cutoff"}
"""Keys of generation_config.json, in the order in which transformers applies them."""
DECODING_KEYS = {"do_sample", *TRANSFORMERS.values()}
VLLM = ("temperature", "min_p", "top_k", "top_p")
"""vLLM's order of steps."""


def how_to_decode(decoding: Decoding, model: str) -> dict[str, str]:
    """How to ask each engine for a decoding, or why it cannot do it.

    >>> found = how_to_decode(Decoding.truncate_then_heat(min_p=0.1, temperature=2), "MODEL")
    >>> print(found["transformers"])
    model.generate(..., do_sample=True, top_k=0,
      logits_processor=logits_processors(Decoding.parse("t=2,min_p=0.1,order=temperature_last")))
    >>> print(found["vLLM"])
    vllm serve MODEL --logits-processors widen.sample.vllm_plugin:MinPFirst
      "temperature": 2, "vllm_xargs": {"min_p_first": 0.1}
    >>> print(found["llama.cpp"])
    llama-cli -m MODEL.gguf --samplers "min_p;temperature" --min-p 0.1 --temp 2
    >>> how_to_decode(Decoding(temperature=0.7), "MODEL")["transformers"]
    'model.generate(..., do_sample=True, temperature=0.7, top_k=0)'
    """
    return {
        "transformers": _transformers(decoding),
        "vLLM": _vllm(decoding, model),
        "llama.cpp": _llama_cpp(decoding, model),
    }


def _transformers(decoding: Decoding) -> str:
    settings = generation_settings(decoding)
    if settings is not None:
        return f"model.generate(..., {', '.join(f'{name}={value}' for name, value in settings.items())})"
    processors = f'logits_processors(Decoding.parse("{decoding.spec}"))'
    return f"model.generate(..., do_sample=True, top_k=0,\n  logits_processor={processors})"


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


def _vllm(decoding: Decoding, model: str) -> str:
    names = [name for name, _ in decoding.steps]
    temperature = f'"temperature": {decoding.temperature:g}'
    if decoding.greedy or (all(name in VLLM for name in names) and names == sorted(names, key=VLLM.index)):
        filters = "".join(f', "{name}": {value:g}' for name, value in decoding.steps if name != "temperature")
        return f"vllm serve {model}\n  {temperature}{filters}"
    if names == ["min_p", "temperature"]:
        plugin = f"vllm serve {model} --logits-processors widen.sample.vllm_plugin:MinPFirst"
        return f'{plugin}\n  {temperature}, "vllm_xargs": {{"min_p_first": {decoding.min_p:g}}}'
    return f"cannot express this order ({decoding.in_words}): vLLM applies the temperature first"


def _llama_cpp(decoding: Decoding, model: str) -> str:
    steps = dict(decoding.steps) or {"temperature": decoding.temperature}
    steps.setdefault("temperature", decoding.temperature)
    if other := [name for name in steps if name not in LLAMA_CPP]:
        return f"cannot express this decoding: it has no {', '.join(other)}"
    flags = " ".join(f"{LLAMA_CPP[name]} {value:g}" for name, value in steps.items())
    return f'llama-cli -m {model}.gguf --samplers "{";".join(steps)}" {flags}'
