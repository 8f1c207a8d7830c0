"""Any Hugging Face causal LM as (backbone, head): tokens -> hidden states, and what turns those into logits.

The logits themselves are never built here: :mod:`widen.head` takes hidden states and head.

Shapes: B sequences, L positions, D hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["Pretrained"]


class Pretrained(nn.Module):
    """A causal LM of transformers, cut before its head.

    Args:
      model: e.g. ``AutoModelForCausalLM.from_pretrained(...)``; trained in place.

    Attributes:
      head: weight of the output layer, [V, D]; the embedding itself where they are tied.
      head_bias, softcap: the rest of the output layer, or None.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        output = model.get_output_embeddings()
        if not isinstance(output, nn.Linear):
            raise ValueError(
                f"model has {type(output).__name__} as its output layer: need a torch.nn.Linear to take hidden states to logits"
            )
        scale = getattr(model.config, "logit_scale", None) or getattr(model.config, "logits_scaling", None)
        if scale not in (None, 1, 1.0):
            raise ValueError(
                f"model scales its logits by {scale}: not supported, its log-probabilities would come out wrong"
            )
        self.model = model
        self.softcap: float | None = getattr(model.config, "final_logit_softcapping", None)

    @property
    def head(self) -> Float[Tensor, "V D"]:
        """Weight of the output layer."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    @property
    def head_bias(self) -> Float[Tensor, " V"] | None:
        """Its bias, if it has one."""
        bias: Tensor | None = self.model.get_output_embeddings().bias
        return bias

    def forward(self, tokens_BL: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Hidden states after the last norm. Padding sits at the right, where causal attention keeps it from mattering."""
        hidden: Tensor = self.model.base_model(input_ids=tokens_BL, use_cache=False).last_hidden_state
        return hidden
