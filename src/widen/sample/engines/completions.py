"""The completions protocol: what is sent to each kind of server, and its answers as values.

All servers know `prompt`, `max_tokens`, `temperature`, `top_p`, `n` and `seed`; other settings have different names. `transformers serve`
takes its settings as a generation config: without one it decodes greedily at every temperature, unless the model's own config says
`do_sample` (seen with 5.22). llama.cpp takes the steps in any order (`samplers`); without them its own cut-offs apply, and its Mirostat
comes before all of them.
:mod:`widen.sample.engines.probe` tests which settings a server honours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ..chat import turns
from ..decoding import ORDERS, Decoding, Settings
from ..prompts import Prompt
from .http import ServerFault

ROUNDING = 1e-3  # a log-probability may exceed 0 by this much: servers compute in half precision

Dialect = Literal["vllm", "transformers", "llama.cpp", "openai"]

_OPENAI = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_NAMES: dict[str, dict[str, str]] = {
    "openai": _OPENAI,
    "llama.cpp": _OPENAI,
    "vllm": _OPENAI | {"top_n_sigma": "top_n_sigma"},
    "transformers": _OPENAI | {"typical": "typical_p", "epsilon": "epsilon_cutoff", "eta": "eta_cutoff"},
}

_NEUTRAL = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""For what a request leaves out, vLLM takes the model's own generation_config.json."""
_NEUTRAL_LLAMA_CPP = {"mirostat": 0, "dynatemp_range": 0.0, "reasoning_format": "none"}
"""What `samplers` leaves as the server was started. Without the last, a model's thoughts are not part of the text."""


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
    if dialect == "llama.cpp":
        return ""  # it takes any order
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
    extra = plugin_arguments(decoding) if dialect == "vllm" else {}
    plugged = {"temperature"} | {name.removesuffix("_first") for name in extra}
    filters = {_NAMES[dialect][name]: value for name, value in decoding.steps if name not in plugged}
    if dialect == "transformers":
        config: dict[str, Any] = {"do_sample": not decoding.greedy, "max_new_tokens": settings.max_tokens}
        if not decoding.greedy:
            config |= {"temperature": decoding.temperature, "top_k": 0, "top_p": 1.0} | filters
        return sent | {"generation_config": json.dumps(config)}
    sent |= {"temperature": decoding.temperature, "n": n} | ({"logprobs": settings.chat or 1} if logprobs else {})
    if dialect == "llama.cpp":
        steps = [name for name, _ in decoding.steps]
        steps = steps if "temperature" in steps else [*steps, "temperature"]
        return sent | filters | _NEUTRAL_LLAMA_CPP | {"samplers": steps}
    sent["top_p"] = 1.0
    if dialect == "vllm":
        sent |= {"return_token_ids": True, **_NEUTRAL}
        if numbers := [stop_tokens[one] for one in settings.stop if stop_tokens and one in stop_tokens]:
            sent["stop_token_ids"] = numbers
        if extra:
            sent["vllm_xargs"] = extra
    return sent | filters


class Choice(NamedTuple):
    """One completion as the server gave it."""

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int | None
    logprob: float | None  # of the tokens that the server lists
    complete: bool  # whether these are all
    ids: tuple[int, ...] | None


def choices(answer: dict[str, Any], url: str) -> tuple[list[Choice], int | None]:
    """The completions of an answer, in the order of their indices, and the number of tokens in the prompt.

    The answer may hold fewer completions than were asked for. An answer without any is a fault.
    """
    _check(url, answer, _ANSWER)
    usage, found = answer.get("usage") or {}, {}
    if not answer.get("choices"):
        raise _fault(url, "choices", answer.get("choices"), "a list that is not empty")
    alone = len(answer["choices"]) == 1
    for position, choice in enumerate(answer["choices"]):
        index = position if choice.get("index") is None else choice["index"]
        if index in found:
            raise ServerFault(f"{url}: in the answer, index {index} occurs twice among the choices")
        found[index] = _choice(url, choice, f"choices[{position}]", usage.get("completion_tokens") if alone else None)
    return [found[index] for index in sorted(found)], usage.get("prompt_tokens")


def _choice(url: str, choice: dict[str, Any], place: str, num_tokens: int | None) -> Choice:
    chat = choice.get("message") is not None
    text: Any = choice["message"].get("content") if chat else choice.get("text")
    _check(url, text, "a string", f"{place}.message.content" if chat else f"{place}.text")
    _check(url, choice.get("finish_reason"), "'stop' or 'length'", f"{place}.finish_reason")
    logprobs, ids = choice.get("logprobs") or {}, choice.get("token_ids") or ()
    scores = [*(logprobs.get("token_logprobs") or ()), *(one.get("logprob") for one in logprobs.get("content") or ())]
    known = bool(scores) and None not in scores
    if ids:
        num_tokens = len(ids)
    elif num_tokens is None and known:
        num_tokens = len(scores)
    # llama.cpp leaves out tokens that are part of a character, and some of those at a stop string.
    complete = known and len(scores) == num_tokens
    logprob = float(sum(scores)) if known else None
    return Choice(text, choice["finish_reason"], num_tokens, logprob, complete, tuple(ids) or None)


def listed_models(answer: dict[str, Any], url: str) -> list[dict[str, Any]]:
    """The entries of ``/v1/models``; each `id` is a string."""
    _check(url, answer, {"data": [{"id": "a string"}]})
    return answer.get("data") or []


_LOGPROB = "a log-probability or null"
_CHOICE = {
    "index": "a count",
    "message": {},
    "token_ids": ["a count"],
    "logprobs": {"token_logprobs": [_LOGPROB], "content": [{"logprob": _LOGPROB}]},
}
_ANSWER = {
    "model": "a string",
    "usage": {"prompt_tokens": "a count", "completion_tokens": "a count"},
    "choices": [_CHOICE],
}
"""The shape of an answer: objects with their optional fields, lists of one shape, and kinds of values."""


_LEGAL: dict[str, Callable[[Any], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "an object": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a count": lambda value: type(value) is int and 0 <= value < 2**63,
    "'stop' or 'length'": lambda value: value in ("stop", "length"),
    _LOGPROB: lambda value: value is None or (type(value) in (int, float) and -1e30 < value <= ROUNDING),
}


def _check(url: str, value: Any, shape: Any, place: str = "") -> None:
    """Raise a ServerFault if the value does not have the shape. Missing fields and null are allowed."""
    kind = "an object" if isinstance(shape, dict) else "a list" if isinstance(shape, list) else shape
    if not _LEGAL[kind](value):
        raise _fault(url, place, value, kind)
    if isinstance(shape, list):
        for position, one in enumerate(value):
            _check(url, one, shape[0], f"{place}[{position}]")
    elif isinstance(shape, dict):
        for name, inner in shape.items():
            if value.get(name) is not None:
                _check(url, value[name], inner, f"{place}.{name}".lstrip("."))


def _fault(url: str, place: str, value: Any, kind: str) -> ServerFault:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return ServerFault(f"{url}: in the answer, {place} is {shown}, not {kind}")
