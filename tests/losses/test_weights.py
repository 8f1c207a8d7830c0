"""The weights themselves: golden values, stable forms, bounds, masks."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from widen.losses import (
    LOSSES,
    NLL,
    CDiv,
    LambdaPR,
    Rows,
    TaiLr,
    TokenWeight,
    parse,
    position_and_length,
    weighted_nll,
)
from widen.train.figures import Figures, staleness, starvation

GOLDEN = json.loads((Path(__file__).parent / "golden_weights.json").read_text())
SPECS = [
    "nll",
    "gold",
    "dft",
    "cdiv:alpha=0.8",
    "cdiv:alpha=1.4",
    "cdiv:alpha=2",
    "tailr:gamma=0.1",
    "tailr:gamma=1e-5",
    "lambda_pr:lam=0.5,gamma=0.1",
    "focal:gamma=2",
    "dco:n=16",
    "trunc:drop=0.25,window=8",
    "truncr:drop=0.25,window=8,score=mean",
    "truncr:drop=0.25,window=8 * cdiv:alpha=1.4",
    "nll:steps=1 then lambda_pr:lam=0.5,gamma=0.1",
]


def golden_q():
    return torch.tensor(GOLDEN["weights"]["q"], dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=0)


@pytest.mark.parametrize("alpha", GOLDEN["weights"]["cdiv"])
def test_cdiv_matches_the_golden_weights(alpha):
    close(CDiv(alpha=float(alpha), cap=math.inf).weigh(Rows(golden_q().log())), GOLDEN["weights"]["cdiv"][alpha])


@pytest.mark.parametrize("gamma", GOLDEN["weights"]["tailr"])
def test_tailr_matches_the_golden_weights(gamma):
    close(TaiLr(gamma=float(gamma)).weigh(Rows(golden_q().log())), GOLDEN["weights"]["tailr"][gamma])


@pytest.mark.parametrize(
    "case", GOLDEN["weights"]["lambda_pr"], ids=lambda c: f"lam={c['lambda']},gamma={c['gamma']},l={c['l']}"
)
def test_lambda_pr_matches_the_golden_weights(case):
    q = golden_q()
    loss = LambdaPR(lam=case["lambda"], gamma=case["gamma"])
    close(
        loss.weigh(Rows(q.log(), position=torch.full(q.shape, case["l"]), length=torch.full(q.shape, case["L"]))),
        case["w"],
    )


@pytest.mark.parametrize("case", [c for c in GOLDEN["delta_lambda"] if c["lambda"] < 1], ids=str)
def test_lambda_pr_threshold_matches_the_golden_delta(case):
    loss = LambdaPR(lam=case["lambda"], gamma=case["gamma"])
    assert loss.threshold(case["L"]) == pytest.approx(case["delta"], rel=1e-12)
    log_threshold = loss.log_threshold(torch.tensor(float(case["L"]), dtype=torch.float64))
    assert float(log_threshold) == pytest.approx(case["log_delta"], rel=1e-10)


def test_lambda_pr_in_float32_keeps_the_token_at_the_threshold():
    """The gate at lam near 1 must not lose digits to float32: delta here is 1 - 5e-9 and q = 1 - 1e-4 lies below it."""
    loss = LambdaPR(lam=0.999999999999, gamma=1e-7)
    w = loss.weigh(Rows(torch.tensor([math.log(0.9999)]), position=torch.tensor([1]), length=torch.tensor([2048])))
    assert w.item() > 0.99


@pytest.mark.parametrize("spec", SPECS)
def test_weights_are_finite_at_every_probability(spec):
    """q = 1, q far below the smallest float32, q = 0: none may give nan or inf."""
    loss = parse(spec)
    logq = torch.tensor([[0.0, -1e-8, -50.0, -100.0, -1e4, -math.inf]])
    w, _ = loss.apply(Rows(logq), torch.ones_like(logq, dtype=torch.bool), loss.init())
    assert w.isfinite().all()
    assert (w >= 0).all()


def test_cdiv_above_one_is_capped_unless_told_otherwise():
    logq = torch.tensor([-100.0])
    assert CDiv(alpha=2.0).weigh(Rows(logq)).item() == 10
    assert CDiv(alpha=2.0, cap=50.0).weigh(Rows(logq)).item() == 50.0
    assert CDiv(alpha=2.0, cap=math.inf).weigh(Rows(logq)).item() == math.inf
    assert CDiv(alpha=0.5).cap == math.inf


@pytest.mark.parametrize(
    "spec", ["nll", "gold", "cdiv:alpha=1.4", "tailr:gamma=0.1", "lambda_pr:lam=0.1,gamma=0.01", "truncr:drop=0.5"]
)
def test_floor_and_cap_bound_every_loss(spec):
    loss = replace(parse(spec), floor=0.5, cap=0.75)
    logq = torch.linspace(-12, 0, 40).view(4, 10)
    w, _ = loss.apply(Rows(logq), torch.ones_like(logq, dtype=torch.bool), loss.init())
    assert w.min() >= 0.5
    assert w.max() <= 0.75


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("rubbish", [math.nan, -math.inf, math.inf])
def test_what_lies_under_the_mask_changes_nothing(spec, rubbish):
    """Masked equals sliced away, value and gradient, whatever the padding holds."""
    torch.manual_seed(1)
    loss = parse(spec)
    clean = (torch.rand(5, 4, dtype=torch.float64)).log()
    padded = torch.cat([clean, torch.full((5, 3), rubbish, dtype=torch.float64)], 1)
    dirty = torch.cat([padded, torch.full((2, 7), rubbish, dtype=torch.float64)], 0)
    mask = torch.zeros(7, 7, dtype=torch.bool)
    mask[:5, :4] = True
    state, states = loss.init(), []
    for logq, m in [(clean, torch.ones(5, 4, dtype=torch.bool)), (dirty, mask)]:
        x = logq.clone().requires_grad_()
        value, state = weighted_nll(x, m, loss, loss.init(), num_tokens=20)
        value.backward()
        states.append((value.detach(), x.grad[:5, :4], loss.observe(loss.seen(state), state)))
        assert (x.grad[~m] == 0).all()
    torch.testing.assert_close(states[0], states[1], rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("spec", SPECS)
def test_a_batch_without_targets_gives_a_differentiable_zero(spec):
    loss = parse(spec)
    logq = torch.full((2, 3), math.nan, requires_grad=True)
    value, state = weighted_nll(logq, torch.zeros(2, 3, dtype=torch.bool), loss, loss.init(), num_tokens=0)
    value.backward()
    assert value.item() == 0
    assert (logq.grad == 0).all()
    loss.observe(loss.seen(state), state)


def test_half_precision_is_weighed_in_float32():
    """exp of a bf16 log-probability would have 3 digits; the weight must have 7."""
    logq = torch.tensor([[-3.0]], dtype=torch.bfloat16)
    value, _ = weighted_nll(logq, torch.tensor([[True]]), parse("gold"), (), num_tokens=1)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(3 * math.exp(-1.5), rel=1e-6)


def test_position_and_length_count_target_tokens_only():
    mask = torch.tensor([[False, True, True, False, True], [True, False, False, False, False], [False] * 5])
    position, length = position_and_length(mask)
    assert position[mask].tolist() == [1, 2, 3, 1]
    assert length[:, 0].tolist() == [3, 1, 0]


def test_a_weight_that_carries_a_gradient_is_refused():
    class Learned(TokenWeight):
        scale = torch.tensor(1.0, requires_grad=True)

        def weigh(self, rows):
            return self.scale * rows.logq.exp()

    with pytest.raises(ValueError, match="detached"):
        weighted_nll(torch.zeros(1, 1), torch.tensor([[True]]), Learned(), (), num_tokens=1)


def test_shapes_that_disagree_are_refused_with_both():
    with pytest.raises(Exception, match=r"B L|shape"):
        weighted_nll(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool), parse("nll"), (), num_tokens=1)


def test_lambda_pr_that_trains_almost_nothing_says_so_with_its_delta():
    loss = parse("lambda_pr:lam=0.1,gamma=1e-7")
    logq = torch.full((1, 512), math.log(0.5))
    mask = torch.ones(1, 512, dtype=torch.bool)
    w, _ = loss.apply(Rows(logq), mask, ())
    message = starvation(loss, Figures(tokens=512, counted=int((w > 0).sum())), mean_length=512)
    assert "delta = 2.2e-05" in message
    assert "0.00%" in message
    assert starvation(parse("nll"), Figures(tokens=1, counted=1)) is None


def test_the_table_of_losses_holds_the_papers_seven_and_their_rivals():
    assert set(LOSSES) == {
        *("nll", "trunc", "truncr", "gold", "cdiv", "tailr", "lambda_pr"),
        *("dft", "gem", "tofu", "focal", "smooth", "entropy", "eaft", "dco", "asft"),
        "anchor",
    }


LOCAL = [
    *(spec for spec in SPECS if not any(word in spec for word in (" then ", "trunc", "dco"))),
    "gold * cdiv:alpha=1.4",
]


@pytest.mark.parametrize("spec", [*LOCAL, "gold * lambda_pr:lam=0.5,gamma=0.1"])
def test_a_loss_keeps_what_it_promises_of_zeros_and_positions(spec):
    weight = parse(spec)
    logq, position, length = torch.linspace(-20, 0, 41), torch.arange(1, 42), torch.full((41,), 41)
    w = weight.weigh(Rows(logq, position=position, length=length))
    assert bool((w > 0).all()) == weight.never_zero  # a gate shows on this range: lambda-PR's delta lies inside it
    if "position" in weight.needs:
        assert not torch.equal(w, weight.weigh(Rows(logq, position=position.flip(0), length=length)))
    else:
        torch.testing.assert_close(weight.weigh(Rows(logq)), w, rtol=0, atol=0)


def test_a_loss_of_ones_own_promises_nothing_but_what_it_says():
    class Late(NLL):  # another `at`: what NLL promises of its own does not hold
        def weigh(self, rows):
            return (rows.position > 1).to(rows.logq.dtype)

    class Renamed(NLL):
        pass

    class Sure(NLL):
        needs, never_zero = frozenset({"logq"}), True

        def weigh(self, rows):
            return 1 - rows.logq

    assert [("position" in kind.needs, kind.never_zero) for kind in (TokenWeight, Late, Renamed, Sure)] == [
        (True, False), (True, False), (False, True), (False, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "left_out", "said"),
    [
        ("truncr:drop=0.2", 91, True),
        ("nll:steps=5 then truncr:drop=0.2,window=500 * cdiv:alpha=1.4", 91, True),
        ("truncr:drop=0.2", 40, False),
        ("trunc:drop=0.8", 85, False),
        ("cdiv:alpha=1.4", 91, False),
        ("truncr:drop=0.2 * lambda_pr:lam=0.1,gamma=1e-7", 91, False),
    ],
)
def test_a_threshold_older_than_the_model_is_said(loss, left_out, said):
    text = staleness(parse(loss), Figures(tokens=100, counted=100 - left_out))
    assert (text is not None) == said
    if said:
        assert "91% of the target tokens are left out where drop=0.2 was asked for" in text
        assert "Take a smaller window" in text
