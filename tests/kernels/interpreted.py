"""The Triton kernels under Triton's interpreter on the CPU; test_head_triton.py runs this file with TRITON_INTERPRET=1 set.

The interpreter cuts float32 to bfloat16 where a GPU rounds to nearest, so its bfloat16 error is twice a GPU's; the slack holds it.
"""

import pytest
import torch
from head_oracle import (
    DTYPES,
    IDS,
    Gate,
    Power,
    Problem,
    assert_as_good_as_eager,
    check,
    through_weighted,
)

from widen.kernels import linear_logprob
from widen.kernels.rows_triton import launch_for, pitch

torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", DTYPES, **IDS)
@pytest.mark.parametrize("shape", [(1, 7, 16), (33, 507, 23)], **IDS)
def test_error_is_no_worse_than_eager(shape, dtype):
    check(shape, dtype, "triton")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    # Each large vocabulary once, and one of several blocks that is no multiple of 16: the dtypes differ in loads and stores, which
    # the small shapes cover, and the interpreter takes half a second for ten rows of 128,256.
    [
        ((8, 50304, 24), torch.float16),
        ((8, 128256, 16), torch.bfloat16),
        ((8, 151936, 8), torch.float32),
        ((8, 9001, 8), torch.bfloat16),
    ],
    **IDS,
)
def test_error_is_no_worse_than_eager_at_real_vocabularies(shape, dtype):
    check(shape, dtype, "triton")


def test_error_is_no_worse_than_eager_under_a_soft_cap():
    check((33, 507, 23), torch.float32, "triton", softcap=3.0)


def test_entropy_top1_and_logq_are_those_of_eager():
    problem = Problem.make((40, 131, 12), torch.float32)
    problem.target[10:20] = (problem.hidden @ problem.head.T + problem.bias)[10:20].argmax(-1)
    got, eager = (problem.weighted(Power(), impl=impl) for impl in ("triton", "eager"))
    for name in ("loss", "logq_N", "w_N", "entropy_N"):
        torch.testing.assert_close(getattr(got, name), getattr(eager, name))
    assert torch.equal(got.is_top1_N, eager.is_top1_N)
    assert 10 <= got.is_top1_N.sum() < 30


@pytest.mark.parametrize("scale", [1.0, -3.5])
def test_the_upstream_gradient_is_read_on_the_device(scale):
    problem = Problem.make((33, 57, 12), torch.float32)
    got, eager, exact = (
        through_weighted(p, weight, scale=scale, impl=impl)
        for weight in (Gate(),)
        for p, impl in ((problem, "triton"), (problem, "eager"), (problem.to(torch.float64), "eager"))
    )
    assert_as_good_as_eager(got, eager, exact, torch.float32)


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")  # numpy's, inside the interpreter
def test_a_logit_of_minus_infinity_has_probability_zero_and_a_nan_stays_one():
    problem = Problem.make((6, 300, 3), torch.float32, ignored=0.0)
    with torch.no_grad():
        problem.bias[5:] = -float("inf")  # whole lanes of a program see nothing else
        problem.target.clamp_(max=4)
        problem.hidden[2, 0] = float("nan")
    logq_N, eager_N = problem.logprob(impl="triton").detach(), problem.logprob(impl="eager").detach()
    torch.testing.assert_close(logq_N, eager_N, equal_nan=True)
    assert logq_N.isnan().sum() == 1
    entropy_N = problem.weighted(Power(), impl="triton").entropy_N
    torch.testing.assert_close(entropy_N, problem.weighted(Power(), impl="eager").entropy_N, equal_nan=True)


def test_float64_is_refused():
    with pytest.raises(ValueError, match="impl='triton' computes in float32"):
        linear_logprob(torch.randn(2, 3).double(), torch.randn(5, 3).double(), torch.tensor([0, 1]), impl="triton")


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("vocabulary", [1, 130, 2049, 16385, 50257, 151936])
def test_a_program_walks_whole_packs(vocabulary, itemsize):
    """A launch whose block does not hold whole 16-byte packs, or whose lanes are no power of two, would not compile."""
    block, warps = launch_for(vocabulary, itemsize)
    lanes = block // (16 // itemsize)
    assert lanes & (lanes - 1) == 0
    assert lanes >= 16
    assert warps in (4, 8, 16, 32)
    assert 0 <= pitch(vocabulary) - vocabulary < 16
