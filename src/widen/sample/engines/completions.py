"""The completions protocol: what is sent to each kind of server, and its answers as values.

All servers know `prompt`, `max_tokens`, `temperature`, `top_p`, `n` and `seed`; other settings have different names. `transformers serve`
takes its settings as a generation config: without one it decodes greedily at every temperature, unless the model's own config says
`do_sample` (seen with 5.22). :mod:`widen.sample.engines.probe` tests which settings a server honours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ..chat import turns
from ..decoding import ORDERS, Decoding, Settings
from ..prompts import Prompt
from .http import ServerFault

__all__ = [
    "Choice",
    "Dialect",
    "body",
    "choices",
    "endpoint",
    "listed_models",
    "needs",
    "plugin_arguments",
    "unsupported",
]

ROUNDING = 1e-3  # a log-probability may exceed 0 by this much: servers compute in half precision

Dialect = Literal["vllm", "transformers", "openai"]

_OPENAI = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_NAMES: dict[str, dict[str, str]] = {
    "openai": _OPENAI,
    "vllm": _OPENAI | {"top_n_sigma": "top_n_sigma"},
    "transformers": _OPENAI | {"typical": "typical_p", "epsilon": "epsilon_cutoff", "eta": "eta_cutoff"},
}


def plugin_arguments(decoding: Decoding) -> dict[str, float]:
    """The arguments of the plug-ins in :mod:`widen.sample.vllm_plugin`; `min_p_first` is min-p before the temperature."""
    steps = dict(decoding.steps)
    found = {"top_n_sigma": steps["top_n_sigma"]} if "top_n_sigma" in steps else {}
    first = next(iter(steps), "") == "min_p" and "temperature" in steps
    return found | ({"min_p_first": steps["min_p"]} if first else {})


def needs(decoding: Decoding) -> frozenset[str]:
    """The filters that a server must honour, with `min_p_first` for min-p before the temperature."""
    names = {name for name, _ in decoding.steps if name != "temperature"}
    return frozenset(names - {"min_p"} | {"min_p_first"} if "min_p_first" in plugin_arguments(decoding) else names)


def endpoint(settings: Settings) -> str:
    """Where such a request goes: with a chat template the server applies it."""
    return "/v1/chat/completions" if settings.chat else "/v1/completions"


def unsupported(dialect: Dialect, decoding: Decoding) -> str:
    """Why such a server cannot draw this way; "" if it can."""
    if decoding.kl_sigma is not None:
        return "KL guidance needs two streams, which no server offers: use a local model"
    names = [name for name, _ in decoding.steps]
    for name in names:
        if name != "temperature" and name not in _NAMES[dialect]:
            return f"it has no {name}: use a local model"
    if dialect == "vllm" and "min_p_first" in plugin_arguments(decoding):
        names.remove("min_p")
    order = "vllm" if dialect == "vllm" else "temperature_first"
    theirs = sorted(names, key=ORDERS[order].index)
    if names == theirs:
        return ""
    return f"its order is {' > '.join(theirs)}, not {' > '.join(names)}: ask for order={order}, or use a local model"


def body(
    dialect: Dialect,
    prompt: Prompt,
    settings: Settings,
    *,
    n: int,
    seed: int,
    model: str,
    logprobs: bool,
    stop_tokens: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The request as a JSON object; `seed` is that of the request, `stop_tokens` the numbers of stop strings that are one token."""
    decoding = settings.decoding
    sent: dict[str, Any] = {"seed": seed, "max_tokens": settings.max_tokens} | ({"model": model} if model else {})
    if settings.chat:
        sent["messages"] = [dict(one) for one in turns(prompt, settings)]
    else:
        sent["prompt"] = list(prompt.ids) if prompt.ids is not None else prompt.text
    if settings.stop:
        sent["stop"] = list(settings.stop)
    filters = {_NAMES[dialect][name]: value for name, value in decoding.steps if name != "temperature"}
    if dialect == "transformers":
        config: dict[str, Any] = {"do_sample": not decoding.greedy, "max_new_tokens": settings.max_tokens}
        if not decoding.greedy:
            config |= {"temperature": decoding.temperature, "top_k": 0, "top_p": 1.0} | filters
        return sent | {"generation_config": json.dumps(config)}
    sent |= {"temperature": decoding.temperature, "n": n} | ({"logprobs": settings.chat or 1} if logprobs else {})
    if dialect == "vllm":
        sent["return_token_ids"] = True
        if numbers := [stop_tokens[one] for one in settings.stop if stop_tokens and one in stop_tokens]:
            sent["stop_token_ids"] = numbers
        if extra := plugin_arguments(decoding):
            sent["vllm_xargs"] = extra
            filters = {
                name: value for name, value in filters.items() if name not in extra and f"{name}_first" not in extra
            }
    return sent | filters


class Choice(NamedTuple):
    """One completion as the server gave it."""

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int | None
    logprob: float | None
    ids: tuple[int, ...] | None


def choices(answer: dict[str, Any], url: str) -> tuple[list[Choice], int | None]:
    """The completions of an answer, in the order of their indices, and the number of tokens in the prompt.

    The answer may hold fewer completions than were asked for. An answer without any is a fault.
    """
    _optional(url, answer, "model", "a string")
    given = _checked(url, "choices", answer.get("choices"), "a list that is not empty")
    usage = _optional(url, answer, "usage", "an object", default={})
    prompt_tokens = _optional(url, usage, "prompt_tokens", "a count")
    completion_tokens = _optional(url, usage, "completion_tokens", "a count")
    found: dict[int, Choice] = {}
    for position, choice in enumerate(given):
        place = f"choices[{position}]"
        _checked(url, place, choice, "an object")
        index = _optional(url, choice, "index", "a count", place, default=position)
        if index in found:
            raise ServerFault(f"{url}: in the answer, index {index} occurs twice among the choices")
        found[index] = _choice(url, choice, place, completion_tokens if len(given) == 1 else None)
    return [found[index] for index in sorted(found)], prompt_tokens


def _choice(url: str, choice: dict[str, Any], place: str, num_tokens: int | None) -> Choice:
    if "message" in choice:  # of a chat
        message = _checked(url, f"{place}.message", choice["message"], "an object")
        text = _checked(url, f"{place}.message.content", message.get("content"), "a string")
    else:
        text = _checked(url, f"{place}.text", choice.get("text"), "a string")
    finish = _checked(url, f"{place}.finish_reason", choice.get("finish_reason"), "'stop' or 'length'")
    ids = _optional(url, choice, "token_ids", "a list", place, default=[])
    for position, one in enumerate(ids):
        _checked(url, f"{place}.token_ids[{position}]", one, "a count")
    logprobs = _optional(url, choice, "logprobs", "an object", place, default={})
    scores = _optional(url, logprobs, "token_logprobs", "a list", f"{place}.logprobs", default=[])
    for position, one in enumerate(_optional(url, logprobs, "content", "a list", f"{place}.logprobs", default=[])):
        known_one = _checked(url, f"{place}.logprobs.content[{position}]", one, "an object")
        scores = [*scores, known_one.get("logprob")]
    for position, one in enumerate(scores):
        _checked(url, f"{place}.logprobs.token_logprobs[{position}]", one, "a log-probability or null")
    known = bool(scores) and None not in scores
    if ids:
        num_tokens = len(ids)
    elif num_tokens is None and known:
        num_tokens = len(scores)
    return Choice(text, finish, num_tokens, float(sum(scores)) if known else None, tuple(ids) or None)


def listed_models(answer: dict[str, Any], url: str) -> list[dict[str, Any]]:
    """The entries of ``/v1/models``; each `id` is a string."""
    data: list[dict[str, Any]] = _optional(url, answer, "data", "a list", default=[])
    for position, model in enumerate(data):
        _checked(url, f"data[{position}]", model, "an object")
        _optional(url, model, "id", "a string", f"data[{position}]")
    return data


def _is_number(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


_LEGAL: dict[str, Callable[[Any], Any]] = {
    "a string": lambda value: isinstance(value, str),
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list that is not empty": lambda value: isinstance(value, list) and value,
    "a count": lambda value: _is_number(value, (int,)) and 0 <= value < 2**63,
    "'stop' or 'length'": lambda value: value in ("stop", "length"),
    "a log-probability or null": lambda value: (
        value is None or (_is_number(value, (int, float)) and -1e30 < value <= ROUNDING)
    ),
}


def _checked(url: str, place: str, value: Any, kind: str) -> Any:
    if not _LEGAL[kind](value):
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        raise ServerFault(f"{url}: in the answer, {place} is {shown}, not {kind}")
    return value


def _optional(url: str, content: dict[str, Any], name: str, kind: str, place: str = "", default: Any = None) -> Any:
    value = content.get(name)
    return default if value is None else _checked(url, f"{place}.{name}" if place else name, value, kind)
