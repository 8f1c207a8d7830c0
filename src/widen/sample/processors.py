"""Logits in, logits out: the steps of a :class:`Decoding`, in its order. The filters are those of Transformers, ties included.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .decoding import Decoding

Processor = Callable[[Tensor, Tensor], Tensor]  # (token ids so far, scores) -> scores
_NO_IDS = torch.empty((0, 0), dtype=torch.long)  # these filters do not look at the tokens so far


def top_n_sigma(scores_BV: Float[Tensor, "B V"], n: float | Float[Tensor, "B 1"]) -> Float[Tensor, "B V"]:
    """Keep ``z >= max(z) - n std(z)`` (Tang et al., 2024), with the standard deviation over the tokens still kept.

    A temperature scales both sides, so this filter keeps the same tokens at every temperature.

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


def pipeline(decoding: Decoding, *, device: torch.device | str = "cpu") -> list[Processor | None]:
    """The steps in order. None is the temperature, whose value may change from token to token."""
    return [None if name == "temperature" else _processor(name, value, str(device)) for name, value in decoding.steps]


def apply_steps(
    steps: list[Processor | None], scores_BV: Float[Tensor, "B V"], temperature_B: Float[Tensor, " B"]
) -> Float[Tensor, "B V"]:
    """The scores that a token is drawn from; the argument is not changed.

    The temperature is always a tensor: CUDA divides by a Python number through its reciprocal, which can differ in the last bit.

    Examples:
      >>> scores = torch.tensor([[0.0, 1.0, 2.0]])
      >>> apply_steps(pipeline(Decoding(temperature=0.5, top_k=2)), scores, torch.tensor([0.5]))
      tensor([[-inf, 2., 4.]])
    """
    for step in steps:
        scores_BV = scores_BV / temperature_B[:, None] if step is None else step(_NO_IDS, scores_BV)
    return scores_BV


def logits_processors(decoding: Decoding, *, device: torch.device | str = "cpu") -> Any:
    """The steps, in their order, as a ``LogitsProcessorList`` for the ``generate`` of Transformers.

    Call ``model.generate(..., do_sample=True, temperature=1.0, top_k=0, top_p=1.0, logits_processor=logits_processors(decoding))``.
    For what a call leaves out, ``generate`` takes the model's generation_config.json, or ``top_k=50``, and applies it after these steps.
    Greedy decoding and KL guidance are refused.

    Examples:
      >>> [type(one).__name__ for one in logits_processors(Decoding.truncate_then_heat())]
      ['MinPLogitsWarper', 'TemperatureLogitsWarper']
    """
    if decoding.greedy or decoding.kl_sigma is not None:
        way = "call generate(do_sample=False)" if decoding.greedy else "use widen.sample.LocalEngine"
        raise ValueError(f"decoding {decoding.spec!r} has no list of processors; {way}")
    found = _logits_process("a LogitsProcessorList").LogitsProcessorList()
    found.extend(_processor(name, value, str(device)) for name, value in decoding.steps)
    return found


def _processor(name: str, value: float, device: str) -> Processor:
    if name == "top_n_sigma":
        return lambda _, scores: top_n_sigma(scores, value)
    # The class of top_p is TopPLogitsWarper, and so on; the value is the first argument of each.
    warper = getattr(_logits_process(name), f"{name.title().replace('_', '')}LogitsWarper")
    made: Processor = warper(
        int(value) if name == "top_k" else float(value), **{"device": device} if name == "eta" else {}
    )
    return made


def _logits_process(name: str) -> Any:
    try:
        from transformers.generation import logits_process
    except ImportError:
        raise ImportError(f"{name} needs transformers: pip install 'widen[hf]'") from None
    return logits_process
