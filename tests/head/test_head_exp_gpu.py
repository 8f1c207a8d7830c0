"""The first product that writes exponentials, on a GPU of compute capability 9.0, at shapes with fewer logits than the head asks for."""

import pytest
import torch
from head_oracle import Gate, One, Power, Problem, assert_as_good_as_eager, check, chunked, through_weighted

from widen.head import head_config

exp_product = pytest.importorskip("widen.head.exp_product_triton", exc_type=ImportError)
pytestmark = pytest.mark.gpu
SHAPE = (8192, 1003, 256)


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """The rows of each first product that wrote exponentials; a test in which there were none fails."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the head writes exponentials on compute capability 9.0 alone")
    monkeypatch.setattr(head_config, "LEAST_EXP_LOGITS", 0)
    rows, product = [], exp_product.ExpRowOps.product_
    monkeypatch.setattr(
        exp_product.ExpRowOps, "product_", lambda self, z_CV, *a: rows.append(len(z_CV)) or product(self, z_CV, *a)
    )
    yield rows
    assert rows


@pytest.mark.parametrize("climb", [0.0, 60.0, 85.0])  # the last is repaired
@pytest.mark.parametrize("shape", [SHAPE, (8200, 50257, 96)], ids=["tiles of 256", "GPT-2's vocabulary"])
def test_error_is_no_worse_than_eager(shape, climb):
    check(shape, torch.bfloat16, "triton", device="cuda", climb=climb)


def without_bias(problem, weight, **kw):
    out = problem.weighted(weight, bias=False, **kw)
    grads = torch.autograd.grad(out.loss, [problem.hidden, problem.head])
    values = {"logq": out.logq_N, "w": out.w_N, "entropy": out.entropy_N, "loss": out.loss.detach()}
    return values | dict(zip(("hidden", "head"), grads, strict=True))


@pytest.mark.parametrize("weight", [Power(), Gate(), One()], ids=["c-Div", "gate", "NLL"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_error_is_no_worse_than_eager_without_a_bias(chunks, weight):
    problem = Problem.make(SHAPE, torch.bfloat16, "cuda")
    workspace = None if chunks == 1 else chunked(SHAPE, torch.bfloat16, "triton")
    eager, exact = (without_bias(p, weight, impl="eager") for p in (problem, problem.to(torch.float64)))
    mine = without_bias(problem, weight, impl="triton", workspace=workspace)
    assert_as_good_as_eager(mine, eager, exact, torch.bfloat16)


def test_rows_that_climb_far_above_their_target_are_repaired_without_a_bias():
    problem = Problem.make(SHAPE, torch.bfloat16, "cuda")
    with torch.no_grad():
        problem.hidden[::7] *= 40  # most of these lie over 2^110 above their target
    eager, exact = (without_bias(p, One(), impl="eager") for p in (problem, problem.to(torch.float64)))
    assert (exact["logq"] < -77).sum() > 500
    assert_as_good_as_eager(without_bias(problem, One(), impl="triton"), eager, exact, torch.bfloat16)


def test_a_target_of_logit_minus_infinity_has_log_q_minus_infinity():
    problem = Problem.make(SHAPE, torch.bfloat16, "cuda", ignored=0.0)
    with torch.no_grad():
        problem.bias[500:] = -float("inf")
        problem.target.clamp_(max=499)
        problem.target[3] = 700
    got, eager = (problem.weighted(One(), impl=impl) for impl in ("triton", "eager"))
    torch.testing.assert_close((got.logq_N, got.entropy_N), (eager.logq_N, eager.entropy_N), rtol=2e-2, atol=5e-2)


def test_few_targets_leave_rows_that_were_launched_early_unused(taken):
    """Llama's vocabulary is large enough for an early launch; the first row, which stands in for missing rows, has no target."""
    problem = Problem.make((8192, 128256, 1024), torch.bfloat16, "cuda", ignored=0.0)
    problem.target[: 8192 - 300] = -100
    eager, exact = (through_weighted(p, Power(), impl="eager") for p in (problem, problem.to(torch.float64)))
    mine = through_weighted(problem, Power(), impl="triton")
    assert taken == [1024]
    assert_as_good_as_eager(mine, eager, exact, torch.bfloat16)


def test_two_runs_agree_to_the_bit(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    problem = Problem.make(SHAPE, torch.bfloat16, "cuda")
    first, second = (through_weighted(problem, Power(), impl="triton") for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
