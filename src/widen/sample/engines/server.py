"""Samples from servers that speak the OpenAI completions protocol; tested against vLLM, llama.cpp and `transformers serve`.

At the start each server is asked what it honours. A setting that it ignores is refused; one that only costs reproducibility is noted in the
file. The seed of a request is a function of (seed, prompt, temperature, first index).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import NamedTuple

from ..chat import check_chat, cut_at
from ..decoding import Settings
from ..engine import Drawn, Have, Identity, Sample, nothing
from ..philox import key
from ..prompts import Prompt
from .completions import Choice, body, choices, endpoint, needs, unsupported
from .http import LIMIT, Client, Refusal, ServerFault
from .pool import Notice, Pool
from .probe import Capabilities, probe, recognise, refuse_hidden_stops, stop_tokens


class _Task(NamedTuple):
    """Samples of one prompt that one request asks for."""

    settings: Settings
    prompt: Prompt
    indices: tuple[int, ...]


class ServerEngine:
    """Servers of one model.

    Args:
      urls: base URLs, with or without ``/v1``.
      model: the name to ask for; by default what the server lists first.
      in_flight: number of requests at a time, over all servers.
      per_request: number of samples per request, if the server honours `n`.
      timeout: seconds after which a request without a complete answer is sent again.
      max_failures, back_off, notice: see :class:`widen.sample.engines.pool.Pool`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        model: str = "",
        in_flight: int = 64,
        per_request: int = 8,
        timeout: float = 600.0,
        max_failures: int = 6,
        back_off: float = 0.5,
        notice: Notice | None = None,
    ) -> None:
        if in_flight < 1 or per_request < 1:
            raise ValueError(f"in_flight={in_flight}, per_request={per_request}: both must be at least 1")
        self.pool = Pool(urls, max_failures=max_failures, back_off=back_off, notice=notice)
        self.model, self.in_flight, self.per_request, self.timeout = model, in_flight, per_request, timeout
        self.capabilities: dict[str, Capabilities] = {}

    def identity(self) -> Identity:
        """The model that the servers answered with; call `check` first."""
        if not self.capabilities:
            raise ValueError("call check() first: the server must be asked for its model")
        found = list(self.capabilities.values())
        notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
        name = found[0].name
        details = {"dialect": found[0].dialect, "servers": len(found), "per_request": self._batch()}
        return Identity(engine="server", name=name, model={"name": name}, details=details, notes=notes)

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Test every server on these settings, and refuse what it does not do."""
        check_chat(settings, prompts)
        for server in self.pool.alive:
            for trial in range(3):
                try:
                    self._check_server(server.url, settings, prompts)
                    break
                except ServerFault as fault:
                    if trial == 2:
                        self.pool.drop(server, f"it did not answer at the start: {fault}")
                    else:
                        time.sleep(max(fault.wait, self.pool.back_off * 2**trial))
        self.pool.check()
        names = {found.name for found in self.capabilities.values()}
        if len(names) > 1:
            raise ValueError(
                f"the servers hold different models: {', '.join(sorted(names))}; sample them one after the other"
            )

    def _check_server(self, url: str, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        client = Client(timeout=min(60.0, self.timeout))
        wanted = frozenset[str]().union(*(needs(s.decoding) | ({"stop"} if s.stop else set()) for s in settings))
        dialect, model = recognise(client, url, prompts[0], model=self.model)
        for setting in settings:
            if why := unsupported(dialect, setting.decoding):
                raise ValueError(f"{setting.decoding.spec!r} on {url} ({dialect}): {why}")
        if dialect == "transformers" and any(p.ids is not None for p in prompts):
            raise ValueError(f"{url} takes prompts as text, not as token ids")
        try:
            found = probe(client, url, prompts[0], dialect=dialect, model=model, needs=wanted, like=settings[0])
        except Refusal as refusal:
            if settings[0].chat:
                raise ValueError(f"{url} does not take a conversation at {endpoint(settings[0])}: {refusal}") from None
            raise
        if not all(s.decoding.greedy for s in settings) and "temperature" not in found.honoured:
            raise ValueError(f"{url} gives one and the same text at temperature 2 under every seed: it does not sample")
        if ignored := wanted - found.honoured:
            plugged = ignored & {"min_p_first", "top_n_sigma"}
            hint = "start it with the processors of widen.sample.vllm_plugin, or " if plugged else ""
            raise ValueError(
                f"{url} ignores {', '.join(sorted(ignored))}: its samples would not be what the settings say; {hint}use a local model"
            )
        if dialect == "vllm" and "stop" in wanted:
            every = dict.fromkeys(one for setting in settings for one in setting.stop)
            numbers, notes = stop_tokens(client, url, model, every)
            found = found._replace(stop_tokens=numbers, notes=(*found.notes, *notes))
        if dialect == "llama.cpp":
            for setting in settings:
                refuse_hidden_stops(client, url, prompts[0], model=model, settings=setting)
        self.capabilities[url] = found

    def _batch(self) -> int:
        return self.per_request if all(found.n for found in self.capabilities.values()) else 1

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples as they arrive. All that has arrived is yielded before an error is raised."""
        client, tasks = Client(timeout=self.timeout), self._tasks(prompts, settings, num, have)
        under_way: set[Future[Drawn]] = set()
        self.pool.run(True)
        threads = ThreadPoolExecutor(self.in_flight)
        try:
            while True:
                room = 2 * self.in_flight - len(under_way)  # twice, so that no thread waits while samples are written
                under_way |= {threads.submit(self._fetch, client, task) for task in islice(tasks, room)}
                if not under_way:
                    return
                try:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                except KeyboardInterrupt:
                    yield from _arrived(under_way)
                    raise
                yield from _arrived(done)
                if error := next(filter(None, (future.exception() for future in done)), None):
                    self.pool.run(False)  # nobody gets a new server, but answers under way are kept
                    threads.shutdown(cancel_futures=True)
                    yield from _arrived(under_way)
                    raise error
        finally:
            self.pool.run(False)
            client.abort()
            threads.shutdown(cancel_futures=True)

    def _tasks(self, prompts: Sequence[Prompt], settings: Sequence[Settings], num: int, have: Have) -> Iterator[_Task]:
        for setting in settings:
            size = 1 if setting.decoding.greedy else self._batch()  # vLLM refuses n > 1 for greedy decoding
            for prompt in prompts:
                for start in range(0, num, size):
                    block = range(start, min(start + size, num))
                    # A block with any sample missing is asked for whole: the seed belongs to the block.
                    if not all(have(setting, prompt.id, i) for i in block):
                        yield _Task(setting, prompt, tuple(block))

    def _fetch(self, client: Client, task: _Task) -> Drawn:
        """All samples of a task; those that a server leaves out are asked for again."""
        samples: list[Sample] = []
        tries = 0
        while len(samples) < len(task.indices):
            left = task.indices[len(samples) :]
            try:
                with self.pool.lease() as server:
                    given, prompt_tokens = self._send(client, server.url, task, left)
            except ServerFault as fault:
                tries += 1
                if tries > 2 * self.pool.max_failures:
                    name = task.prompt.id
                    raise ServerFault(f"prompt {name!r}: {tries} requests failed, the last: {fault}") from None
                continue
            except Refusal as refusal:
                raise Refusal(f"prompt {task.prompt.id!r}: {refusal}") from None
            samples += [self._sample(task, i, choice, prompt_tokens) for i, choice in zip(left, given, strict=False)]
        return Drawn(task.settings, samples)

    def _send(self, client: Client, url: str, task: _Task, indices: tuple[int, ...]) -> tuple[list[Choice], int | None]:
        found, settings, prompt = self.capabilities[url], task.settings, task.prompt
        seed = key(settings.seed, f"{prompt.id}#{indices[0]}", settings.decoding.temperature) >> 33  # 31 bits
        sent = body(
            found.dialect,
            prompt,
            settings,
            n=len(indices),
            seed=seed,
            model=found.model,
            logprobs=found.logprobs,
            stop_tokens=found.stop_tokens,
        )
        limit = LIMIT + 4096 * len(indices) * settings.max_tokens  # a token with its log-probability takes far less
        return choices(client.request(url, endpoint(settings), sent, limit=limit), url)

    def _sample(self, task: _Task, index: int, choice: Choice, prompt_tokens: int | None) -> Sample:
        raw = any(found.raw for found in self.capabilities.values())
        plain = not task.settings.decoding.greedy and not task.settings.decoding.steps
        logprob = choice.logprob if choice.complete else None
        whole = cut_at(choice.text, task.settings.stop)  # some servers leave the stop string in the text
        return Sample(
            prompt=task.prompt.id,
            index=index,
            text=choice.text if whole is None else whole,
            finish=choice.finish if whole is None else "stop",
            prompt_tokens=prompt_tokens,
            num_tokens=choice.num_tokens,
            logq=logprob if raw or plain else None,
            sampler=logprob if plain or not raw else None,
            ids=choice.ids,
        )


def _arrived(futures: set[Future[Drawn]]) -> Iterator[Drawn]:
    """The samples of the requests that have succeeded."""
    for future in futures:
        if future.done() and not future.cancelled() and future.exception() is None:
            yield future.result()
