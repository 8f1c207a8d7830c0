"""Features on disk, so that each text is embedded once.

There is one folder per model and settings. Its safetensors files are named by their content, so several processes can write at once. A
killed run leaves complete files or none.
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

SAMPLED = 64  # blocks of a large file that are hashed; training changes all weights, so any block shows it


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
    """Features computed under one set of settings: plain values, everything but the text that the features depend on."""

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        from safetensors.numpy import load

        self.settings = json.dumps(settings, sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(self.settings.encode()).hexdigest()[:24]
        self.rows: dict[bytes, NDArray[np.float32]] = {}
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                data = file.read_bytes()
                if hashlib.sha256(data).hexdigest()[:24] != file.stem:
                    raise ValueError("its content does not match its name")
                found = load(data)
                keys, features = found["keys"], found["features"]
                if keys.shape != (len(features), 32) or not np.isfinite(features).all():
                    raise ValueError("its features do not match their keys or are not finite")
            except Exception as error:
                raise ValueError(
                    f"{file}: not a file of cached features ({error}); delete it to recompute them"
                ) from error
            self.rows.update(zip((key.tobytes() for key in keys), features, strict=True))

    def get(self, text: str) -> NDArray[np.float32] | None:
        """The features of a text, or None."""
        return self.rows.get(_key(text))

    def put(self, texts: Sequence[str], features: NDArray[np.float32]) -> None:
        """Store the features of texts; they are on disk when this returns."""
        from safetensors.numpy import save

        keys = [_key(text) for text in texts]
        if not (self.folder / "settings.json").exists():
            write_text(self.folder / "settings.json", self.settings)
        together = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32)
        data = save({"keys": together, "features": np.ascontiguousarray(features, dtype=np.float32)})
        write_bytes(self.folder / f"{hashlib.sha256(data).hexdigest()[:24]}.safetensors", data)
        self.rows.update(zip(keys, features, strict=True))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
