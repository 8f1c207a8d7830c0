"""k-NN scores against their definition, on the sets that break fast implementations; and what must be refused."""

import knn_oracle
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.metrics import KnnReference, knn, knn_scores, knn_scores_by_k, knn_search
from widen.metrics.knn_search import squared_distance, squared_radii


def near_duplicates(rng):
    """Clusters far apart, each far narrower than float32 resolves at that distance."""
    centres = 100 * rng.standard_normal((5, 40))
    return [centres[rng.integers(5, size=n)] + 1e-7 * rng.standard_normal((n, 40)) for n in (90, 70)]


def exact_ties(rng):
    return [rng.integers(0, 3, size=(n, 4)).astype(np.float32) for n in (90, 70)]


def crowded_centre(rng):
    """Every generated point lies in nearly every reference ball: no sparse list of hits."""
    return [rng.standard_normal((90, 60)).astype(np.float32), 0.01 * rng.standard_normal((70, 60)).astype(np.float32)]


def wild_scales(rng):
    """Features from 1e-20 to 1e20 in one set: what float32 squares overflow and underflow on."""
    return [rng.standard_normal((n, 10)) * 10.0 ** rng.integers(-20, 20, size=(n, 1)) for n in (90, 70)]


def offset(rng):
    return [(rng.standard_normal((n, 30)) + 5000).astype(np.float32) for n in (90, 70)]


def far_apart(rng):
    return [rng.standard_normal((90, 5)), rng.standard_normal((70, 5)) + 1e9]


def one_distinct_point(rng):
    return [
        np.full((9, 3), 0.1, np.float32),
        np.concatenate([np.full((7, 3), 0.1), np.ones((2, 3))]).astype(np.float32),
    ]


def half_precision(rng):
    return [rng.standard_normal((n, 20)).astype(np.float16) for n in (90, 70)]


def few_points(rng):
    return [rng.standard_normal((n, 2)) for n in (6, 7)]


SETS = [
    near_duplicates,
    exact_ties,
    crowded_centre,
    wild_scales,
    offset,
    far_apart,
    one_distinct_point,
    half_precision,
    few_points,
]


@pytest.mark.parametrize("boundary", ["closed", "open"])
@pytest.mark.parametrize("make", SETS, ids=lambda make: make.__name__)
def test_scores_are_those_of_the_definition(make, boundary):
    reference, generated = make(np.random.default_rng(0))
    for k, scores in zip(
        (5, 1), knn_scores_by_k(reference, generated, ks=(5, 1), boundary=boundary, ceiling=None), strict=True
    ):
        assert tuple(scores) == knn_oracle.scores(reference, generated, k=k, boundary=boundary)


@pytest.mark.parametrize("make", SETS, ids=lambda make: make.__name__)
def test_scores_are_those_of_the_definition_in_many_blocks(make, monkeypatch):
    monkeypatch.setattr(knn_search, "CPU_BLOCK", 1000)
    reference, generated = make(np.random.default_rng(1))
    scores = knn_scores(reference, generated, k=3, ceiling=None)
    assert tuple(scores) == knn_oracle.scores(reference, generated, k=3, boundary="closed")


@given(
    st.integers(0, 10_000),
    st.integers(1, 4),
    st.sampled_from(["closed", "open"]),
    st.integers(1, 30),
    st.integers(1, 3),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_scores_are_those_of_the_definition_on_small_lattices(seed, k, boundary, n, dims):
    rng = np.random.default_rng(seed)
    reference, generated = (rng.integers(-2, 3, size=(k + 1 + extra, dims)) for extra in rng.integers(0, n + 1, size=2))
    scores = knn_scores(reference, generated, k=k, boundary=boundary, ceiling=None)
    assert tuple(scores) == knn_oracle.scores(reference, generated, k=k, boundary=boundary)


def test_radii_of_many_neighbours():
    x = np.random.default_rng(0).standard_normal((60, 6))
    for squared, k in zip(squared_radii(torch.tensor(x), (40, 2)), (40, 2), strict=True):
        np.testing.assert_allclose(squared.numpy(), knn_oracle.squared_radii(x, k), rtol=1e-14)


def test_a_product_less_precise_than_its_error_bound_is_refused(monkeypatch):
    """As if the product were TF32: its scores would look right and be wrong."""
    real = torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *a, **o: real(*a, **o) + 1e-3)
    x = np.random.default_rng(0).standard_normal((50, 300))
    with pytest.raises(RuntimeError, match="err more than"):
        knn_scores(x, x)


def test_the_screen_does_not_use_the_reduced_precision_that_the_caller_allowed():
    x = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        scores = knn_scores(x[:200], x[200:], ceiling=None)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert tuple(scores) == knn_oracle.scores(x[:200], x[200:], k=4, boundary="closed")


def test_few_pairs_are_computed_in_float64(monkeypatch):
    """The candidates of each point, and a handful of close calls."""
    pairs = []
    monkeypatch.setattr(
        knn_search, "squared_distance", lambda x, i, y, j: (pairs.append(len(i)), squared_distance(x, i, y, j))[1]
    )
    x, y = (np.random.default_rng(seed).standard_normal((500, 64)).astype(np.float32) for seed in (0, 1))
    knn_scores(x, y, ceiling=None)
    assert sum(pairs) < 1000 * (4 + knn_search.SPARE) + 100


def test_equal_distances_compare_equal_wherever_a_pair_stands():
    """Sums ordered by position in a batch would break ties by chance; 1283 features divide into no vector length."""
    x = torch.randn(40, 1283, generator=torch.Generator().manual_seed(0))
    i, j = torch.arange(40), torch.arange(40).roll(1)
    alone = torch.cat([squared_distance(x, i[p : p + 1], x, j[p : p + 1]) for p in range(40)])
    assert torch.equal(squared_distance(x, i, x, j), alone)
    assert torch.equal(squared_distance(x, j, x, i), alone)


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.tensor, np.ndarray.tolist, lambda x: torch.tensor(x).requires_grad_()]
)
def test_arrays_tensors_and_lists_give_the_same(convert):
    x, y = (np.random.default_rng(seed).standard_normal((20, 3)) for seed in (0, 1))
    assert knn_scores(convert(x), convert(y)) == knn_scores(x, y)


def test_minus_zero_is_zero():
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [3.0, 1.0]])
    assert knn_scores(x, x, k=1).diagnostics.duplicates_reference == 1


def test_duplicates_zero_radii_and_copies_are_counted():
    reference = np.array([[0.0]] * 6 + [[5.0], [7.0], [8.0]])
    generated = np.array([[0.0], [0.0], [5.0], [6.0], [9.0], [9.0]])
    found = knn_scores(reference, generated, k=2).diagnostics
    assert (found.duplicates_reference, found.duplicates_generated) == (5, 2)
    assert (found.zero_radii_reference, found.zero_radii_generated) == (6, 0)
    assert found.shared == 3


NAN, INF = float("nan"), float("inf")
REFUSED = [
    ("reference must be finite, row 1", [[0.0], [NAN], [1.0]], [[0.0], [1.0]], {}),
    ("generated must be finite, row 0", [[0.0], [1.0]], [[INF], [1.0]], {}),
    ("reference must have more than k = 1 points, got 1", [[0.0]], [[0.0], [1.0]], {}),
    ("generated must have more than k = 2 points, got 2", [[0.0], [1.0], [2.0]], [[0.0], [1.0]], {"k": 2}),
    ("k must be a whole number of at least 1", [[0.0], [1.0]], [[0.0], [1.0]], {"k": 0}),
    ("the reference's 1 features, got 2", [[0.0], [1.0]], [[0.0, 1.0], [1.0, 2.0]], {}),
    ("reference must have shape", [0.0, 1.0], [[0.0], [1.0]], {}),
    ("generated must have shape", [[0.0], [1.0]], np.zeros((0, 1)), {}),
    ("reference must hold real numbers", [[1j], [2j]], [[0.0], [1.0]], {}),
    ("reference must lie between", [[1e200], [0.0]], [[0.0], [1.0]], {}),
    ("level must lie strictly between", [[0.0], [1.0]], [[0.0], [1.0]], {"level": 1.0}),
]


@pytest.mark.parametrize(("message", "reference", "generated", "options"), REFUSED, ids=[row[0] for row in REFUSED])
def test_bad_input_is_refused_by_name(message, reference, generated, options):
    with pytest.raises(ValueError, match=message):
        knn_scores(reference, generated, **{"k": 1, **options})


def test_the_smallest_legal_set_has_one_more_point_than_k():
    x = np.random.default_rng(0).standard_normal((6, 2))
    assert tuple(knn_scores(x, x, k=5)) == (1.0, 1.0, 6 / 5, 1.0)


def test_a_reference_scores_many_models_with_its_radii_computed_once(monkeypatch):
    rng = np.random.default_rng(0)
    x, models = rng.standard_normal((50, 5)), [rng.standard_normal((40, 5)) * scale for scale in (0.5, 1.0)]
    reference = KnnReference(x, ks=(3, 4))
    seen = []
    monkeypatch.setattr(knn, "squared_radii", lambda rows, ks: (seen.append(len(rows)), squared_radii(rows, ks))[1])
    found = [reference.scores(model)[1] for model in models]
    assert seen == [40, 40]
    assert [scores.four for scores in found] == [knn_scores(x, model, ceiling=None).four for model in models]
