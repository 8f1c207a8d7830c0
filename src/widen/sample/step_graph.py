"""One decoding step of a model as a CUDA graph: its thousand kernels are started by one call.

A step of a small model keeps a GPU busy for a few milliseconds, and the Python that starts it takes tens. Captured once for a batch
shape, a step costs what the GPU takes. The cache lies in buffers, the place of the next token and the number of positions to look at
lie in memory, so nothing in a step depends on how far it is. Capturing costs about four plain steps; it is done again when rows leave
the batch.

Shapes: B rows, S positions there is room for, V vocabulary.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention import in_buffers, triton_here

__all__ = ["StepGraph", "pays"]

NAME = "widen_step_graph"
LEAST_STEPS = 16
"""Steps still to come from which capturing one pays."""

log = logging.getLogger(__name__)


def pays(model: Any, cache: Any, *, steps: int) -> bool:
    """Whether this model's step can be captured, and enough of them are to come."""
    config = model.config
    return (
        model.device.type == "cuda"
        and steps >= LEAST_STEPS
        and triton_here()
        and model.dtype != torch.float64
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and bool(getattr(model, "_supports_attention_backend", False))
        and in_buffers(cache)
    )


class StepGraph:
    """A step of `model` on `cache`, whose layers lie in buffers.

    Args:
      mask_BS: which positions a row may see, padding excluded, for all the room there is.
      position_B1: the position of each row's next token.
      length: positions in the cache.
    """

    def __init__(
        self,
        model: Any,
        cache: Any,
        mask_BS: Bool[Tensor, "B S"] | None,
        position_B1: Int[Tensor, "B 1"],
        *,
        length: int,
    ) -> None:
        device = position_B1.device
        self.model, self.cache, self.length = model, cache, length
        self.mask_BS, self.position_B1 = mask_BS, position_B1.clone()
        self.token_B1 = torch.zeros_like(position_B1)
        self.place = torch.full((1,), length, dtype=torch.long, device=device)
        self.seen = torch.full((1,), length + 1, dtype=torch.int32, device=device)
        self.graph = torch.cuda.CUDAGraph()
        for layer in cache.layers:
            layer.stand_still(self.place, length)
        try:
            self._capture()
        except BaseException:
            self.close()
            raise

    def _capture(self) -> None:
        # Twice in the open first, on a stream of its own: cuBLAS takes its workspace and Triton compiles, which a capture does not
        # allow. Each run writes the same keys and values to the same place, so that nothing moves.
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._forward()
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(self.graph):
            self.logits_BV = self._forward()

    def _forward(self) -> Float[Tensor, "B V"]:
        from transformers import AttentionInterface

        # A name without a mask function: transformers then makes no mask, and ours is read where it lies.
        AttentionInterface.register(NAME, self._attend)
        config = self.model.config
        before, config._attn_implementation = config._attn_implementation, NAME
        try:
            out = self.model(
                input_ids=self.token_B1, position_ids=self.position_B1, past_key_values=self.cache, use_cache=True
            )
        finally:
            config._attn_implementation = before
            AttentionInterface.register(NAME, _nobody)  # the name outlives us; the cache and the graph must not
        logits: Tensor = out.logits[:, -1]
        return logits

    def _attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, _: Any, **settings: Any) -> Any:
        from .attention_triton import decode

        for name in ("position_bias", "softcap", "s_aux", "sliding_window"):
            if settings.get(name) is not None:
                raise NotImplementedError(f"attention with {name}")
        scale = settings.get("scaling")
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        return decode(query[:, :, 0], key, value, self.mask_BS, scale=scale, length=self.seen)[:, None], None

    def run(self, token_B: Int[Tensor, " B"]) -> Float[Tensor, "B V"]:
        """Append a token a row; the logits of the next, in float32."""
        self.token_B1.copy_(token_B[:, None])
        self.graph.replay()
        for counter in (self.position_B1, self.place, self.seen):
            counter.add_(1)
        self.length += 1
        return self.logits_BV.float()

    def close(self) -> None:
        """Give the cache back as a cache that grows by itself."""
        for layer in self.cache.layers:
            layer.stand_still(None, self.length)


def _nobody(*_: Any, **__: Any) -> Any:
    """Stands where no step is being captured."""
    raise RuntimeError(f"attention {NAME!r} is for a step under capture")


def try_capture(
    model: Any, cache: Any, mask_BS: Bool[Tensor, "B S"] | None, position_B1: Int[Tensor, "B 1"], *, length: int
) -> StepGraph | None:
    """The step as a graph, or None for a model that does something a graph cannot hold (experts chosen on the host, for one)."""
    try:
        return StepGraph(model, cache, mask_BS, position_B1, length=length)
    except (RuntimeError, NotImplementedError) as error:
        log.warning(
            "%s steps without a CUDA graph, which is slower: %s", type(model).__name__, str(error).split("\n")[0]
        )
        return None
