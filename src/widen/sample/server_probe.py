"""What a server does with what it is asked, found out by asking: servers drop settings they do not know without a word.

The test of a filter is its limit: at top_k = 1, top_p -> 0, min_p = 1 nothing is left to chance, so hot requests under different seeds
must agree, where without the filter they do not. That shows that the filter is read, not that its arithmetic is right.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from .decoding import Decoding
from .prompts import Prompt
from .server_answer import Choice, choices, listed_models
from .server_dialect import Dialect, body, unsupported
from .server_http import Refusal, ServerFault, request

__all__ = ["Capabilities", "probe", "recognise"]

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


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What one server was seen to do."""

    dialect: Dialect
    model: str  # what to send as `model`; "" sends none
    name: str  # what the server calls the model it answered with
    n: bool = False
    logprobs: bool = False
    raw: bool = False  # the log-probabilities are the model's own, not those of the filtered law
    seed: bool = False
    honoured: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=())


def probe(
    url: str,
    prompt: Prompt,
    *,
    dialect: Dialect,
    model: str = "",
    needs: frozenset[str] = frozenset(),
    timeout: float = 60.0,
) -> Capabilities:
    """Ask one server.

    Args:
      prompt: what to continue; one of the job's own, so that it means something to the model.
      dialect, model: from `recognise`.
      needs: what the job uses (:func:`widen.sample.server_dialect.needs`); nothing else is tested.
    """
    found = Capabilities(dialect=dialect, model=model, name=model)
    ask = _Asker(url, prompt, found, timeout)
    first, name = ask.named(Decoding(temperature=0.0), seed=0, logprobs=True)
    hot = ask.many(Decoding(temperature=HOT), seeds=(1, 2, 3, 1, 2, 3))
    varied = len({c.text for c in hot}) > 1
    seed = varied and [c.text for c in hot[:3]] == [c.text for c in hot[3:]]
    pair, _ = ask.named(Decoding(temperature=HOT), seed=7, n=2)
    n = len(pair) == 2 and pair[0].text != pair[1].text  # two copies of one sample are one sample
    found = replace(found, name=name or model, n=n, seed=seed, logprobs=first[0].logprob is not None)
    honoured = {name for name in needs if name == "eta" or ask.agrees(Decoding(temperature=HOT, **_LIMITS[name]))}
    if varied:
        honoured.add("temperature")
    if found.logprobs:
        # Where nothing is left to chance the filtered law gives every token probability 1; the model's own does not.
        sure, _ = ask.named(Decoding(temperature=HOT, top_p=1e-6), seed=8, logprobs=True)
        found = replace(found, raw=sure[0].logprob is not None and sure[0].logprob < -1e-3)
    return replace(found, honoured=frozenset(honoured), notes=_notes(found, needs))


def _notes(found: Capabilities, needs: frozenset[str]) -> tuple[str, ...]:
    """What the reader of the samples must know."""
    said = {
        "eta is sent; it has no limit at which its effect could be checked": "eta" in needs,
        "this server does not give the same text for the same seed: these samples cannot be drawn again": not found.seed,
        "this server seeds its whole process: a seed holds only while no other request is under way": found.dialect
        == "transformers",
        "this server ignores n, or copies one sample: one request a sample": not found.n,
        "this server gives no log-probabilities": not found.logprobs,
        "this server's log-probabilities are those of the filtered law": found.logprobs and not found.raw,
        "in which order this server applies its filters is not known": found.dialect == "openai",
    }
    return tuple(note for note, holds in said.items() if holds)


class _Asker:
    """Small requests to one server."""

    def __init__(self, url: str, prompt: Prompt, found: Capabilities, timeout: float) -> None:
        self.url, self.prompt, self.found, self.timeout = url, prompt, found, timeout
        self.cancel = threading.Event()

    def named(self, decoding: Decoding, *, seed: int, n: int = 1, logprobs: bool = False) -> tuple[list[Choice], str]:
        sent = body(
            self.found.dialect,
            self.prompt,
            decoding,
            max_tokens=TOKENS,
            n=n,
            seed=seed,
            model=self.found.model,
            logprobs=logprobs,
        )
        answer = request(self.url, "/v1/completions", sent, timeout=self.timeout, cancel=self.cancel)
        return choices(answer, self.url)[0], answer.get("model") or ""

    def many(self, decoding: Decoding, *, seeds: tuple[int, ...]) -> list[Choice]:
        """One request per seed, all at once: a seed that holds only while nobody else asks is worth little."""
        with ThreadPoolExecutor(len(seeds)) as pool:
            try:
                return [found[0] for found, _ in pool.map(lambda seed: self.named(decoding, seed=seed), seeds)]
            except KeyboardInterrupt:
                self.cancel.set()  # or else the pool would wait for the answers
                raise

    def agrees(self, decoding: Decoding) -> bool:
        """Whether nothing is left to chance; a server that does not know the setting may also say so."""
        if unsupported(self.found.dialect, decoding):
            return False
        try:
            return len({c.text for c in self.many(decoding, seeds=(4, 5, 6))}) == 1
        except Refusal:
            return False


def recognise(url: str, prompt: Prompt, *, model: str = "", timeout: float = 60.0) -> tuple[Dialect, str]:
    """The dialect, and the model's name as this server wants it: by default the one that it lists first."""
    try:
        version = request(url, "/version", timeout=timeout)
    except (Refusal, ServerFault):
        version = {}
    try:
        answer = request(url, "/v1/models", timeout=timeout)
    except (Refusal, ServerFault):  # `transformers serve` cannot list its models without a network, and needs no name
        answer = {}
    listed = listed_models(answer, url) or [{}]
    name = model or listed[0].get("id") or ""
    if "version" in version or listed[0].get("owned_by") == "vllm":
        return "vllm", name
    # One word that no server knows: `transformers serve` names the words it does not take.
    trial = {"prompt": prompt.text, "max_tokens": 1, "generation_config": "{}", "widen_probe": 1} | (
        {"model": name} if name else {}
    )
    try:
        request(url, "/v1/completions", trial, timeout=timeout)
    except Refusal as refusal:
        if "widen_probe" in str(refusal) and "generation_config" not in str(refusal):
            return "transformers", name
    return "openai", name
