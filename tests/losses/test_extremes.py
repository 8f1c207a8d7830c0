"""Every loss where tokens and sequences are almost impossible or almost certain: finite, and what its formula says."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.data.targets import Sequences
from widen.losses import DCO, LOSSES, Rows, parse
from widen.train.objective import Objective

SETTINGS = {"cdiv": "cdiv:alpha=1.4", "tailr": "tailr:gamma=1e-5", "lambda_pr": "lambda_pr:lam=0.1,gamma=1e-5"}
SETTINGS |= {name: f"{name}:drop=0.1,window=64" for name in ("trunc", "truncr")}
SPECS = [SETTINGS.get(name, name) for name in LOSSES]
SPECS += ["cdiv:alpha=2", "focal:gamma=0.5", "tofu:gamma=1,beta=0.8", "dco:n=2", "dco:n=1000", "dco:n=1e9"]
KINDS = ["float64", "float32", "bfloat16"]
"""Of log q. The losses get those of bfloat16 as float32."""


def as_kind(x, kind):
    return x.bfloat16().float() if kind == "bfloat16" else x.to(getattr(torch, kind))


def weights_of(loss, logq_BL):
    """The weights, from a reference model whose targets have probability 1/2."""
    rows = Rows(logq_BL, entropy=-logq_BL, extra={"ref_logq": torch.full_like(logq_BL, math.log(0.5))})
    return loss.apply(rows, torch.ones_like(logq_BL, dtype=torch.bool), loss.init())[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", SPECS)
def test_no_weight_is_infinite_for_sequences_from_minus_100000_to_minus_1e_12(spec, kind):
    """The tokens of a row have equal shares: from -200 on."""
    some = torch.cat([torch.logspace(-12, 5, 700, dtype=torch.float64), torch.linspace(1, 1200, 2400).double()])
    for length in (1, 500):
        rows = as_kind(-some[some / length <= 200, None] / length, kind).expand(-1, length)
        w = weights_of(parse(spec), rows)
        assert w.isfinite().all()
        assert (w >= 0).all()
        assert (w * rows).isfinite().all()


@pytest.mark.parametrize("spec", SPECS)
def test_a_log_probability_above_0_by_rounding_has_the_weight_of_a_certain_token(spec):
    above, certain = torch.full((2, 3), 1e-6), torch.zeros(2, 3)
    torch.testing.assert_close(weights_of(parse(spec), above), weights_of(parse(spec), certain), rtol=1e-4, atol=1e-4)


@settings(max_examples=200, deadline=None)
@given(size=st.floats(-12, 5), n=st.sampled_from([1.5, 2.0, 16.0, 1e3, 1e9]))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dco_has_the_digits_of_its_dtype_at_every_probability_of_an_answer(size, n, dtype):
    logp = torch.tensor([-(10**size)], dtype=dtype)
    found, expected = DCO(n=n).factor(logp).item(), float(exact_dco(logp.item(), n))
    # Where F is small it is exp of a large number, whose rounding error counts.
    digits = 30 * torch.finfo(dtype).eps * (1 - math.log(max(expected, torch.finfo(dtype).tiny)))
    assert found == pytest.approx(expected, rel=digits, abs=torch.finfo(dtype).tiny)


def exact_dco(logp, n):
    with mpmath.workdps(60):
        log_rest = mpmath.log(-mpmath.expm1(logp)) if logp > -1 else mpmath.log1p(-mpmath.exp(logp))
        return -n * mpmath.exp(logp + (n - 1) * log_rest) / mpmath.expm1(n * log_rest)


def focal(logq, gamma):
    rest = -mpmath.expm1(logq)
    return rest**gamma - gamma * mpmath.exp(logq) * rest ** (gamma - 1) * logq


EXACT = {
    "gold": lambda x: mpmath.exp(x / 2),
    "dft": mpmath.exp,
    "cdiv:alpha=1.4": lambda x: min(mpmath.exp(-x * mpmath.mpf(2) / 5), 10),
    "tailr:gamma=1e-5": lambda x: 1 / (1 + (mpmath.exp(-x) - 1) / 10**5),
    "focal:gamma=0.5": lambda x: focal(x, mpmath.mpf(1) / 2),
    "focal:gamma=2": lambda x: focal(x, 2),
    "tofu:gamma=3,beta=0.8": lambda x: focal(x, 3),
    "asft:kl=0.5": lambda x: mpmath.exp(x) + mpmath.mpf(1) / 4,
    "anchor:kl=0.5": lambda x: max(1 - (x + mpmath.log(2)) / 2, 0),
    "eaft": lambda x: -x / mpmath.log(20),
    "dco:n=16": lambda x: exact_dco(x, 16),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", EXACT)
def test_a_weight_is_its_formula_for_tokens_from_minus_200_to_minus_1e_12(spec, kind):
    logq = as_kind(-torch.logspace(-12, math.log10(200), 150, dtype=torch.float64), kind)
    with mpmath.workdps(60):
        expected = [float(EXACT[spec](mpmath.mpf(x))) for x in logq.tolist()]
    found = weights_of(parse(spec), logq[:, None])[:, 0].double()
    rtol, atol = (1e-12, 1e-300) if kind == "float64" else (1e-4, 1e-36)  # exp(-80) has lost a factor of 80
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("length", [1, 4, 500])
@pytest.mark.parametrize("spec", SPECS)
def test_loss_and_gradient_are_finite_and_those_of_float64_whatever_the_logits_say(spec, length):
    """The target's logit is 200 below the others to 40 above them. The head is 1, so the hidden states are the logits."""
    target_BC, found = torch.zeros(241, length, dtype=torch.int64), {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        z_NV = torch.zeros(241, length, 4, dtype=dtype)
        z_NV[:, :, 0] = torch.arange(-200, 41)[:, None]
        z_NV = z_NV.flatten(0, 1).requires_grad_()
        sequences = Sequences(target_BC, columns={"ref_logq": torch.full(target_BC.shape, -1.0)})
        head = torch.eye(4, dtype=dtype)
        out = Objective(parse(spec)).through_head(z_NV, head, sequences, num_tokens=float(target_BC.numel()))
        out.loss.backward()
        assert out.loss.isfinite()
        assert out.w_N.isfinite().all()
        assert z_NV.grad.isfinite().all()
        found[dtype] = out.loss.double().detach()
    torch.testing.assert_close(found[torch.float32], found[torch.float64], rtol=1e-5, atol=0)
    torch.testing.assert_close(found[torch.bfloat16], found[torch.float64], rtol=1e-2, atol=0)
