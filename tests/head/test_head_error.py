"""The chunked head against eager torch and float64, over shapes and dtypes; exact identities in float64."""

from types import SimpleNamespace

import pytest
import torch
from head_oracle import (
    DTYPES,
    IDS,
    SHAPES,
    Bent,
    Gate,
    One,
    Power,
    Problem,
    check,
    check_residual,
    distance,
    through_logprob,
    through_weighted,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from widen import losses
from widen.head import linear_logprob, weighted_linear_nll
from widen.train.figures import Figures

SMALL, LARGE = SHAPES[:2], zip(SHAPES[2:], DTYPES, strict=True)  # the GPU takes every pair


@pytest.mark.parametrize(("shape", "dtype"), [*((shape, dtype) for shape in SMALL for dtype in DTYPES), *LARGE], **IDS)
def test_error_is_no_worse_than_eager(shape, dtype):
    check(shape, dtype, "chunked")


@pytest.mark.parametrize("dtype", DTYPES, **IDS)
def test_error_is_no_worse_than_eager_under_a_soft_cap(dtype):
    check((129, 507, 123), dtype, "chunked", softcap=3.0)


@pytest.mark.parametrize("dtype", DTYPES, **IDS)
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_error_of_another_residual_is_no_worse_than_eager(softcap, dtype):
    check_residual((129, 507, 123), dtype, "chunked", (0.7, 0.2, 0.3), softcap=softcap)


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize(
    ("tau", "smooth", "entropy"), [(0.7, 0.0, 0.0), (1.0, 0.2, 0.0), (1.0, 0.0, 0.3), (1.4, 0.1, 0.2)]
)
def test_the_gradient_of_every_residual_is_that_of_its_value(impl, tau, smooth, entropy):
    """By finite differences, and the residual itself by its formula."""

    class Constant(One):
        residual = SimpleNamespace(tau=tau, smooth=smooth, entropy=entropy)

    problem = Problem.make((4, 5, 3), torch.float64, ignored=0.0)

    def loss(*leaves):
        made = Problem(*leaves, problem.target, problem.position, problem.length)
        return made.weighted(Constant(), impl=impl, num_tokens=1, softcap=2.0).loss

    if impl == "eager":  # the others hand their gradient over once, and gradcheck asks twice
        assert torch.autograd.gradcheck(loss, list(problem.leaves.values()))
    z, target = torch.randn(4, 5, dtype=torch.float64, requires_grad=True), problem.target
    one = weighted_linear_nll(z, torch.eye(5, dtype=torch.float64), target, Constant(), num_tokens=1, impl=impl)
    logq = z.detach().log_softmax(1)
    q, entropy_N = logq.exp(), -(logq.exp() * logq).sum(1, keepdim=True)
    formula = (z.detach() / tau).softmax(1) - (1 - smooth) * torch.nn.functional.one_hot(target, 5) - smooth / 5
    torch.testing.assert_close(torch.autograd.grad(one.loss, z)[0], formula + entropy * q * (logq + entropy_N))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], **IDS)
def test_summing_in_float32_over_many_chunks_rounds_the_gradient_once(dtype):
    problem = Problem.make((512, 101, 32), dtype, ignored=0.0)
    exact = through_weighted(problem.to(torch.float64), Power(), impl="eager")
    eager = through_weighted(problem, Power(), impl="eager")
    chunk = 8 * 101 * 12
    wide = through_weighted(problem, Power(), impl="chunked", workspace=chunk, accumulate=torch.float32)
    narrow = through_weighted(problem, Power(), impl="chunked", workspace=chunk)
    for name in ("hidden", "head"):
        assert distance(wide[name], exact[name]) <= 1.1 * distance(eager[name], exact[name])
    if dtype == torch.bfloat16:
        assert distance(narrow["head"], exact["head"]) > 1.5 * distance(wide["head"], exact["head"])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    n=st.integers(0, 40), v=st.integers(1, 23), d=st.integers(1, 9), rows=st.integers(1, 50), seed=st.integers(0, 99),
    softcap=st.sampled_from([None, 0.7, 30.0]), bias=st.booleans(), ignored=st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
def test_chunked_is_eager_whatever_the_chunks(n, v, d, rows, seed, softcap, bias, ignored):
    """In float64 to the last digits: only the order of the sums differs."""
    problem = Problem.make((n, v, d), torch.float64, seed=seed, ignored=ignored) if n else empty(v, d)
    kw = {"softcap": softcap, "bias": bias}
    weight_N = torch.rand(n, dtype=torch.float64).round(decimals=1) * (torch.arange(n) % 3 != 0)
    for weight in (Power(), Gate(), Bent()):
        same(problem, lambda impl, w=weight: problem.weighted(w, impl=impl, **kw, **space(impl, rows, v)).loss)
    same(problem, lambda impl: (weight_N * problem.logprob(impl=impl, **kw, **space(impl, rows, v))).sum())


def empty(v, d):
    some = Problem.make((1, v, d), torch.float64)
    cut = [x.detach()[:0].requires_grad_() for x in (some.hidden,)]
    return Problem(*cut, some.head, some.bias, some.target[:0], some.position[:0], some.length[:0])


def space(impl, rows, v):
    return {"workspace": rows * v * 48} if impl == "chunked" else {}


def same(problem, loss_of):
    leaves = list(problem.leaves.values())
    a, b = loss_of("eager"), loss_of("chunked")
    torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-11)
    for x, y in zip(
        *(torch.autograd.grad(z, leaves, materialize_grads=True, allow_unused=True) for z in (a, b)), strict=True
    ):
        torch.testing.assert_close(y, x, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    "spec",
    [
        "nll",
        "cdiv:alpha=1.4",
        "gold",
        "dft",
        "tailr:gamma=0.1",
        "lambda_pr:lam=0.5,gamma=1e-2",
        "cdiv:alpha=2,floor=0.5",
    ],
)
@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_every_token_local_loss_gives_what_the_plain_reduction_gives(spec, impl):
    """`losses.weighted_nll` on log q, one sequence per row, is the definition; the head sees only l and L."""
    b, length, v, d = 4, 9, 31, 6
    torch.manual_seed(1)
    weight = losses.parse(spec)
    hidden, head = torch.randn(b * length, d, dtype=torch.float64), torch.randn(v, d, dtype=torch.float64)
    mask_BL = torch.rand(b, length) < 0.7
    position_BL, length_BL = losses.position_and_length(mask_BL)
    target_BL = torch.where(mask_BL, torch.randint(0, v, (b, length)), -100)
    problem = Problem(
        hidden.requires_grad_(), head.requires_grad_(), torch.zeros(v, dtype=torch.float64, requires_grad=True),
        target_BL.flatten(), position_BL.flatten(), length_BL.flatten(),
    )  # fmt: skip
    out = problem.weighted(weight, impl=impl, num_tokens=17, bias=False)
    logq_BL = linear_logprob(hidden, head, problem.target, impl="eager").view(b, length)
    loss, _ = losses.weighted_nll(logq_BL, mask_BL, weight, weight.init(), num_tokens=17)
    torch.testing.assert_close(out.loss, loss)
    got, expected = (torch.autograd.grad(x, (problem.hidden, problem.head)) for x in (out.loss, loss))
    torch.testing.assert_close(got, expected)
    assert out.num_targets == int(mask_BL.sum())


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_entropy_and_top1_are_those_of_the_softmax(impl):
    problem = Problem.make((33, 19, 5), torch.float64)
    out = problem.weighted(Power(), impl=impl, softcap=4.0, **space(impl, 10, 19))
    z_NV = 4.0 * torch.tanh((problem.hidden @ problem.head.T + problem.bias) / 4.0)
    counted_N = problem.target != -100
    entropy_N = torch.distributions.Categorical(logits=z_NV).entropy()
    torch.testing.assert_close(out.entropy_N, torch.where(counted_N, entropy_N, 0.0))
    assert torch.equal(out.is_top1_N, (z_NV.argmax(-1) == problem.target) & counted_N)
    assert 0 < out.is_top1_N.sum() < counted_N.sum()


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_the_sums_of_a_call_are_those_of_its_rows(impl):
    problem = Problem.make((33, 19, 5), torch.float64)
    out = problem.weighted(Gate(), impl=impl, num_tokens=17, **space(impl, 10, 19))
    w, counted = out.w_N.tolist(), int((problem.target != -100).sum())
    assert 0 < sum(x != 0 for x in w) < counted
    assert Figures(*out.sums.tolist())[:9] == pytest.approx(
        (
            -17 * out.loss.item(), sum(w), sum(x * x for x in w), max(w), sum(x != 0 for x in w), sum(out.logq_N.tolist()),
            sum(out.entropy_N.tolist()), sum(out.is_top1_N.tolist()), counted,
        )
    )  # fmt: skip


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_a_token_of_probability_zero_is_no_nan_where_its_weight_is_zero(impl):
    problem = Problem.make((6, 5, 3), torch.float64, ignored=0.0)
    with torch.no_grad():
        problem.bias[2] = -float("inf")
    problem.target[1] = 2  # Gate leaves position 2 out

    out = problem.weighted(Gate(), impl=impl)
    assert out.loss.isfinite()
    assert out.entropy_N.isfinite().all()
    assert all(g.isfinite().all() for g in problem.gradients(out.loss).values())


def test_an_upstream_gradient_is_multiplied_without_rounding_it_to_the_gradients_dtype():
    """A third in bfloat16 is 0.334: every entry would be off by the same 2e-3."""
    problem = Problem.make((64, 50, 16), torch.bfloat16, ignored=0.0)
    once = through_weighted(problem, Power(), impl="chunked", accumulate=torch.float32)
    third = through_weighted(problem, Power(), scale=1 / 3, impl="chunked", accumulate=torch.float32)
    for name in problem.leaves:
        a, b = once[name].double(), third[name].double()
        assert abs(((a * b).sum() / a.square().sum()).item() - 1 / 3) < 3e-4, name


def test_the_weighting_of_logq_is_free():
    """Any upstream gradient per row, negative too: `linear_logprob` is a differentiable function like any other."""
    problem = Problem.make((40, 21, 6), torch.float64)
    weight_N = torch.randn(40, dtype=torch.float64)
    got, expected = (through_logprob(problem, weight_N, impl=i) for i in ("chunked", "eager"))
    for name in problem.leaves:
        torch.testing.assert_close(got[name], expected[name])
