"""Samples from servers that speak the OpenAI completions protocol: many requests in flight, over one or many base URLs.

Tested against vLLM and `transformers serve`. A server is asked at the start what it honours; what it does not honour is refused, or, where
it only costs reproducibility, written into the file. The seed of a request is a function of (seed, prompt, temperature, first index).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .decoding import Settings
from .engine import Drawn, Have, Identity, Sample, nothing
from .philox import key
from .prompts import Prompt
from .server_answer import Choice, choices
from .server_dialect import body, needs, unsupported
from .server_http import LIMIT, Lines, Refusal, ServerFault
from .server_pool import AllServersDown, Notice, Pool
from .server_probe import Capabilities, probe, recognise

__all__ = ["ServerEngine"]


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
      timeout: seconds after which a request without a complete answer is given up and sent again.
      max_failures, back_off, notice: see :class:`widen.sample.server_pool.Pool`.
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
        """What the servers answered with; `check` must have been called."""
        if not self.capabilities:
            raise ValueError("call check() first: a server's model is known once it has been asked")
        found = list(self.capabilities.values())
        notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
        details = {"dialect": found[0].dialect, "servers": len(found), "per_request": self._batch()}
        return Identity(
            engine="server", name=found[0].name, model={"name": found[0].name}, details=details, notes=notes
        )

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Ask every server what it does with what these settings need; refuse what it does not do."""
        wanted = frozenset[str]().union(*(needs(s.decoding) for s in settings))
        for server in self.pool.alive:
            for trial in range(3):
                try:
                    self._ask(server.url, settings, prompts, wanted)
                    break
                except ServerFault as fault:
                    if trial == 2:
                        self.pool.drop(server, f"it did not answer at the start: {fault}")
                    else:
                        time.sleep(max(fault.wait, self.pool.back_off * 2**trial))
        if not self.pool.alive:
            raise AllServersDown("; ".join(f"{s.url} was dropped ({s.dropped})" for s in self.pool.servers))
        names = {found.name for found in self.capabilities.values()}
        if len(names) > 1:
            raise ValueError(
                f"the servers hold different models: {', '.join(sorted(names))}; sample them one after the other"
            )

    def _ask(self, url: str, settings: Sequence[Settings], prompts: Sequence[Prompt], wanted: frozenset[str]) -> None:
        dialect, model = recognise(url, prompts[0], model=self.model, timeout=min(60.0, self.timeout))
        for setting in settings:
            if why := unsupported(dialect, setting.decoding):
                raise ValueError(f"{setting.decoding.spec!r} on {url} ({dialect}): {why}")
        if dialect == "transformers" and any(p.ids is not None for p in prompts):
            raise ValueError(f"{url} takes prompts as text, not as token ids")
        found = probe(url, prompts[0], dialect=dialect, model=model, needs=wanted, timeout=min(60.0, self.timeout))
        if not all(s.decoding.greedy for s in settings) and "temperature" not in found.honoured:
            raise ValueError(f"{url} gives one and the same text at temperature 2 under every seed: it does not sample")
        if ignored := wanted - found.honoured:
            plugged = ignored & {"min_p_first", "top_n_sigma"}
            hint = "start it with the processors of widen.sample.vllm_plugin, or " if plugged else ""
            raise ValueError(
                f"{url} ignores {', '.join(sorted(ignored))}: its samples would not be what the settings say; {hint}use a local model"
            )
        self.capabilities[url] = found

    def _batch(self) -> int:
        return self.per_request if all(found.n for found in self.capabilities.values()) else 1

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """Samples as they come back. What has come is handed out before an error is raised."""
        self.pool.start()
        tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        count = 0
        for setting in settings:
            for prompt in prompts:
                size = (
                    1 if setting.decoding.greedy else self._batch()
                )  # vLLM refuses n > 1 where all n would be the same
                for start in range(0, num, size):
                    block = range(start, min(start + size, num))
                    # A block with any sample missing is asked for whole: the seed belongs to the block.
                    if not all(have(setting, prompt.id, i) for i in block):
                        tasks.put(_Task(setting, prompt, tuple(block)))
                        count += 1
        done: queue.SimpleQueue[Drawn | BaseException] = queue.SimpleQueue()
        stop, cancel = threading.Event(), threading.Event()  # take no more tasks; give up the requests under way
        workers = [
            threading.Thread(target=self._work, args=(tasks, done, stop, cancel), daemon=True)
            for _ in range(min(self.in_flight, count))
        ]
        for worker in workers:
            worker.start()
        try:
            yield from self._results(done, count, stop, workers)
        finally:
            stop.set()
            cancel.set()
            self.pool.stop()
            patience = time.monotonic() + 1.0  # a thread that still connects is a daemon and may be left alone
            for worker in workers:
                worker.join(max(0.0, patience - time.monotonic()))

    def _results(
        self,
        done: queue.SimpleQueue[Drawn | BaseException],
        count: int,
        stop: threading.Event,
        workers: list[threading.Thread],
    ) -> Iterator[Drawn]:
        for _ in range(count):
            try:
                result = done.get()
                if isinstance(result, BaseException):
                    stop.set()
                    self.pool.stop()  # nobody waits for a server any more; answers under way are still worth having
                    for worker in workers:
                        worker.join()
            except KeyboardInterrupt as interrupt:
                result = interrupt
            if isinstance(result, BaseException):
                while not done.empty():
                    if isinstance(late := done.get(), Drawn):
                        yield late
                raise result
            yield result

    def _work(
        self,
        tasks: queue.SimpleQueue[_Task],
        done: queue.SimpleQueue[Drawn | BaseException],
        stop: threading.Event,
        cancel: threading.Event,
    ) -> None:
        with Lines(timeout=self.timeout, cancel=cancel) as lines:
            while not stop.is_set():
                try:
                    task = tasks.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put(Drawn(task.settings, self._fetch(lines, task, stop)))
                except BaseException as error:
                    done.put(error)
                    return

    def _fetch(self, lines: Lines, task: _Task, stop: threading.Event) -> list[Sample]:
        """All samples of a task: what a server leaves out is asked for again."""
        samples: list[Sample] = []
        tries = 0
        while len(samples) < len(task.indices):
            left = task.indices[len(samples) :]
            try:
                with self.pool.lease() as server:
                    given, prompt_tokens = self._send(lines, server.url, task, left)
            except ServerFault as fault:
                tries += 1
                if stop.is_set() or tries > 2 * self.pool.max_failures:
                    raise ServerFault(
                        f"prompt {task.prompt.id!r}: {tries} requests failed, the last: {fault}"
                    ) from None
                continue
            except Refusal as refusal:
                raise Refusal(f"prompt {task.prompt.id!r}: {refusal}") from None
            samples += [
                self._sample(task, index, choice, prompt_tokens) for index, choice in zip(left, given, strict=False)
            ]
        return samples

    def _send(self, lines: Lines, url: str, task: _Task, indices: tuple[int, ...]) -> tuple[list[Choice], int | None]:
        found, decoding = self.capabilities[url], task.settings.decoding
        seed = (
            key(task.settings.seed, f"{task.prompt.id}#{indices[0]}", decoding.temperature) >> 33
        )  # 31 bits: what all take
        sent = body(
            found.dialect,
            task.prompt,
            decoding,
            max_tokens=task.settings.max_tokens,
            n=len(indices),
            seed=seed,
            model=found.model,
            logprobs=found.logprobs,
        )
        limit = (
            LIMIT + 4096 * len(indices) * task.settings.max_tokens
        )  # a token with its log-probability takes far less
        return choices(lines.request(url, "/v1/completions", sent, limit=limit), url)

    def _sample(self, task: _Task, index: int, choice: Choice, prompt_tokens: int | None) -> Sample:
        raw = any(found.raw for found in self.capabilities.values())
        plain = not task.settings.decoding.greedy and not task.settings.decoding.steps
        return Sample(
            prompt=task.prompt.id,
            index=index,
            text=choice.text,
            finish=choice.finish,
            prompt_tokens=prompt_tokens,
            num_tokens=choice.num_tokens,
            logq=choice.logprob if raw or plain else None,
            sampler=choice.logprob if plain or not raw else None,
            ids=choice.ids,
        )
