"""The model card of a model that was trained with a loss of this package: the host's own card, with the loss and the data."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import Any

TAG = "widen"
_HEADING = "## Training loss"


def loss_text(loss: str, weight_scale: str) -> str:
    """The section of a card that says what the model was trained for."""
    scale = "" if weight_scale == "raw" else f", with `weight_scale={weight_scale}`"
    return (
        f"{_HEADING}\n\n`{loss}`{scale}: the sum of -w log Q(x) over the target tokens, divided by their number. "
        "w depends on the probability that the model gives to the token; NLL has w = 1.\n"
    )


def add_loss(path: Path, trainer: Any, dataset: str | None) -> None:
    """Add the tag, the loss and the data to a card that a trainer has written."""
    from huggingface_hub import ModelCard

    card = ModelCard.load(path)
    tags = card.data.tags or []
    card.data.tags = sorted({TAG, *([tags] if isinstance(tags, str) else tags)})
    data = trainer.train_dataset
    size = f", {len(data):,} rows" if isinstance(data, Sized) else ""
    card.text = (
        f"{card.text.rstrip()}\n\n{loss_text(str(trainer.objective.weight), trainer.objective.weight_scale)}\n"
        f"## Training data\n\n{dataset or 'A data set without a name'}{size}.\n\n"
        "## Decoding\n\nNo decoding was measured in this training. `widen sample` draws at several temperatures and filters, and "
        "`widen score` gives precision and recall of each.\n"
    )
    card.save(path)
