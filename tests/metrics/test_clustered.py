"""k-means, PCA, and the two metrics on cluster histograms: MAUVE and PRD."""

import importlib
import json

import numpy as np
import pytest
import torch

from widen.metrics import fit_pca, kmeans, mauve_of_histograms, mauve_score, prd_scores, unit_rows
from widen.metrics.clusters import lloyd, plus_plus
from widen.metrics.prd import best_f
from widen.theory import pr_curve


def blobs(rng, n=60, spread=0.05):
    centres = 3 * np.eye(4)
    return centres[rng.integers(4, size=n)] + spread * rng.standard_normal((n, 4))


def test_kmeans_finds_separate_blobs():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    rows = 3 * np.eye(4)[truth] + 0.05 * rng.standard_normal((100, 4))
    labels = kmeans(rows, 4).labels
    assert {tuple(np.unique(labels[truth == t])) for t in range(4)} == {(c,) for c in range(4)}


def test_lloyd_never_raises_the_inertia_and_ends_at_nearest_centres():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 6))
    start = plus_plus(rows, 12, rng)
    inertias = [lloyd(rows, start, steps).inertia for steps in range(1, 30)]
    assert (np.diff(inertias) <= 1e-9).all()
    found = kmeans(rows, 12)
    distance = np.square(rows[:, None] - found.centres[None]).sum(-1)
    assert (distance.argmin(1) == found.labels).all()
    assert found.inertia == pytest.approx(distance.min(1).sum())
    for cluster in range(12):
        np.testing.assert_allclose(found.centres[cluster], rows[found.labels == cluster].mean(0), atol=1e-12)


def test_more_starts_are_no_worse_and_a_seed_repeats():
    rows = np.random.default_rng(0).standard_normal((150, 5))
    assert kmeans(rows, 20, restarts=8).inertia <= kmeans(rows, 20, restarts=1).inertia
    assert (kmeans(rows, 20, seed=3).labels == kmeans(rows, 20, seed=3).labels).all()


def test_a_cluster_that_loses_all_its_points_takes_the_one_that_fits_worst():
    rows = np.array([[0.0], [0.1], [5.0], [5.1]])
    found = lloyd(rows, np.array([[0.0], [1000.0]]), 10)  # nothing is nearest to the second centre
    assert found.inertia == pytest.approx(2 * 0.005)


def test_kmeans_of_fewer_distinct_points_than_clusters_is_exact():
    found = kmeans(np.repeat(np.eye(3), 4, 0), 5)
    assert found.inertia == pytest.approx(0, abs=1e-12)
    assert len(set(found.labels)) == 3


@pytest.mark.parametrize("clusters", [0, 4])
def test_kmeans_refuses_more_clusters_than_points(clusters):
    with pytest.raises(ValueError, match="between 1 and the 3 points"):
        kmeans(np.eye(3), clusters)


@pytest.mark.parametrize(("n", "dims"), [(50, 8), (8, 50)])
def test_pca_keeps_the_fewest_directions_that_reach_the_share(n, dims):
    rows = np.random.default_rng(0).standard_normal((n, dims)) * np.linspace(3, 0.1, dims)
    pca = fit_pca(rows, share=0.8)
    variance = np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2
    kept = variance.cumsum() / variance.sum()
    assert len(pca.components) == int(np.argmax(kept >= 0.8)) + 1
    assert pca.share == pytest.approx(kept[len(pca.components) - 1])
    np.testing.assert_allclose(pca.components @ pca.components.T, np.eye(len(pca.components)), atol=1e-10)


def test_pca_of_everything_keeps_distances():
    rows = np.random.default_rng(0).standard_normal((30, 6))
    reduced = fit_pca(rows, share=1.0)(rows)
    before, after = (np.linalg.norm(r[:, None] - r[None], axis=-1) for r in (rows, reduced))
    np.testing.assert_allclose(before, after, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "share", "message"),
    [
        (np.ones((5, 3)), 0.9, "all equal"),
        (np.eye(3), 0.0, "share"),
        (np.ones((1, 3)), 0.9, "at least 2"),
        (np.full((3, 2), np.nan), 0.9, "finite"),
    ],
)
def test_pca_refuses(rows, share, message):
    with pytest.raises(ValueError, match=message):
        fit_pca(rows, share=share)


def test_a_zero_row_has_no_direction():
    with pytest.raises(ValueError, match="row 1 is"):
        unit_rows([[1.0, 0.0], [0.0, 0.0]])


def mauve_by_definition(p, q, scale=5.0):
    """Fine mixtures and a fine area: what the 25 points of the metric approximate."""
    points = [(0.0, 1.0)]
    for lam in np.linspace(1 - 1e-6, 1e-6, 20_001):
        r = lam * p + (1 - lam) * q
        kl = [sum(a * np.log(a / b) for a, b in zip(law, r, strict=True) if a > 0) for law in (q, p)]
        points.append((np.exp(-scale * kl[0]), np.exp(-scale * kl[1])))
    x, y = np.array([*points, (1.0, 0.0)]).T
    return np.trapezoid(y, x)


def test_mauve_is_the_area_under_its_curve():
    p, q = np.array([0.6, 0.3, 0.1, 0.0]), np.array([0.3, 0.3, 0.2, 0.2])
    assert mauve_of_histograms(p, q) == pytest.approx(mauve_by_definition(p, q), abs=2e-3)


def test_mauve_of_equal_laws_is_1_of_disjoint_ones_nearly_0_and_symmetric():
    p, q = np.random.default_rng(0).dirichlet(np.ones(10), size=2)
    assert mauve_of_histograms(p, p) == 1.0
    assert mauve_of_histograms([1.0, 0.0], [0.0, 1.0]) < 0.01
    assert mauve_of_histograms(p, q) == pytest.approx(mauve_of_histograms(q, p), rel=1e-12)


def test_mauve_falls_as_the_sets_part():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6))
    values = [
        mauve_score(x, rng.standard_normal((200, 6)) + shift, pca=None, normalise=False, baseline=False, seeds=2).value
        for shift in (0.0, 0.5, 1.5, 5.0)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.85
    assert values[-1] < 0.05


def test_mauve_comes_with_seed_spread_and_same_distribution_baseline():
    rng = np.random.default_rng(0)
    found = mauve_score(rng.standard_normal((120, 6)), rng.standard_normal((100, 6)) + 1.0, seeds=4)
    assert len(found.spread.each) == 4
    assert found.spread.least < found.value < found.spread.most
    assert found.value == pytest.approx(np.mean(found.spread.each))
    assert found.baseline.real.mean > found.baseline.model.mean + 0.1
    assert (found.baseline.n_reference, found.baseline.n_generated, found.clusters) == (60, 60, 10)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["scale"] == 5.0


@pytest.mark.slow
def test_mauve_agrees_with_mauve_text():
    """On the same histograms to rounding; on features within the spread of the seeds. It is GPL: an oracle, never a dependency."""
    pytest.importorskip("mauve", reason="pip install mauve-text faiss-cpu")
    theirs = importlib.import_module("mauve.compute_mauve")
    p, q = np.random.default_rng(0).dirichlet(np.ones(40), size=2)
    curve = theirs.get_divergence_curve_for_multinomials(p, q, np.linspace(1e-6, 1 - 1e-6, 25), 5)
    order = np.argsort(curve[:, 0])
    assert mauve_of_histograms(p, q) == pytest.approx(np.trapezoid(curve[order, 1], curve[order, 0]), rel=1e-9)
    rng = np.random.default_rng(1)
    x, y = (
        scale * rng.standard_normal((1000, 64)) * np.linspace(2, 0.1, 64) + shift
        for scale, shift in ((1.0, 0.0), (0.8, 0.2))
    )
    ours = mauve_score(x, y, seeds=10, baseline=False)
    value = theirs.compute_mauve(p_features=x.astype(np.float32), q_features=y.astype(np.float32), verbose=False).mauve
    assert ours.spread.least - 0.01 <= value <= ours.spread.most + 0.01


def test_prd_of_histograms_is_the_exact_curve():
    """Blobs that k-means cannot miss: the histograms are the true shares, and so is the curve."""
    rng = np.random.default_rng(0)
    kinds = [np.repeat(np.arange(4), shares) for shares in ([40, 30, 20, 10], [10, 50, 40, 0])]
    x, y = (5 * np.eye(4)[kind] + 0.01 * rng.standard_normal((100, 4)) for kind in kinds)
    found = prd_scores(x, y, clusters=4, runs=3, restarts=5, baseline=False)
    exact = pr_curve([0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.4, 0.0])
    assert found.auc == pytest.approx(exact.auc, rel=1e-12)
    assert found.part.auc.least == found.part.auc.most
    np.testing.assert_allclose(found.precision, exact.precision(found.lam), atol=1e-12)
    np.testing.assert_allclose(found.recall, exact.recall(found.lam), atol=1e-12)
    assert (found.precision[-1], found.recall[0]) == pytest.approx((1.0, 0.9))


@pytest.mark.parametrize("b", [8.0, 0.125, 1.0])
def test_best_f_is_the_best_of_a_fine_grid(b):
    p, q = np.random.default_rng(0).dirichlet(np.ones(12), size=2)
    curve = pr_curve(p, q)
    lam = np.tan(np.linspace(1e-6, np.pi / 2 - 1e-6, 200_001))
    precision, recall = curve.precision(lam), curve.recall(lam)
    grid = ((1 + b * b) * precision * recall / (b * b * precision + recall)).max()
    assert best_f(curve, b) == pytest.approx(grid, rel=1e-5)
    assert best_f(curve, b) >= grid - 1e-12


def test_prd_tells_a_narrow_model_from_a_noisy_one():
    """A model that misses half of the kinds loses recall; one that adds kinds of its own loses precision."""
    rng = np.random.default_rng(0)
    kinds = 5 * np.eye(8)

    def draw(which, n=200):
        return kinds[rng.choice(which, size=n)] + 0.05 * rng.standard_normal((n, 8))

    x = draw(range(4))
    narrow, noisy = (prd_scores(x, draw(which), clusters=8, runs=4) for which in (range(2), range(8)))
    assert narrow.f_eighth > narrow.f8 + 0.2
    assert noisy.f8 > noisy.f_eighth + 0.2
    assert narrow.baseline.real.auc.mean > 0.7 > narrow.baseline.model.auc.mean
    assert json.loads(json.dumps(narrow.to_json(), allow_nan=False))["lam"][-1] == "inf"


REFUSED = [
    ("reference must be finite, row 0", lambda x: mauve_score(np.full_like(x, np.nan), x)),
    ("the reference's 4 features, got 3", lambda x: prd_scores(x, x[:, :3])),
    ("generated must have shape", lambda x: mauve_score(x, x[0])),
    ("clusters must lie between 2", lambda x: prd_scores(x, x[:10], clusters=20)),
    ("seeds must be at least 1", lambda x: mauve_score(x, x, seeds=0)),
    ("runs must be at least 1", lambda x: prd_scores(x, x, runs=0)),
    ("at least 2 points each", lambda x: mauve_score(x, x[:1])),
    ("distributions on the same cells", lambda x: mauve_of_histograms([0.5, 0.5], [0.5, 0.4])),
    ("scale must be above 0", lambda x: mauve_of_histograms([1.0], [1.0], scale=0.0)),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_bad_input_is_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call(blobs(np.random.default_rng(0)))


def test_tensors_are_taken():
    x = blobs(np.random.default_rng(0))
    assert prd_scores(torch.tensor(x), x, clusters=4, runs=1).auc == pytest.approx(1.0)
