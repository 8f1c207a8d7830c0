"""The completions request that each kind of server understands.

All servers know `prompt`, `max_tokens`, `temperature`, `top_p`, `n` and `seed`; other settings have different names. `transformers serve`
takes its settings as a generation config: without one it decodes greedily at every temperature, unless the model's own config says
`do_sample` (seen with 5.22). :mod:`widen.sample.engines.probe` tests which settings a server honours.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from ..decoding import ORDERS, Decoding
from ..prompts import Prompt

__all__ = ["Dialect", "body", "needs", "plugin_arguments", "truncates_first", "unsupported"]

Dialect = Literal["vllm", "transformers", "openai"]

_OPENAI = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_NAMES: dict[str, dict[str, str]] = {
    "openai": _OPENAI,
    "vllm": _OPENAI | {"top_n_sigma": "top_n_sigma"},
    "transformers": _OPENAI | {"typical": "typical_p", "epsilon": "epsilon_cutoff", "eta": "eta_cutoff"},
}


def truncates_first(decoding: Decoding) -> bool:
    """Whether min-p comes first, on the model's own distribution, and the temperature after it. In vLLM the plug-in `MinPFirst` does that.

    Examples:
      >>> truncates_first(Decoding.truncate_then_heat()), truncates_first(Decoding(min_p=0.1, temperature=2.0))
      (True, False)
    """
    names = [name for name, _ in decoding.steps]
    return names[:1] == ["min_p"] and "temperature" in names


def needs(decoding: Decoding) -> frozenset[str]:
    """The filters that a server must honour; ``min_p_first`` is min-p before the temperature."""
    names = {name for name, _ in decoding.steps if name != "temperature"}
    return frozenset(names - {"min_p"} | {"min_p_first"} if truncates_first(decoding) else names)


def unsupported(dialect: Dialect, decoding: Decoding) -> str:
    """Why such a server cannot draw this way; "" if it can."""
    if decoding.kl_sigma is not None:
        return "KL guidance needs two streams, which no server offers: use a local model"
    names = [name for name, _ in decoding.steps]
    for name in names:
        if name != "temperature" and name not in _NAMES[dialect]:
            return f"it has no {name}: use a local model"
    if dialect == "vllm" and truncates_first(decoding):
        names.remove("min_p")
    order = "vllm" if dialect == "vllm" else "temperature_first"
    theirs = sorted(names, key=ORDERS[order].index)
    if names == theirs:
        return ""
    return f"its order is {' > '.join(theirs)}, not {' > '.join(names)}: ask for order={order}, or use a local model"


def body(
    dialect: Dialect,
    prompt: Prompt,
    decoding: Decoding,
    *,
    max_tokens: int,
    n: int,
    seed: int,
    model: str,
    logprobs: bool,
) -> dict[str, Any]:
    """The request as a JSON object."""
    sent: dict[str, Any] = {"prompt": list(prompt.ids) if prompt.ids is not None else prompt.text, "seed": seed}
    sent |= {"max_tokens": max_tokens} | ({"model": model} if model else {})
    filters = {_NAMES[dialect][name]: value for name, value in decoding.steps if name != "temperature"}
    if dialect == "transformers":
        config: dict[str, Any] = {"do_sample": not decoding.greedy, "max_new_tokens": max_tokens}
        if not decoding.greedy:
            config |= {"temperature": decoding.temperature, "top_k": 0, "top_p": 1.0} | filters
        return sent | {"generation_config": json.dumps(config)}
    sent |= {"temperature": decoding.temperature, "n": n} | ({"logprobs": 1} if logprobs else {})
    if dialect == "vllm":
        sent["return_token_ids"] = True
        if extra := plugin_arguments(decoding):
            sent["vllm_xargs"] = extra
            filters.pop("top_n_sigma", None)
            if "min_p_first" in extra:
                del filters["min_p"]
    return sent | filters


def plugin_arguments(decoding: Decoding) -> dict[str, float]:
    """The arguments of the plug-ins in :mod:`widen.sample.vllm_plugin`.

    Examples:
      >>> plugin_arguments(Decoding.truncate_then_heat()), plugin_arguments(Decoding(min_p=0.1))
      ({'min_p_first': 0.1}, {})
    """
    steps = dict(decoding.steps)
    found = {"top_n_sigma": steps["top_n_sigma"]} if "top_n_sigma" in steps else {}
    return found | ({"min_p_first": steps["min_p"]} if truncates_first(decoding) else {})
