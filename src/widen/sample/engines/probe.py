"""Asks a server which settings it honours: servers silently ignore settings that they do not know.

A filter is tested at its limit. At top_k = 1, top_p -> 0 or min_p = 1 only one token is left, so hot requests with different seeds must
agree; without the filter they do not. This shows that the server reads the filter, not that its arithmetic is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from ..decoding import Decoding, Settings
from ..prompts import Prompt
from .completions import Choice, Dialect, body, choices, endpoint, listed_models, unsupported
from .http import Client, Refusal, ServerFault

TOKENS = 16
HOT = 2.0
_LIMITS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 1},
    "top_p": {"top_p": 1e-6},
    "min_p": {"min_p": 1.0},
    "min_p_first": {"min_p": 1.0, "order": "temperature_last"},
    "typical": {"typical": 1e-6},
    "epsilon": {"epsilon": 0.999},
    "top_n_sigma": {"top_n_sigma": 1e-6},
}


class Capabilities(NamedTuple):
    """What one server was seen to do."""

    dialect: Dialect
    model: str  # what to send as `model`; "" sends none
    name: str  # what the server calls the model it answered with
    n: bool
    logprobs: bool
    raw: bool  # the log-probabilities are the model's own, not those after the filters
    seed: bool
    honoured: frozenset[str]
    notes: tuple[str, ...]
    stop_tokens: Mapping[str, int] = MappingProxyType({})  # numbers of the stop strings that are one token


def stop_tokens(client: Client, url: str, model: str, stop: Iterable[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """The stop strings that are one token of a vLLM server, with their numbers, and what to note.

    vLLM looks for stop strings in the text, which leaves special tokens such as ``<|im_end|>`` out. It ends a sample at these by number.
    """
    found, named = {}, {"model": model} if model else {}
    try:
        for one in stop:
            ids = client.request(url, "/tokenize", named | {"prompt": one, "add_special_tokens": False}).get("tokens")
            if not isinstance(ids, list) or len(ids) != 1:
                continue
            if client.request(url, "/detokenize", named | {"tokens": ids}).get("prompt") == one:
                found[one] = int(ids[0])
    except Refusal:
        note = "this server does not show its tokens: a stop string that is a special token does not end a sample"
        return {}, (note,)
    return found, ()


def refuse_hidden_stops(client: Client, url: str, prompt: Prompt, *, model: str, settings: Settings) -> None:
    """Refuse a stop string that is a special token and does not end the samples of a llama.cpp server.

    llama.cpp looks for stop strings in the text, which leaves special tokens out. Of these only the model's end tokens end a sample.
    """
    greedy = replace(settings, decoding=Decoding(temperature=0.0), max_tokens=2)
    for one in settings.stop:
        ids = client.request(url, "/tokenize", {"content": one}).get("tokens")
        if not isinstance(ids, list) or len(ids) != 1:
            continue
        sent = body("llama.cpp", prompt, greedy, n=1, seed=0, model=model, logprobs=False)
        forced = client.request(url, endpoint(greedy), sent | {"logit_bias": [[ids[0], 1e4]]})
        if choices(forced, url)[0][0].finish != "stop":
            raise ValueError(
                f"{url} does not end a sample at {one!r}, a special token: leave it out of stop (--stop), or use a local model"
            )


def recognise(client: Client, url: str, prompt: Prompt, *, model: str = "") -> tuple[Dialect, str]:
    """The dialect, and the model's name for this server: by default the one that it lists first."""
    version, listing = {}, {}
    with suppress(Refusal, ServerFault):
        version = client.request(url, "/version")
    with suppress(Refusal, ServerFault):  # `transformers serve` cannot list its models without a network
        listing = client.request(url, "/v1/models")
    listed = listed_models(listing, url) or [{}]
    name = model or listed[0].get("id") or ""
    if "version" in version or listed[0].get("owned_by") == "vllm":
        return "vllm", name
    if listed[0].get("owned_by") == "llamacpp":
        return "llama.cpp", name
    # No server knows `widen_probe`: `transformers serve` lists the fields that it does not take.
    trial = {"prompt": prompt.text, "max_tokens": 1, "generation_config": "{}", "widen_probe": 1}
    try:
        client.request(url, "/v1/completions", trial | ({"model": name} if name else {}))
    except Refusal as refusal:
        if "widen_probe" in str(refusal) and "generation_config" not in str(refusal):
            return "transformers", name
    return "openai", name


def probe(
    client: Client, url: str, prompt: Prompt, *, dialect: Dialect, model: str, needs: frozenset[str], like: Settings
) -> Capabilities:
    """Test one server on a prompt of the job and on the filters that it needs; `dialect` and `model` come from `recognise`.

    Requests have the chat and the system message of the settings `like`.
    """

    def ask(
        decoding: Decoding, seed: int, *, n: int = 1, logprobs: bool = False, stop: tuple[str, ...] = ()
    ) -> tuple[list[Choice], str]:
        settings = replace(like, decoding=decoding, max_tokens=TOKENS, stop=stop)
        sent = body(dialect, prompt, settings, n=n, seed=seed, model=model, logprobs=logprobs)
        answer = client.request(url, endpoint(settings), sent)
        return choices(answer, url)[0], answer.get("model") or ""

    def texts(decoding: Decoding, *seeds: int) -> list[str]:
        """One request per seed, all at once: a seed must hold while other requests are under way."""
        with ThreadPoolExecutor(len(seeds)) as threads:
            try:
                return [found[0].text for found, _ in threads.map(lambda seed: ask(decoding, seed), seeds)]
            except KeyboardInterrupt:
                client.abort()  # otherwise the executor waits for the answers
                raise

    def honours(name: str) -> bool:
        if name == "eta":  # it has no such limit
            return True
        if name == "stop":  # three letters from the middle of the greedy text must end it early
            whole = first[0].text
            if len(whole) < TOKENS:
                return True  # too short to tell
            ended, _ = ask(Decoding(temperature=0.0), 0, stop=(whole[len(whole) // 2 :][:3],))
            return len(ended[0].text) < len(whole)
        decoding = Decoding(temperature=HOT, **_LIMITS[name])
        try:
            return not unsupported(dialect, decoding) and len(set(texts(decoding, 4, 5, 6))) == 1
        except Refusal:
            return False

    first, name = ask(Decoding(temperature=0.0), 0, logprobs=True)
    logprobs = first[0].logprob is not None
    hot = texts(Decoding(temperature=HOT), 1, 2, 3, 1, 2, 3)
    varied = len(set(hot)) > 1
    # llama.cpp refuses an n above its number of slots, and does not count the tokens of each sample.
    alone = dialect == "llama.cpp"
    pair = [] if alone else ask(Decoding(temperature=HOT), 7, n=2)[0]
    honoured = {one for one in needs if honours(one)} | ({"temperature"} if varied else set())
    raw = False
    if logprobs:
        # With one token left, the filtered probability of each token is 1; the model's own is not.
        sure, _ = ask(Decoding(temperature=HOT, top_p=1e-6), 8, logprobs=True)
        raw = sure[0].logprob is not None and sure[0].logprob < -1e-3
    seed = varied and hot[:3] == hot[3:]
    n = len(pair) == 2 and pair[0].text != pair[1].text
    notes = {
        "eta is sent; it has no limit at which its effect could be checked": "eta" in needs,
        "this server does not give the same text for the same seed: these samples cannot be drawn again": not seed,
        "this server seeds its whole process: a seed holds only for one request at a time": dialect == "transformers",
        "this server ignores n, or copies one sample: one request per sample": not n and not alone,
        "this server gives no log-probabilities": not logprobs,
        "this server's log-probabilities are those after the filters": logprobs and not raw,
        "the order of this server's filters is not known, nor whether it has cut-offs of its own": dialect == "openai",
    }
    said = tuple(note for note, holds in notes.items() if holds)
    return Capabilities(dialect, model, name or model, n, logprobs, raw, seed, frozenset(honoured), said)
