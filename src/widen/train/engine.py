"""How the arithmetic of many models side by side is done: device, precision, compilation. It changes speed and rounding, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Engine", "matmul_precision"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How the arithmetic is done; it changes speed and rounding, nothing else.

    Args:
      device: "cpu" or "cuda".
      dtype: of parameters and activations.
      compile: pass the token-wise pieces through torch.compile.
      graph: hold the step in one CUDA graph.
      tf32: let matrix products round their factors to TF32 (10 bits); off, they are float32.
      models_at_once: models in one batched product; None takes all on a GPU and 1 on a CPU, where one model's activations fit the cache.
      split: parts of the sums over tokens (see `StackedLlama`); None takes 4 on a GPU, 1 on a CPU.
      workers: threads of a CPU that work on models, or on parts of a batch, side by side; None takes torch's number of threads.
      share: compute what sequences have in common once (:mod:`widen.models.prefix`).
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    compile: bool = False
    graph: bool = False
    tf32: bool = False
    models_at_once: int | None = None
    split: int | None = None
    workers: int | None = None
    share: bool = True

    @classmethod
    def fast(cls, device: str, **changes: object) -> Engine:
        """What is quickest on this device, in float32."""
        on_gpu = torch.device(device).type == "cuda"
        return cls(device=device, **({"compile": on_gpu, "graph": on_gpu} | changes))  # type: ignore[arg-type]


class matmul_precision:
    """TF32 for matrix products inside the block only: the flag is global in torch."""

    def __init__(self, engine: Engine) -> None:
        self.tf32, self.on_gpu = engine.tf32, torch.device(engine.device).type == "cuda"

    def __enter__(self) -> None:
        if self.on_gpu:
            self.before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = self.tf32

    def __exit__(self, *_: object) -> None:
        if self.on_gpu:
            torch.backends.cuda.matmul.allow_tf32 = self.before
