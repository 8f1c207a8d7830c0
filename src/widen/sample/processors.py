"""Logits in, logits out: the steps of a :class:`Decoding`, in its order.

Hugging Face's filters are called, not rewritten, so that "top-p 0.9" here is theirs, ties and borders included. Temperature is a division
(a tensor under KL guidance, which theirs does not take), and top-n-sigma is ours.

Shapes: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .decoding import Decoding

__all__ = ["apply_steps", "pipeline", "top_n_sigma"]

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
    try:
        from transformers.generation import logits_process as hf
    except ImportError:
        raise ImportError(f"{name} is done by transformers: pip install 'widen[hf]'") from None
    build: dict[str, Callable[[], Any]] = {
        "top_k": lambda: hf.TopKLogitsWarper(top_k=int(value)),
        "top_p": lambda: hf.TopPLogitsWarper(top_p=value),
        "min_p": lambda: hf.MinPLogitsWarper(min_p=value),
        "typical": lambda: hf.TypicalLogitsWarper(mass=value),
        "epsilon": lambda: hf.EpsilonLogitsWarper(epsilon=value),
        "eta": lambda: hf.EtaLogitsWarper(epsilon=value, device=device),
    }
    return build[name]()
