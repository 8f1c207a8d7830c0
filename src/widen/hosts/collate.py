"""A collator that keeps columns of the data set, such as ``loss_weights``, which the collators of transformers and TRL drop.

Shapes: B rows, C columns of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from widen.data.targets import LOSS_WEIGHTS


class WithColumns:
    """Calls another collator, then adds columns of the rows to its batch, one number per token of ``input_ids``.

    A row gives one number, which holds for all its tokens, or a list with one number per token. Rows may be padded on either side or
    concatenated; their tokens are looked up in the batch, so that a number never goes to another token.

    Args:
      collator: pads or packs rows with ``input_ids``.
      names: of the columns to keep. A column that no row has is left out.

    Examples:
      >>> def pad(rows):
      ...     width = max(len(row["input_ids"]) for row in rows)
      ...     return {"input_ids": torch.tensor([row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows])}
      >>> rows = [{"input_ids": [5, 6], "loss_weights": 0.5}, {"input_ids": [7, 8, 9], "loss_weights": [0.0, 1.0, 2.0]}]
      >>> WithColumns(pad)(rows)["loss_weights"]
      tensor([[0.5000, 0.5000, 0.0000],
              [0.0000, 1.0000, 2.0000]])
    """

    def __init__(self, collator: Callable[..., Any], names: Sequence[str] = (LOSS_WEIGHTS,)) -> None:
        self.collator, self.names = collator, tuple(names)

    def __call__(self, features: Sequence[Mapping[str, Any]], *args: Any, **kwargs: Any) -> Any:
        """The other collator's batch, with the columns."""
        rows = [{key: value for key, value in row.items() if key not in self.names} for row in features]
        batch = self.collator(rows, *args, **kwargs)
        for name in self.names:
            if any(row.get(name) is not None for row in features):
                batch[name] = _placed(name, features, batch)
        return batch


def _placed(name: str, features: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> Tensor:
    """The column as a table of the shape of ``input_ids``; 0 at padding."""
    ids_BC: Tensor = batch["input_ids"]
    table_BC = torch.zeros(ids_BC.shape)
    rows = [_values(name, number, row) for number, row in enumerate(features)]
    if len(ids_BC) == 1:  # one row, or all rows concatenated
        rows = [(torch.cat([token_l for token_l, _ in rows]), torch.cat([value_l for _, value_l in rows]))]
    mask_BC = batch.get("attention_mask")
    for b, (token_l, value_l) in enumerate(rows):
        at = torch.arange(len(token_l))
        if mask_BC is not None and mask_BC.shape == ids_BC.shape:
            at = mask_BC[b].nonzero()[: len(token_l), 0]
        fits = b < len(ids_BC) and len(at) == len(token_l) <= ids_BC.shape[1]
        if not fits or not torch.equal(ids_BC[b, at], token_l.to(ids_BC.dtype)):
            raise ValueError(
                f"{name}: the collator neither pads nor concatenates the rows as they are, so row {b} of the batch cannot be matched with "
                f"its {name}. Let your collator give batch[{name!r}] itself, one number per token of input_ids"
            )
        table_BC[b, at] = value_l
    return table_BC


def _values(name: str, number: int, row: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The tokens of a row, and one value for each."""
    tokens, given = torch.as_tensor(row["input_ids"]), row.get(name)
    if given is None:
        raise ValueError(f"row {number} of the batch has no {name}, and other rows have one; give it to every row")
    value = torch.as_tensor(given, dtype=torch.float32)
    if value.dim() and value.shape != tokens.shape:
        raise ValueError(
            f"{name} of row {number} of the batch has {value.numel()} entries for {len(tokens)} tokens; legal: one number, or one per "
            "token of input_ids (a trainer that truncates or tokenizes rows does not change this column)"
        )
    return tokens, value.expand(tokens.shape)


def has_column(dataset: Any, name: str) -> bool | None:
    """Whether the rows of a data set have a column; None if that cannot be known before reading it."""
    names = getattr(dataset, "column_names", None)
    if names is not None:
        return name in names
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return False if dataset is None else None
    first = dataset[0] if len(dataset) else {}
    return isinstance(first, Mapping) and name in first


def is_known(collator: Any) -> bool:
    """Whether a collator is one of transformers' or TRL's, which drop columns they do not know."""
    return str(collator.__module__).startswith(("transformers.", "trl."))  # of a function, or of an object's class
