"""What comes with a k-NN score: interval, real-versus-real ceiling at the same size, every setting, plain JSON."""

import json

import numpy as np
import pytest

from widen.metrics import KnnReference, knn_scores, knn_scores_by_k, share_interval


def normal(n, seed, scale=1.0, dims=8):
    return scale * np.random.default_rng(seed).standard_normal((n, dims))


@pytest.fixture(scope="module")
def scored():
    return knn_scores(normal(400, 0), normal(300, 1, 0.7))


def test_four_numbers_unpack_in_their_order(scored):
    precision, recall, density, coverage = scored
    assert (precision, recall, density, coverage) == (scored.precision, scored.recall, scored.density, scored.coverage)


def test_every_number_lies_in_its_interval(scored):
    for value, (low, high) in zip(scored, scored.intervals, strict=True):
        assert low <= value <= high
        assert low < high


def test_intervals_of_shares_are_those_of_their_bits(scored):
    assert scored.intervals.precision == share_interval(np.arange(300) < round(scored.precision * 300))
    assert scored.intervals.recall == share_interval(np.arange(400) < round(scored.recall * 400))


def test_all_settings_travel_with_the_score(scored):
    settings = scored.settings
    assert (settings.k, settings.boundary, settings.n_reference, settings.n_generated) == (4, "closed", 400, 300)
    assert (settings.dimensions, settings.dtype, settings.device) == (8, "float64", "cpu")
    assert (settings.level, settings.seed, settings.version) == (0.95, 0, 2)


def test_a_score_goes_through_json_and_back(scored):
    again = json.loads(json.dumps(scored.to_json(), allow_nan=False))
    assert again["precision"] == scored.precision
    assert again["intervals"]["recall"]["low"] == scored.intervals.recall.low
    assert again["ceiling"]["real"]["coverage"] == scored.ceiling.real.coverage
    assert again["settings"]["boundary"] == "closed"


def test_the_ceiling_scores_real_points_and_the_model_at_one_size(scored):
    ceiling = scored.ceiling
    assert (ceiling.n_reference, ceiling.n_generated) == (200, 200)
    assert all(0.6 < share < 1 for share in (ceiling.real.precision, ceiling.real.recall, ceiling.real.coverage))
    assert (
        ceiling.model.precision > ceiling.real.precision + 0.02
    )  # a model narrower than the data: more precise than real points
    assert ceiling.model.recall < ceiling.real.recall - 0.1


def test_the_split_is_two_halves_of_the_reference_and_no_point_is_in_both():
    """One half against itself would score 1; distinct halves of a sample with no duplicates share no point."""
    x = np.arange(40.0)[:, None] ** 3
    ceiling = knn_scores(x, x, k=1).ceiling
    order = np.random.default_rng(0).permutation(40)
    by_hand = knn_scores(x[order[:20]], x[order[20:]], k=1, ceiling=None)
    assert ceiling.real == by_hand.four
    assert ceiling.real.precision < 1


def test_a_reference_too_small_to_split_has_no_ceiling():
    assert knn_scores(normal(9, 0), normal(9, 1)).ceiling is None
    assert knn_scores(normal(10, 0), normal(10, 1)).ceiling is not None


def test_the_ceiling_of_a_reference_is_computed_once(monkeypatch):
    reference, made = KnnReference(normal(60, 0), ks=(3, 4)), []
    init = KnnReference.__init__
    monkeypatch.setattr(KnnReference, "__init__", lambda self, *a, **o: (made.append(1), init(self, *a, **o))[1])
    first, second = (reference.scores(normal(60, seed), ceiling="split") for seed in (1, 2))
    assert len(made) == 1
    assert [s.ceiling.real for s in first] == [s.ceiling.real for s in second]
    assert first[0].ceiling.model != second[0].ceiling.model


def test_each_k_has_its_own_score_and_ceiling():
    x, y = normal(60, 0), normal(50, 1)
    for k, scores in zip((2, 5), knn_scores_by_k(x, y, ks=(2, 5)), strict=True):
        alone = knn_scores(x, y, k=k)
        assert (scores.four, scores.intervals, scores.ceiling) == (alone.four, alone.intervals, alone.ceiling)


@pytest.mark.parametrize("ceiling", ["half", "", "second"])
def test_an_unknown_ceiling_is_refused(ceiling):
    with pytest.raises(Exception, match="ceiling"):  # by the type checker here, by ValueError in production
        knn_scores(normal(20, 0), normal(20, 1), ceiling=ceiling)


@pytest.mark.parametrize("ks", [(), (2, 2), (0,), (-1, 2)])
def test_ks_are_different_whole_numbers(ks):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        KnnReference(normal(20, 0), ks=ks)


def test_an_unknown_boundary_is_refused():
    with pytest.raises(Exception, match="boundary"):  # by the type checker here, by ValueError in production
        KnnReference(normal(20, 0), boundary="strict")
