"""What a completions request looks like to each kind of server, and what its answer holds.

They agree on `prompt`, `max_tokens`, `temperature`, `top_p`, `n`, `seed`; beyond that each has its own words. `transformers serve`
needs its settings as a generation config: by itself it stays greedy at every temperature unless the model's own config says `do_sample`
(seen with 5.22). What a server makes of them is asked in :mod:`widen.sample.server_probe`, not assumed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from .decoding import ORDERS, Decoding
from .prompts import Prompt
from .server_http import ServerFault

__all__ = ["Choice", "Dialect", "body", "choices", "unsupported"]

Dialect = Literal["vllm", "transformers", "openai"]

_WORDS: dict[str, dict[str, str]] = {
    "vllm": {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "top_n_sigma": "top_n_sigma"},
    "openai": {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p"},
    "transformers": {
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "typical": "typical_p",
        "epsilon": "epsilon_cutoff",
        "eta": "eta_cutoff",
    },
}


def unsupported(dialect: Dialect, decoding: Decoding) -> str:
    """Why such a server cannot draw this way, or "" where it can."""
    if decoding.kl_sigma is not None:
        return "KL guidance needs two streams, which no server offers: use a local model"
    for name, _ in decoding.steps:
        if name != "temperature" and name not in _WORDS[dialect]:
            return f"it has no {name}: use a local model"
    names = [name for name, _ in decoding.steps]
    named = "vllm" if dialect == "vllm" else "temperature_first"
    theirs = sorted(names, key=ORDERS[named].index)
    if names != theirs:
        return (
            f"its order is {' > '.join(theirs)}, not {' > '.join(names)}: ask for order={named}, or use a local model"
        )
    return ""


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
    """The request."""
    sent: dict[str, Any] = {
        "prompt": list(prompt.ids) if prompt.ids is not None else prompt.text,
        "max_tokens": max_tokens,
    }
    if model:
        sent["model"] = model
    filters = {_WORDS[dialect][name]: value for name, value in decoding.steps if name != "temperature"}
    if dialect == "transformers":
        config: dict[str, Any] = {"do_sample": not decoding.greedy, "max_new_tokens": max_tokens}
        if not decoding.greedy:
            config |= {"temperature": decoding.temperature, "top_k": 0, "top_p": 1.0} | filters
        return sent | {"seed": seed, "generation_config": json.dumps(config)}
    sent |= {"temperature": decoding.temperature, "n": n, "seed": seed}
    if logprobs:
        sent["logprobs"] = 1
    if dialect == "vllm":
        sent["return_token_ids"] = True
        if "top_n_sigma" in filters:
            sent["vllm_xargs"] = {"top_n_sigma": filters.pop("top_n_sigma")}
    return sent | filters


@dataclass(frozen=True)
class Choice:
    """One completion as the server gave it."""

    text: str
    finish: Literal["stop", "length"]
    num_tokens: int | None
    logprob: float | None
    ids: tuple[int, ...] | None


def choices(answer: dict[str, Any], url: str) -> tuple[list[Choice], int | None]:
    """The completions of an answer, however many came, and the prompt's length; an answer without any is a fault."""
    given = answer.get("choices")
    if not isinstance(given, list) or not given:
        raise ServerFault(f"{url}: the answer has no choices")
    usage = answer.get("usage") or {}
    alone = usage.get("completion_tokens") if len(given) == 1 else None
    found = []
    for choice in sorted(given, key=lambda choice: choice.get("index", 0)):
        text, finish = choice.get("text"), choice.get("finish_reason")
        if not isinstance(text, str) or finish not in ("stop", "length"):
            raise ServerFault(f"{url}: a choice ended with {finish!r} and text of type {type(text).__name__}")
        ids = tuple(choice["token_ids"]) if choice.get("token_ids") else None
        scores = (choice.get("logprobs") or {}).get("token_logprobs")
        known = isinstance(scores, list) and scores and all(isinstance(s, (int, float)) for s in scores)
        count = (
            len(ids)
            if ids is not None
            else (alone if alone is not None else (len(scores) if known and scores else None))
        )
        found.append(Choice(text, finish, count, float(sum(scores)) if known and scores else None, ids))
    return found, usage.get("prompt_tokens")
