"""Features on disk, so that each text is embedded once: keyed by the text, the model and every setting that changes the numbers.

There is one folder per model and settings. Its safetensors files are named by their content, so several processes can write at once.
A killed run leaves complete files or none, and nothing is unpickled.

Shapes: N texts, D features.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widen.disk.atomic import write_bytes, write_text

SAMPLED = 64  # places of a weights file that are hashed: training moves all weights, so that any of them tells


def text_key(text: str) -> bytes:
    """32 bytes that stand for a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def folder_fingerprint(folder: Path) -> str:
    """A hash of a model folder: small files whole, large ones by size and 64 blocks spread over them."""
    found = hashlib.sha256()
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        size = file.stat().st_size
        found.update(f"{file.relative_to(folder)}:{size}:".encode())
        with file.open("rb") as data:
            if size <= 1 << 20:
                found.update(data.read())
                continue
            for place in np.linspace(0, size - (1 << 14), SAMPLED).astype(int):
                data.seek(int(place))
                found.update(data.read(1 << 14))
    return found.hexdigest()


class FeatureCache:
    """Rows already computed under one set of settings.

    Args:
      folder: of the whole cache; created when first written to.
      settings: everything but the text that the features depend on; plain values.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        self.settings = json.dumps(settings, sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(self.settings.encode()).hexdigest()[:24]
        self.rows: dict[bytes, NDArray[np.float32]] = {}
        for file in sorted(self.folder.glob("*.safetensors")):
            self._read(file)

    def _read(self, file: Path) -> None:
        from safetensors.numpy import load

        try:
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest()[:24] != file.stem:
                raise ValueError("its content does not match its name")
            found = load(data)
            keys, features = found["keys"], found["features"]
            whole = keys.shape == (len(features), 32) and np.isfinite(features).all()
        except Exception as error:
            raise ValueError(
                f"{file}: not a file of cached features ({error}); delete it to have them computed again"
            ) from error
        if not whole:
            raise ValueError(
                f"{file}: cached features do not match their keys or are not finite; delete it to have them computed again"
            )
        self.rows.update(zip((key.tobytes() for key in keys), features, strict=True))

    def get(self, text: str) -> NDArray[np.float32] | None:
        """The features of a text, if they are known."""
        return self.rows.get(text_key(text))

    def put(self, texts: Sequence[str], features: NDArray[np.float32]) -> None:
        """Keep the features of some texts, on disk before this returns."""
        from safetensors.numpy import save

        keys = [text_key(text) for text in texts]
        described = self.folder / "settings.json"
        if not described.exists():
            write_text(described, self.settings)
        together = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32)
        data = save({"keys": together, "features": np.ascontiguousarray(features, dtype=np.float32)})
        write_bytes(self.folder / f"{hashlib.sha256(data).hexdigest()[:24]}.safetensors", data)
        self.rows.update(zip(keys, features, strict=True))
