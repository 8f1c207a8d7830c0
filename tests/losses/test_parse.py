"""Spec strings: they round-trip, and a wrong one is refused with what is legal."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.losses import (
    DCO,
    EAFT,
    GEM,
    NLL,
    TOFU,
    CDiv,
    EntropyBonus,
    Focal,
    LabelSmoothing,
    LambdaPR,
    Product,
    TaiLr,
    TokenWeight,
    Trunc,
    TruncR,
    Warmup,
    parse,
)  # fmt: skip

positive = st.floats(1e-12, 1e6, allow_nan=False)
bounds = {"floor": st.floats(0, 0.5), "cap": st.one_of(st.just(math.inf), st.floats(0.5, 1e9))}
single = st.one_of(
    st.builds(NLL, **bounds),
    st.builds(CDiv, alpha=st.floats(0, 10), **bounds),
    st.builds(CDiv, alpha=st.floats(0, 10)),
    st.builds(TaiLr, gamma=st.floats(0, 1), **bounds),
    st.builds(LambdaPR, lam=positive, gamma=st.floats(1e-9, 1), **bounds),
    st.builds(
        Trunc, drop=st.floats(0, 0.99), window=st.integers(1, 10**6), score=st.sampled_from(["sum", "mean"]), **bounds
    ),
    st.builds(
        TruncR, drop=st.floats(0, 0.99), window=st.integers(1, 10**6), score=st.sampled_from(["sum", "mean"]), **bounds
    ),
)
bent = st.one_of(
    st.builds(GEM, beta=st.floats(1e-3, 10), **bounds),
    st.builds(TOFU, gamma=st.floats(0, 9), beta=st.floats(1e-3, 1)),
    st.builds(LabelSmoothing, eps=st.floats(0, 1)),
    st.builds(EntropyBonus, bonus=st.floats(0, 10)),
)
single = st.one_of(
    single,
    st.builds(Focal, gamma=st.floats(0, 9), **bounds),
    st.builds(EAFT, power=st.floats(0, 9)),
    st.builds(DCO, n=st.floats(1, 1e6)),
)
product = st.tuples(single, st.one_of(single, bent)).map(lambda parts: Product(*parts))
single = st.one_of(single, bent)
weights = st.one_of(single, product, st.builds(Warmup, steps=st.integers(0, 10**6), then=st.one_of(single, product)))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(weights)
def test_every_loss_prints_as_a_spec_that_parses_back_to_it(weight):
    assert parse(str(weight)) == weight


def test_the_cap_of_cdiv_is_shown_wherever_the_loss_is_shown():
    assert str(parse("cdiv:alpha=1.4")) == "cdiv:alpha=1.4,cap=10.0"
    assert str(parse("cdiv:alpha=1.4,cap=inf")) == "cdiv:alpha=1.4,cap=inf"
    assert str(parse("cdiv:alpha=0.8")) == "cdiv:alpha=0.8"
    assert "cap=10.0" in repr(parse("cdiv:alpha=1.4"))


REFUSED = [
    ("cdvi:alpha=1", r"no loss is called 'cdvi'; did you mean 'cdiv'\? Losses: nll, trunc"),
    ("cdiv:alfa=1.4", r"cdiv takes no 'alfa'; did you mean 'alpha'\? It takes alpha, cap, floor"),
    ("cdiv", r"cdiv needs alpha: write cdiv:alpha=\.\.\."),
    ("lambda_pr", r"needs lam and gamma"),
    ("cdiv:alpha=-1", r"alpha=-1.0 is out of range; legal: 0 <= alpha < inf"),
    ("cdiv:alpha=nan", r"out of range"),
    ("cdiv:alpha=big", r"alpha=big is not a number"),
    ("cdiv:alpha", r"'alpha' is not name=value"),
    ("cdiv:alpha=1,alpha=2", r"alpha is given twice"),
    ("tailr:gamma=1.5", r"legal: 0 <= gamma <= 1"),
    ("lambda_pr:lam=0,gamma=.1", r"lam=0.0 is out of range; legal: 0 < lam < inf \(0 gives every token the weight 0"),
    ("lambda_pr:lam=.5,gamma=0", r"nothing trains; legal: 0 < gamma <= 1"),
    ("trunc:drop=1", r"legal: 0 <= drop < 1"),
    ("trunc:drop=.1,window=0", r"window=0; legal: a whole number, at least 1"),
    ("trunc:drop=.1,window=1.5", r"window=1.5 is not a whole number"),
    ("trunc:drop=.1,start=0", r"start=0; legal: a whole number, at least 1"),
    ("trunc:drop=.1,score=median", r"score='median'; legal: 'sum' or 'mean'"),
    ("nll:floor=2,cap=1", r"floor=2 is above cap=1"),
    ("cdiv:alpha=1.4,cap=0", r"cap=0.0 is out of range; legal: 0 < cap <= inf \(0 leaves no token any weight"),
    ("nll:floor=-1", r"legal: 0 <= floor < inf"),
    ("gold:steps=3 then dft", r"write nll:steps=N before 'then'"),
    ("nll then dft", r"write nll:steps=N before 'then'"),
    ("nll:steps=1 then nll:steps=2 then dft", r"one schedule, outermost"),
    ("", r"no loss is called ''"),
    ("gem:beta=0", r"beta=0.0 is out of range; legal: 0 < beta < inf \(0 divides the logits by 0"),
    ("tofu:beta=1.5", r"legal: 0 < beta <= 1"),
    ("dco:n=0.5", r"legal: 1 <= n < inf"),
    ("gem * smooth:eps=0.1", r"two residuals have no product; legal: at most one such factor"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=[spec for spec, _ in REFUSED])
def test_a_wrong_spec_is_refused_with_what_is_legal(spec, message):
    with pytest.raises(ValueError, match=message):
        parse(spec)


def test_an_object_goes_through_parse_as_it_is():
    class Mine(TokenWeight):
        def weigh(self, rows):
            return rows.logq.exp()

    mine = Mine()
    assert parse(mine) is mine


def test_a_schedule_inside_a_product_is_refused():
    with pytest.raises(ValueError, match="outside a product"):
        Product(NLL(), Warmup(steps=3, then=CDiv(alpha=0.5)))
