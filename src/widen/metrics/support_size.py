r"""How few tokens hold the mass: the support size of P, estimated through a strong model (paper, App., "Estimating the Sparsity of P").

The size of a position is the least number of tokens whose probability reaches a mass p. The score is the largest size over the positions
of a sample, the geometric mean of these over samples, divided by V. With p = .9, .95 and .99 these are the columns of the paper's
sparsity table (label ``tab:sparsity``); the sizes by position are its figure ``histo``.

Shapes: L positions of a sample, V vocabulary, p masses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .interval import Interval, mean_interval
from .plain import to_json

VERSION = 1
MASSES = (0.9, 0.95, 0.99)
ROUNDING = 1e-12  # probabilities that sum to p may fall short of it by rounding
CHUNK = 1 << 22  # probabilities sorted at a time, 32 MB in float64


@dataclass(frozen=True)
class Sparsity:
    """Estimated support size of the conditionals of P, for several masses.

    Args:
      support: geometric mean over samples of the largest size over positions, for each mass.
      sparsity: ``support`` / V.
      intervals: bootstrap over samples, of ``sparsity``.
      sizes: for each sample (p, L): tokens needed at each position (figure ``histo``).
    """

    masses: tuple[float, ...]
    support: tuple[float, ...]
    sparsity: tuple[float, ...]
    intervals: tuple[Interval, ...]
    vocabulary: int
    samples: int
    sizes: tuple[NDArray[np.int64], ...] = field(repr=False)
    level: float = field(repr=False, default=0.95)
    version: int = field(repr=False, default=VERSION)

    def by_position(self, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> NDArray[np.float64]:
        """Quantiles of the sizes at each position, over the samples that reach it, (p, quantiles, L)."""
        longest = max(sizes.shape[1] for sizes in self.sizes)
        padded = np.full((len(self.sizes), len(self.masses), longest), np.nan)
        for row, sizes in zip(padded, self.sizes, strict=True):
            row[:, : sizes.shape[1]] = sizes
        return np.moveaxis(np.nanquantile(padded, quantiles, axis=0), 0, 1)

    to_json = to_json


def support_sizes(probabilities: Any, *, masses: Sequence[float] = MASSES) -> NDArray[np.int64]:
    """The least number of tokens whose probabilities reach each mass, at each position.

    The token that crosses the mass is counted. Of tied tokens, as few as possible are counted.

    ``probabilities`` is (L, V), with rows that sum to 1. The result is (p, L).

    Examples:
      >>> support_sizes([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]], masses=(0.5, 0.8, 0.9)).tolist()
      [[1, 1], [2, 1], [3, 1]]
    """
    given = isinstance(probabilities, Tensor)
    p = probabilities.detach() if given else torch.from_numpy(np.asarray(probabilities, dtype=np.float64))
    if p.ndim != 2 or 0 in p.shape:
        raise ValueError(
            f"probabilities must have shape (positions, vocabulary), both at least 1, got {tuple(p.shape)}"
        )
    if not bool(((p >= 0).all() & ((p.double().sum(1) - 1).abs() < 1e-3).all()).item()):
        raise ValueError("probabilities must be non-negative and sum to 1 at every position")
    _check_masses(masses)
    return _counted(p, masses)


def _check_masses(masses: Sequence[float]) -> None:
    if len(masses) == 0 or any(not 0 < mass < 1 for mass in masses):
        raise ValueError(f"masses must lie strictly between 0 and 1, at least one, got {list(masses)}")


def _counted(p: Float[Tensor, "L V"], masses: Sequence[float], *, softmax: bool = False) -> NDArray[np.int64]:
    """Sizes in float64: the rounding of a float32 sum over 128,000 tokens exceeds one token's probability."""
    wanted = torch.tensor(masses, dtype=torch.float64, device=p.device) - ROUNDING
    found = []
    for piece in torch.split(p, max(1, CHUNK // p.shape[1])):
        shares = piece.double().softmax(1) if softmax else piece.double()
        mass = shares.sort(1, descending=True).values.cumsum(1)
        short = torch.searchsorted(mass, wanted.expand(len(mass), -1).contiguous())
        found.append(short.clamp(max=p.shape[1] - 1) + 1)
    sizes: NDArray[np.int64] = torch.cat(found).T.cpu().numpy()
    return sizes


def sparsity(
    probabilities: Sequence[Any], *, masses: Sequence[float] = MASSES, level: float = 0.95, seed: int = 0
) -> Sparsity:
    """Support size and sparsity from the conditionals of some samples (Algorithm "Estimating the Support Size").

    ``probabilities`` holds an array (L, V) of conditionals for each sample; lengths may differ, V may not.

    Examples:
      >>> one, two = [[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]], [[0.34, 0.33, 0.33], [1.0, 0.0, 0.0]]
      >>> [round(size, 4) for size in sparsity([one, two], masses=(0.5, 0.8)).support]
      [1.4142, 2.4495]

    Paper note: the paper calls this an upper bound on |Supp(P)|. It is the support size of one token given its context, to be compared
    with V and not with V^L. It is no bound: it drops the tokens in the last 1 - p of the mass.
    """
    widths = {np.shape(sample)[-1] for sample in probabilities}
    if len(widths) != 1:
        raise ValueError(
            f"probabilities must be of at least one sample and of one vocabulary, got widths {sorted(widths)}"
        )
    sizes = [support_sizes(sample, masses=masses) for sample in probabilities]
    return summarise(sizes, masses, widths.pop(), level=level, seed=seed)


def sparsity_of_model(
    model: Any,
    sequences: Sequence[Any],
    *,
    prompt_lengths: Sequence[int] | None = None,
    masses: Sequence[float] = MASSES,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Sparsity:
    """`sparsity` of a causal language model, from one teacher-forced pass per sample.

    Args:
      model: called with ``input_ids`` of shape (1, length); returns ``.logits`` of shape (1, length, V), like Hugging Face's causal models.
      sequences: token ids of each sample, prompt included, at least two each.
      prompt_lengths: tokens at the start of each sample that are not targets; by default 1, as the first token has no conditional.
      progress: called as (stage, done, total).
    """
    _check_masses(masses)
    starts = [1] * len(sequences) if prompt_lengths is None else list(prompt_lengths)
    if len(sequences) == 0 or len(starts) != len(sequences):
        raise ValueError(
            f"sequences must be at least one, with a prompt length each, got {len(sequences)} and {len(starts)}"
        )
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    sizes, width = [], 0
    for place, (tokens, start) in enumerate(zip(sequences, starts, strict=True)):
        ids = torch.as_tensor(tokens, dtype=torch.int64, device=device)
        if ids.ndim != 1 or not 1 <= start < len(ids):
            raise ValueError(
                f"sequence {place} must have a target after its {start} prompt tokens, got shape {tuple(ids.shape)}"
            )
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0, start - 1 : -1]
        width = logits.shape[1]
        sizes.append(_counted(logits, masses, softmax=True))
        if progress is not None:
            progress("sparsity", place + 1, len(sequences))
    return summarise(sizes, masses, width, level=level, seed=seed)


def summarise(
    sizes: Sequence[NDArray[np.int64]], masses: Sequence[float], vocabulary: int, *, level: float, seed: int
) -> Sparsity:
    """The score from the sizes of all samples."""
    logs = np.log(np.stack([of_sample.max(1) for of_sample in sizes]))
    support = np.exp(logs.mean(0))
    ends = [np.exp(mean_interval(column, level=level, seed=seed)) / vocabulary for column in logs.T]
    return Sparsity(
        masses=tuple(float(mass) for mass in masses),
        support=tuple(support.tolist()),
        sparsity=tuple((support / vocabulary).tolist()),
        intervals=tuple(Interval(float(low), float(high)) for low, high in ends),
        vocabulary=vocabulary,
        samples=len(sizes),
        sizes=tuple(sizes),
        level=level,
    )
