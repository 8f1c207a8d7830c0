"""The paper's small Llama in one file: 4 layers, 32 dimensions, 4 heads, feed-forward 128 (paper, App. "Models and training details").

With the 13 tokens of the integer task and an untied head it has 66,656 parameters. The arithmetic is Llama's, so that a checkpoint opens
in Hugging Face transformers with the same logits (:mod:`widen.models.convert`). q, k and v share one matrix, and so do gate and up.

Shapes: B sequences, L positions, D hidden, H heads, E = D/H, F feed-forward, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class LlamaShape:
    """The sizes of a small Llama, as a value. The defaults are the paper's.

    Args:
      vocab: tokens; 13 for the integer task.
      layers, dim, heads, hidden: the paper's 4, 32, 4, 128.
      norm_eps: added under the root of the RMS norm.
      rope_theta: base of the rotary angles.
      init_std: standard deviation of the initial weights (norm gains start at 1). Not in the paper.

    Examples:
      >>> LlamaShape().num_parameters
      66656
    """

    vocab: int = 13
    layers: int = 4
    dim: int = 32
    heads: int = 4
    hidden: int = 128
    norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    init_std: float = 0.02

    def __post_init__(self) -> None:
        for name in ("vocab", "layers", "dim", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim={self.dim}, heads={self.heads}: dim must be a multiple of 2 * heads (rotary pairs)")

    @property
    def head_dim(self) -> int:
        """E, the dimensions of one head."""
        return self.dim // self.heads

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter by name, in the order of the flat buffer and of `TinyLlama.named_parameters`."""
        layer = {
            "attention_norm": (self.dim,),
            "qkv": (3 * self.dim, self.dim),
            "out": (self.dim, self.dim),
            "mlp_norm": (self.dim,),
            "gate_up": (2 * self.hidden, self.dim),
            "down": (self.dim, self.hidden),
        }
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab, self.dim)}
        for i in range(self.layers):
            shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        return shapes | {"norm": (self.dim,), "head": (self.vocab, self.dim)}

    @property
    def num_parameters(self) -> int:
        """P, 66,656 for the paper's sizes."""
        return sum(math.prod(shape) for shape in self.parameter_shapes().values())


def rotary(
    shape: LlamaShape, length: int, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Float[Tensor, "L e"], Float[Tensor, "L e"]]:
    """Cosines and sines of the rotary angles of positions 0..L-1; dimension e is paired with e + E/2, as in Llama."""
    half = shape.head_dim // 2
    frequency = shape.rope_theta ** -(torch.arange(half, dtype=torch.float64, device=device) / half)
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency
    return angle.cos().to(dtype), angle.sin().to(dtype)


Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Causal attention of q, k and v, each [B, H, L, E]."""


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's own kernel: twice as fast as `plain_attention` on a CPU."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in plain operations, which `torch.func.vmap` can batch."""
    scores_LL = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    later_LL = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    out: Tensor = scores_LL.masked_fill(later_LL, -torch.inf).softmax(-1) @ v
    return out


class Layer(nn.Module):
    """One block: attention and feed-forward, each with its norm and a residual connection."""

    def __init__(self, shape: LlamaShape, attend: Attention) -> None:
        super().__init__()
        self.shape, self.attend = shape, attend
        self.attention_norm = nn.Parameter(torch.empty(shape.dim))
        self.qkv = nn.Parameter(torch.empty(3 * shape.dim, shape.dim))
        self.out = nn.Parameter(torch.empty(shape.dim, shape.dim))
        self.mlp_norm = nn.Parameter(torch.empty(shape.dim))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.hidden, shape.dim))
        self.down = nn.Parameter(torch.empty(shape.dim, shape.hidden))

    def forward(
        self, x_BLD: Float[Tensor, "B L D"], cos: Float[Tensor, "L e"], sin: Float[Tensor, "L e"]
    ) -> Float[Tensor, "B L D"]:
        """The stream after this block."""
        eps, dim = self.shape.norm_eps, (self.shape.dim,)
        x_BLD = x_BLD + self.attention(F.rms_norm(x_BLD, dim, self.attention_norm, eps), cos, sin)
        gate, up = F.linear(F.rms_norm(x_BLD, dim, self.mlp_norm, eps), self.gate_up).chunk(2, dim=-1)
        return x_BLD + F.linear(F.silu(gate) * up, self.down)

    def attention(
        self, x_BLD: Float[Tensor, "B L D"], cos: Float[Tensor, "L e"], sin: Float[Tensor, "L e"]
    ) -> Float[Tensor, "B L D"]:
        """Causal attention with rotary positions."""
        B, L, D = x_BLD.shape
        q, k, v = F.linear(x_BLD, self.qkv).view(B, L, 3, self.shape.heads, self.shape.head_dim).permute(2, 0, 3, 1, 4)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        out_BHLE = self.attend(q, k, v)
        return F.linear(out_BHLE.transpose(1, 2).reshape(B, L, D), self.out)


def turn(
    x: Float[Tensor, "B H L E"], cos: Float[Tensor, "*L e"], sin: Float[Tensor, "*L e"]
) -> Float[Tensor, "B H L E"]:
    """Rotate each pair (e, e + E/2) by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class TinyLlama(nn.Module):
    """tokens -> hidden states; `head` turns those into logits.

    Args:
      shape: the sizes.
      seed: of the initial weights, which are the same on every device; the global random state is not used.
      attend: how attention is computed.

    Examples:
      >>> TinyLlama(LlamaShape(), seed=0).logits(torch.tensor([[12, 4, 2]])).shape
      torch.Size([1, 3, 13])
    """

    def __init__(self, shape: LlamaShape | None = None, *, seed: int = 0, attend: Attention = fused_attention) -> None:
        super().__init__()
        self.shape = shape = shape or LlamaShape()
        self.embed = nn.Parameter(torch.empty(shape.vocab, shape.dim))
        self.layers = nn.ModuleList(Layer(shape, attend) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.empty(shape.dim))
        self.head = nn.Parameter(torch.empty(shape.vocab, shape.dim))
        self.reset(seed)

    @torch.no_grad()
    def reset(self, seed: int) -> None:
        """Gains 1, everything else normal with `init_std`."""
        # Draw in float64 and round, so that a float64 model starts from the same numbers.
        generator = torch.Generator().manual_seed(seed)
        parameters = dict(self.named_parameters())
        for name in self.shape.parameter_shapes():  # nn.Module lists its own parameters before its children's
            parameter = parameters[name]
            if parameter.ndim == 1:
                parameter.fill_(1)
            else:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_((noise * self.shape.init_std).float())

    def forward(self, tokens_BL: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Hidden states after the last norm."""
        x_BLD = F.embedding(tokens_BL, self.embed)
        cos, sin = rotary(self.shape, tokens_BL.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
        for layer in self.layers:
            x_BLD = layer(x_BLD, cos, sin)
        return F.rms_norm(x_BLD, (self.shape.dim,), self.norm, self.shape.norm_eps)

    def logits(self, tokens_BL: Int[Tensor, "B L"]) -> Float[Tensor, "B L V"]:
        """Scores of the next token at every position."""
        return F.linear(self(tokens_BL), self.head)

    def flat(self) -> Float[Tensor, " P"]:
        """All parameters in one vector, in the order of `LlamaShape.parameter_shapes`."""
        parameters = dict(self.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.shape.parameter_shapes()])

    @torch.no_grad()
    def load_flat(self, flat_P: Float[Tensor, " P"]) -> TinyLlama:
        """Take the parameters from such a vector."""
        if flat_P.shape != (self.shape.num_parameters,):
            raise ValueError(f"flat_P has shape {tuple(flat_P.shape)}: need ({self.shape.num_parameters},)")
        parameters, at = dict(self.named_parameters()), 0
        for name, size in self.shape.parameter_shapes().items():
            count = math.prod(size)
            parameters[name].copy_(flat_P[at : at + count].view(size))
            at += count
        return self
