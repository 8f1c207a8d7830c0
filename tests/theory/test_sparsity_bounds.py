"""Theorem thm:PRcurveGeneral and its sharper forms against enumerated autoregressive models."""

import itertools
import math

import numpy as np
import pytest

from widen.theory import (
    acceptable_counts,
    log_sparsity,
    logit_range,
    pr_curve,
    sparsity_bound,
    sparsity_bound_attained,
    sparsity_bound_paper,
    tempered,
    tempered_log,
    tight_temperature,
)


def test_golden_bounds(golden):
    ar = golden["ar_exact"]
    support = math.log(len(ar["support"]))
    z = logit_range(list(ar["logits_by_prefix"].values()))
    assert z == pytest.approx(ar["Z"], rel=1e-12)
    for t, bound in ar["sparsity_bound"].items():
        sizes = dict(vocab=ar["V"], length=ar["L"], logit_range=z, temperature=float(t))
        assert math.exp(sparsity_bound_paper(log_support=support, **sizes)) == pytest.approx(bound["paper"], rel=1e-10)
        assert math.exp(sparsity_bound(log_support=support, **sizes)) == pytest.approx(
            min(1, bound["improved"]), rel=1e-10
        )
        one = math.exp(sparsity_bound(log_support=0.0, **sizes))  # |S| = 1, so that the cap at 1 hides nothing
        assert one == pytest.approx(bound["improved"] / 5, rel=1e-10)


def random_model(rng, vocab, length):
    """Logits of every prefix, and a random P on a random half of the sequences."""
    logits = {
        prefix: rng.normal(size=vocab) * 2
        for n in range(length)
        for prefix in itertools.product(range(vocab), repeat=n)
    }
    sequences = list(itertools.product(range(vocab), repeat=length))
    support = [s for s in sequences if rng.random() < 0.5] or sequences[:1]
    return logits, support, rng.dirichlet(np.ones(len(support)))


def law(logits, sequences, t):
    conditionals = {prefix: tempered_log(z, t) for prefix, z in logits.items()}
    return np.exp([sum(conditionals[s[:i]][s[i]] for i in range(len(s))) for s in sequences])


def test_no_model_exceeds_any_of_the_bounds():
    rng = np.random.default_rng(0)
    checked = 0
    for _ in range(25):
        vocab, length = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        logits, support, p = random_model(rng, vocab, length)
        z = logit_range([logits[s[:i]] for s in support for i in range(length)])
        for t in (0.3, 1.0, 3.0, 20.0):
            curve = pr_curve(p, law(logits, support, t))
            for lam in (0.05, 0.5, 1.0, 4.0):
                sizes = dict(vocab=vocab, logit_range=z, temperature=t)
                paper = sparsity_bound_paper(log_support=math.log(len(support)), length=length, **sizes)
                sharp = sparsity_bound(log_support=math.log(len(support)), length=length, lam=lam, **sizes)
                attained = sparsity_bound_attained(acceptable_counts(support), lam=lam, **sizes)
                precision = curve.precision(lam)
                assert precision <= math.exp(sharp) * (1 + 1e-12)
                assert sharp <= paper + 1e-12
                assert precision <= math.exp(attained) * (1 + 1e-12)
                assert curve.recall(lam) <= math.exp(sharp - math.log(lam)) * (1 + 1e-12)
                checked += 1
    assert checked == 400


@pytest.mark.parametrize("t", [0.2, 1.0, 5.0, math.inf])
def test_the_attained_bound_is_reached_by_a_two_level_model(t):
    vocab, counts, z = 4, [2, 3], 1.5
    first = tempered(np.exp([0.0, 0.0, -z, -z]) / np.exp([0.0, 0.0, -z, -z]).sum(), t)
    second = tempered(np.exp([0.0, 0.0, 0.0, -z]) / np.exp([0.0, 0.0, 0.0, -z]).sum(), t)
    q = np.outer(first, second)[:2, :3].ravel()
    for lam in (0.01, 0.3, 1.0, math.inf):
        bound = sparsity_bound_attained(counts, vocab=vocab, logit_range=z, temperature=t, lam=lam)
        assert pr_curve(np.full(6, 1 / 6), q).precision(lam) == pytest.approx(math.exp(bound), rel=1e-13)


def test_the_tight_temperature_is_where_the_last_step_turns_into_an_equality():
    vocab, k, length, z, lam = 10, 3, 2, 2.0, 1.0
    t = tight_temperature(vocab=vocab, acceptable=k, length=length, logit_range=z, lam=lam)

    def holds(temperature):
        return lam * k**-length >= (math.exp(z / temperature) / vocab) ** length

    assert holds(t * (1 + 1e-9))
    assert not holds(t * (1 - 1e-9))
    assert tight_temperature(vocab=vocab, acceptable=k, length=length, logit_range=z, lam=0.09) == math.inf
    assert tight_temperature(vocab=vocab, acceptable=k, length=length, logit_range=z, lam=0.0) == math.inf
    assert tight_temperature(vocab=vocab, acceptable=k, length=length, logit_range=z, lam=math.inf) == 0.0


def test_the_papers_bound_is_not_tight_at_the_papers_temperature():
    """V=10, K=3, L=2, Z=2, lam=1: ratio .618 at the printed t, .805 at twice it, .976 at 50."""
    sizes = dict(vocab=10, logit_range=2.0)
    printed = 2.0 + math.log(3)
    for t, ratio in ((printed, 0.618), (2 * printed, 0.805), (50.0, 0.976)):
        attained = sparsity_bound_attained([3, 3], temperature=t, lam=1.0, **sizes)
        paper = sparsity_bound_paper(log_support=math.log(9), length=2, temperature=t, **sizes)
        assert math.exp(attained - paper) == pytest.approx(ratio, abs=2e-3)


def test_limits_and_huge_spaces():
    sizes = dict(log_support=50_000.0, vocab=50_304, length=10_000)
    assert sparsity_bound(logit_range=30.0, temperature=math.inf, **sizes) == pytest.approx(log_sparsity(**sizes))
    assert sparsity_bound(logit_range=30.0, temperature=0.0, **sizes) == 0.0
    assert sparsity_bound(logit_range=math.inf, temperature=math.inf, **sizes) == 0.0
    assert sparsity_bound_paper(logit_range=math.inf, temperature=1.0, **sizes) == math.inf
    assert sparsity_bound_paper(logit_range=0.0, temperature=0.0, **sizes) == pytest.approx(log_sparsity(**sizes))
    several = sparsity_bound(logit_range=30.0, temperature=[0.5, 1.0, 2.0], lam=[[1.0], [0.1]], **sizes)
    assert several.shape == (2, 3)
    assert (np.diff(several) <= 0).all()
    attained = sparsity_bound_attained(
        [3, 3], vocab=10, logit_range=2.0, temperature=[[0.5], [2.0]], lam=[0.1, 1.0, 2.0]
    )
    assert attained.shape == (2, 3)


def test_acceptable_counts_are_the_branching_of_the_support():
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.integers(0, 3, size=(int(rng.integers(1, 12)), 3))
        sequences = {tuple(row) for row in x.tolist()}
        expected = [
            max(len({s[i] for s in sequences if s[:i] == prefix}) for prefix in {s[:i] for s in sequences})
            for i in range(3)
        ]
        assert acceptable_counts(x).tolist() == expected


def test_bad_input_is_refused_by_name():
    with pytest.raises(ValueError, match="log_support"):
        sparsity_bound(log_support=100.0, vocab=2, length=3, logit_range=1.0, temperature=1.0)
    with pytest.raises(ValueError, match="logit_range"):
        sparsity_bound_paper(log_support=0.0, vocab=2, length=3, logit_range=-1.0, temperature=1.0)
    with pytest.raises(ValueError, match="acceptable"):
        sparsity_bound_attained([0, 3], vocab=10, logit_range=1.0, temperature=1.0)
    with pytest.raises(ValueError, match="acceptable"):
        tight_temperature(vocab=5, acceptable=6, length=1, logit_range=1.0, lam=1.0)
    with pytest.raises(ValueError, match="length"):
        log_sparsity(log_support=0.0, vocab=5, length=0)
    with pytest.raises(ValueError, match="sequences"):
        acceptable_counts([1, 2])
