"""Logits in, logits out: the steps of a :class:`Decoding`, in its order.

The filters are those of Transformers, so that "top-p 0.9" means the same here and there, ties included. Temperature is a division by a
tensor, because KL guidance has one temperature per sequence. Top-n-sigma is ours. `logits_processors` gives the same steps to `generate`.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .decoding import Decoding

__all__ = ["apply_steps", "logits_processors", "pipeline", "top_n_sigma"]

Step = Callable[[Tensor], Tensor]
_NO_IDS = torch.empty((0, 0), dtype=torch.long)  # the filters used here do not look at the tokens so far


def top_n_sigma(scores_BV: Float[Tensor, "B V"], n: float | Float[Tensor, "B 1"]) -> Float[Tensor, "B V"]:
    """Keep ``z >= max(z) - n std(z)`` (Tang et al., 2024), with the standard deviation over the tokens still kept.

    Dividing the logits by a temperature scales both sides: this filter keeps the same tokens at every temperature.

    Examples:
      >>> top_n_sigma(torch.tensor([[0.0, 0.0, 0.0, 4.0]]), 1.0)
      tensor([[-inf, -inf, -inf, 4.]])
    """
    kept = scores_BV > -torch.inf
    finite = scores_BV.masked_fill(~kept, 0.0)
    count = kept.sum(-1, keepdim=True)
    mean = finite.sum(-1, keepdim=True) / count
    variance = ((scores_BV - mean) ** 2).masked_fill(~kept, 0.0).sum(-1, keepdim=True) / count
    floor = scores_BV.amax(-1, keepdim=True) - n * variance.sqrt()
    return scores_BV.masked_fill(scores_BV < floor, -torch.inf)


def pipeline(decoding: Decoding, *, device: torch.device | str = "cpu") -> list[tuple[str, Step | None]]:
    """The steps by name, in order; temperature, whose value may change from token to token, has no function of its own."""
    return [
        (name, None if name == "temperature" else _filter(name, value, str(device))) for name, value in decoding.steps
    ]


def logits_processors(decoding: Decoding, *, device: torch.device | str = "cpu") -> Any:
    """The steps, in their order, as a ``LogitsProcessorList`` for the ``generate`` of Transformers.

    Call ``model.generate(..., do_sample=True, top_k=0, logits_processor=logits_processors(decoding))``, without a temperature or a filter
    of its own: ``generate`` would apply those after these, and its default has ``top_k=50``.

    Greedy decoding and KL guidance are refused: the first is ``do_sample=False``, the second needs a second stream of the model.

    Examples:
      >>> [type(one).__name__ for one in logits_processors(Decoding.truncate_then_heat())]
      ['MinPLogitsWarper', 'TemperatureLogitsWarper']
    """
    if decoding.greedy or decoding.kl_sigma is not None:
        way = "call generate(do_sample=False)" if decoding.greedy else "use widen.sample.LocalEngine"
        raise ValueError(f"decoding {decoding.spec!r} has no list of processors; {way}")
    hf = _logits_process("a LogitsProcessorList")
    found = hf.LogitsProcessorList()
    for name, value in decoding.steps:
        if name == "temperature":
            found.append(hf.TemperatureLogitsWarper(float(value)))
        elif name == "top_n_sigma":
            found.append(_TopNSigma(value))
        else:
            found.append(_hugging_face(name, value, str(device)))
    return found


class _TopNSigma:
    """Top-n-sigma as `generate` calls a processor."""

    def __init__(self, n: float) -> None:
        self.n = n

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return top_n_sigma(scores, self.n)


def apply_steps(
    steps: list[tuple[str, Step | None]],
    scores_BV: Float[Tensor, "B V"],
    temperature_B: Float[Tensor, " B"],
) -> Float[Tensor, "B V"]:
    """The scores that a token is drawn from. Does not change its argument.

    The temperature is always a tensor: CUDA divides by a number through its reciprocal, and a guided temperature that happens to be T
    would then differ from T in the last bit.

    Examples:
      >>> scores = torch.tensor([[0.0, 1.0, 2.0]])
      >>> apply_steps(pipeline(Decoding(temperature=0.5, top_k=2)), scores, torch.tensor([0.5]))
      tensor([[-inf, 2., 4.]])
    """
    for _, step in steps:
        if step is not None:
            scores_BV = step(scores_BV)
        else:
            scores_BV = scores_BV / temperature_B[:, None]
    return scores_BV


def _filter(name: str, value: float, device: str) -> Step:
    """One filter as a function of the scores."""
    if name == "top_n_sigma":
        return lambda scores: top_n_sigma(scores, value)
    processor = _hugging_face(name, value, device)
    return lambda scores: processor(_NO_IDS, scores)


def _hugging_face(name: str, value: float, device: str) -> Any:
    hf = _logits_process(name)
    build: dict[str, Callable[[], Any]] = {
        "top_k": lambda: hf.TopKLogitsWarper(top_k=int(value)),
        "top_p": lambda: hf.TopPLogitsWarper(top_p=value),
        "min_p": lambda: hf.MinPLogitsWarper(min_p=value),
        "typical": lambda: hf.TypicalLogitsWarper(mass=value),
        "epsilon": lambda: hf.EpsilonLogitsWarper(epsilon=value),
        "eta": lambda: hf.EtaLogitsWarper(epsilon=value, device=device),
    }
    return build[name]()


def _logits_process(name: str) -> Any:
    try:
        from transformers.generation import logits_process
    except ImportError:
        raise ImportError(f"{name} is done by transformers: pip install 'widen[hf]'") from None
    return logits_process
