"""The log-probabilities of a reference model, computed once before training: the column ``ref_logq`` that `Anchor` and `ASFT` read.

from widen.hosts.reference import reference_logq
data = data.add_column("ref_logq", [row.tolist() for row in reference_logq(reference, data)])

Shapes: l tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray
from torch.nn.utils.rnn import pad_sequence

from widen.data.targets import IGNORE

from .fused_head import add_fused_head, target_logq
from .head_check import check_head


def reference_logq(
    model: Any, rows: Sequence[Mapping[str, Any]], *, batch_size: int = 8
) -> Iterator[Float32[ndarray, " l"]]:
    """The model's log-probability of each target token of each row, aligned with ``input_ids``; 0 at tokens that are no target.

    Args:
      model: a causal LM of transformers, on the device where it runs. It is put into evaluation mode.
      rows: with ``input_ids`` and ``labels``, -100 where a token is not a target.
      batch_size: rows at once.
    """
    add_fused_head(model)
    model.eval()
    for at in range(0, len(rows), batch_size):
        some = [rows[i] for i in range(at, min(at + batch_size, len(rows)))]
        lengths = [len(row["input_ids"]) for row in some]
        ids, labels = (
            pad_sequence([torch.as_tensor(row[key]) for row in some], batch_first=True, padding_value=fill).to(
                model.device
            )
            for key, fill in (("input_ids", 0), ("labels", IGNORE))
        )
        mask = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
        inputs = {"input_ids": ids, "attention_mask": mask.long().to(model.device)}
        if at == 0:
            check_head(
                model,
                inputs,
                half=torch.get_autocast_dtype(ids.device.type) if torch.is_autocast_enabled(ids.device.type) else None,
            )
        with torch.no_grad():
            found = target_logq(model, inputs, labels).float().cpu().numpy()
        for length, logq in zip(lengths, found, strict=True):
            yield np.concatenate([np.zeros(1, np.float32), logq[: length - 1]])
