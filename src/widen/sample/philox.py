"""Counter-based random numbers: Philox 4x32-10 (Salmon et al., 2011), vectorised.

A sample's uniform at a position is a function of (seed, prompt, temperature, index, position). The batch, the order of the prompts, the
device and restarts do not change it. Nor do filters and KL guidance: two methods at one temperature see the same numbers.

Shapes: B samples, L positions.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def key(seed: int, prompt: str, temperature: float) -> int:
    """The 64-bit key of one prompt's stream."""
    # The length keeps ("1", "2a") and ("12", "a") apart.
    text = f"widen:{seed}:{float(temperature)!r}:{len(prompt)}:{prompt}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def philox(counter_4N: NDArray[np.uint64], key_2N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ten rounds on N counters of four 32-bit words (each held in 64 bits), under keys of two such words."""
    x0, x1, x2, x3 = counter_4N
    k0, k1 = key_2N
    for _ in range(10):
        a, b = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (b >> _HALF) ^ x1 ^ k0, b & _LOW, (a >> _HALF) ^ x3 ^ k1, a & _LOW
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _LOW, (k1 + np.uint64(_WEYL[1])) & _LOW
    return np.stack([x0, x1, x2, x3])


def uniforms(keys_B: NDArray[np.uint64], index_B: NDArray[np.int64], length: int) -> NDArray[np.float64]:
    """Uniforms in [0, 1), shape [B, length]: row b holds the positions of sample `index_B[b]` under `keys_B[b]`.

    Multiples of 2^-52: the largest is 1 - 2^-52, so that u * total < total for every positive float64 total.
    """
    index = index_B.astype(np.uint64)[:, None]
    position = np.arange(length, dtype=np.uint64)[None]
    shape = (len(keys_B), length)
    words = [index & _LOW, index >> _HALF, position, np.zeros((1, 1), np.uint64)]
    counter = np.stack([np.broadcast_to(word, shape) for word in words])
    keys = np.stack([np.broadcast_to(word, shape) for word in (keys_B[:, None] & _LOW, keys_B[:, None] >> _HALF)])
    high, low, _, _ = philox(counter, keys)
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    return np.asarray(bits * 2.0**-52, dtype=np.float64)
