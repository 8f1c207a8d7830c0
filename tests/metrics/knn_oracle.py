"""k-NN scores by the definition, one pair at a time in float64: slow, and obviously right."""

import numpy as np


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.square(x.astype(np.float64)[:, None] - y.astype(np.float64)[None]).sum(-1)


def squared_radii(x: np.ndarray, k: int) -> np.ndarray:
    squared = squared_distances(x, x)
    np.fill_diagonal(squared, np.inf)  # a point is not its own neighbour, whatever lies beside it
    return np.sort(squared, 1)[:, k - 1]


def scores(reference: np.ndarray, generated: np.ndarray, *, k: int, boundary: str) -> tuple[float, float, float, float]:
    squared = squared_distances(reference, generated)
    inside = np.less_equal if boundary == "closed" else np.less
    hit = inside(squared, squared_radii(reference, k)[:, None])
    back = inside(squared, squared_radii(generated, k)[None])
    return hit.any(0).mean(), back.any(1).mean(), hit.sum() / (k * len(generated)), hit.any(1).mean()
