"""What a loss may look at: one entry per target token, in columns. The head fills them and the losses read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor

COLUMNS = ("logq", "entropy", "top1", "position", "length")
"""The columns that have names here; all others are columns of the batch."""
COUNTED = frozenset({"position", "length"})
"""Columns that count the targets of a sequence. Trainers count them only if a loss asks."""
DEFAULT_NEEDS = frozenset({"logq", "position", "length"})
"""The columns of a loss that does not declare ``needs``."""


class Rows:
    """Facts about target tokens, as columns of one shape, detached, in float32 or better.

    A loss names the columns it reads in ``needs``, and no other is passed to it. Reading a missing column is an error. Positions and
    lengths are counted only if a loss asks. The head finds entropy and top-1 in the same read as log q, for the log of every run.

    Args:
      logq: log-probability of the target.
      entropy: entropy of the model's next-token distribution, in nats.
      top1: 1 if the target is the model's most likely token, else 0.
      position: l = 1..L, the place of the target among the targets of its sequence. Prompt, padding and packing never count.
      length: L, the number of targets of the sequence.
      extra: other columns of the batch by name, such as ``ref_logq``.

    Examples:
      >>> import torch
      >>> rows = Rows(torch.tensor([0.5, 0.25]).log())
      >>> rows.logq.exp()
      tensor([0.5000, 0.2500])
      >>> rows.entropy
      Traceback (most recent call last):
      ...
      ValueError: rows has no column 'entropy' (it has logq): a loss that reads it says so, needs = frozenset({"entropy", ...})
    """

    __slots__ = ("_columns",)
    logq: Tensor
    entropy: Tensor
    top1: Tensor
    position: Tensor
    length: Tensor

    def __init__(
        self,
        logq: Tensor | None = None,
        *,
        entropy: Tensor | None = None,
        top1: Tensor | None = None,
        position: Tensor | None = None,
        length: Tensor | None = None,
        extra: Mapping[str, Tensor] | None = None,
    ) -> None:
        named = dict(zip(COLUMNS, (logq, entropy, top1, position, length), strict=True))
        self._columns: dict[str, Tensor] = {name: x for name, x in named.items() if x is not None} | dict(extra or {})

    def __getattr__(self, name: str) -> Tensor:
        if name in COLUMNS:
            return self[name]
        raise AttributeError(f"Rows has no attribute {name!r}")

    def __getitem__(self, name: str) -> Tensor:
        found = self._columns.get(name)
        if found is None:
            have = ", ".join(self._columns) or "no column"
            where = (
                f'a loss that reads it says so, needs = frozenset({{"{name}", ...}})'
                if name in COLUMNS
                else "the batch must carry a column of that name"
            )
            raise ValueError(f"rows has no column {name!r} (it has {have}): {where}")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    @property
    def extra(self) -> dict[str, Tensor]:
        """The columns of the batch that have no name here."""
        return {name: x for name, x in self._columns.items() if name not in COLUMNS}

    def only(self, names: Iterable[str]) -> Rows:
        """These columns, as far as they are present."""
        return self._of({name: x for name, x in self._columns.items() if name in names})

    def map(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """Every column changed the same way, such as a view or a slice."""
        return self._of({name: change(x) for name, x in self._columns.items()})

    def adding(self, **columns: Tensor) -> Rows:
        """With more columns; existing ones are replaced."""
        return self._of(self._columns | columns)

    def joined(self, other: Rows) -> Rows:
        """The columns of both."""
        return self._of(self._columns | other._columns)

    @staticmethod
    def _of(columns: dict[str, Tensor]) -> Rows:
        made = Rows()
        made._columns = columns
        return made


def needs_of(loss: object) -> frozenset[str]:
    """The columns that ``loss.weigh`` reads."""
    return frozenset(getattr(loss, "needs", DEFAULT_NEEDS))
