"""Fifteen pairs of point sets with their k-NN counts, computed once in float64 and again in 80-bit arithmetic.

The arrays lie in golden_knn.xz, one after the other, byte planes apart (floats compress better so); neardup_offset is stored as
differences of neighbouring bit patterns. gauss_d1280 is 3 MB of noise: it is drawn again from its seed and held to its hash.
"""

import hashlib
import json
import lzma
import math
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
INDEX = json.loads((HERE / "golden_knn.json").read_text())
EXPECTED = INDEX["expected"]
"""case -> k -> boundary -> [generated inside, reference recalled, hits, reference covered]"""


@cache
def arrays() -> dict[str, np.ndarray]:
    blob, at, found = lzma.decompress((HERE / "golden_knn.xz").read_bytes()), 0, {}
    for name, (dtype, shape) in INDEX["arrays"].items():
        size = np.dtype(dtype).itemsize
        count = math.prod(shape)
        planes = np.frombuffer(blob, np.uint8, count * size, at).reshape(size, count)
        found[name] = np.ascontiguousarray(planes.T).view(dtype).reshape(shape)
        at += count * size
    real = found["neardup_offset__real"].copy()
    real[100:] += real[:100]
    fake = found["neardup_offset__fake"] + real
    found |= {"neardup_offset__real": real.view(np.float32), "neardup_offset__fake": fake.view(np.float32)}
    found["gauss_d1280__real"] = np.random.default_rng(3).standard_normal((300, 1280)).astype(np.float32)
    found["gauss_d1280__fake"] = (0.98 * np.random.default_rng(4).standard_normal((300, 1280))).astype(np.float32)
    for side, sha in INDEX["gauss_d1280_sha256"].items():
        drawn = hashlib.sha256(found[f"gauss_d1280__{side}"].tobytes()).hexdigest()
        assert drawn == sha, "numpy's generator no longer draws the numbers that the golden counts belong to"
    return found


def case(name: str) -> tuple[np.ndarray, np.ndarray]:
    return arrays()[f"{name}__real"], arrays()[f"{name}__fake"]
