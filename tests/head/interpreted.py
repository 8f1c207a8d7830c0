"""The Triton kernels under Triton's interpreter on the CPU; test_head_triton.py runs this file with TRITON_INTERPRET=1 set.

The interpreter cuts float32 to bfloat16 where a GPU rounds to nearest, so its bfloat16 error is twice a GPU's; the slack holds it.
"""

import math

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
    check_climb,
    check_residual,
    check_softmax,
    config_of,
    through_weighted,
)

from widen.head import (
    HostCopy,
    head_config,
    host_copy,
    linear_logprob,
    logit_buffer,
    softmax_triton,
    target_sums,
)
from widen.head.row_ops import PLAIN, RowOps
from widen.head.row_ops_triton import TritonRowOps
from widen.train.figures import Figures

torch.set_num_threads(1)
TORCH, TRITON = RowOps(), TritonRowOps()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    # A few sizes; several blocks, of a vocabulary that is no multiple of 16. The largest are tested below, on the softmax alone.
    [((1, 7, 16), torch.float32), *(((7, 507, 23), dtype) for dtype in DTYPES), ((3, 20001, 8), torch.float16)],
    **IDS,
)
def test_error_is_no_worse_than_eager(shape, dtype):
    check(shape, dtype, "triton")


@pytest.mark.parametrize(
    ("residual", "dtype", "softcap"),
    [
        ((0.7, 0.0, 0.0), torch.bfloat16, None),
        ((1.3, 0.2, 0.3), torch.float32, 3.0),
        ((1.0, 0.2, 0.3), torch.float16, None),
    ],
    **IDS,
)
def test_error_of_another_residual_is_no_worse_than_eager(residual, dtype, softcap):
    check_residual((6, 507, 23), dtype, "triton", residual, softcap=softcap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
@pytest.mark.parametrize(
    ("vocabulary", "residual"),
    [(1, PLAIN), (127, PLAIN), (2049, PLAIN), (127, (1.6, 0.0, 0.0)), (9001, (0.7, 0.2, 0.3))],
)
def test_the_softmax_agrees_with_float64_on_the_same_logits(vocabulary, residual, dtype):
    check_softmax(vocabulary, dtype, rows=4, residual=residual)


@pytest.mark.parametrize(("vocabulary", "dtype"), [(128256, torch.bfloat16), (151936, torch.float32)], **IDS)
def test_the_softmax_agrees_with_float64_at_the_largest_vocabularies(vocabulary, dtype):
    check_softmax(vocabulary, dtype, rows=2)


@pytest.mark.filterwarnings("ignore:overflow encountered")  # numpy's, at logits near the end of float32
@pytest.mark.parametrize(("dtype", "tau"), [(torch.float32, 0.05), (torch.bfloat16, 1.0)], **IDS)
def test_a_row_that_climbs_far_above_its_first_block_keeps_every_digit(dtype, tau):
    check_climb(dtype, residual=(tau, 0.0, 0.0), all_targets=False)


@pytest.mark.parametrize(  # within `ROOM` of the first block; repaired by a second pass
    ("climb", "dtype"), [(18.0, torch.bfloat16), (60.0, torch.float32)], **IDS
)
def test_error_is_no_worse_than_eager_where_rows_climb(climb, dtype):
    check((3, 9001, 8), dtype, "triton", climb=climb)


def test_a_second_read_is_for_float16_a_soft_cap_and_those_who_ask_for_digits():
    def reads_once(dtype=torch.bfloat16, softcap=None, accumulate=None):
        return config_of("triton", torch.empty(8, 4, dtype=dtype), softcap=softcap, accumulate=accumulate).ops.one_read

    assert [reads_once(), reads_once(torch.float32)] == [True, True]
    others = reads_once(torch.float16), reads_once(softcap=30.0), reads_once(accumulate=torch.float32)
    assert not any(others)


@pytest.mark.parametrize("lengths", [(3, 2, 5, 4, 1), (2, 11, 2)], ids=["whole", "one is cut"])
def test_chunks_of_whole_sequences_have_the_gradient_of_eager(lengths):
    class Whole(Gate):
        def sequence_ends(self, row_T):
            return torch.tensor(lengths).cumsum(0).tolist()

    problem = Problem.make((15, 127, 8), torch.float32, ignored=0.0)
    mine = through_weighted(problem, Whole(), impl="triton", workspace=6 * 128 * 4)
    eager, exact = (through_weighted(p, Gate(), impl="eager") for p in (problem, problem.to(torch.float64)))
    assert_as_good_as_eager(mine, eager, exact, torch.float32)


@pytest.mark.parametrize(("climb", "dtype"), [(19.0, torch.float32), (35.0, torch.bfloat16)], **IDS)
def test_weights_of_any_size_survive_the_sum_that_is_multiplied_into_them(climb, dtype):
    class Tiny:
        token_local = True

        def __init__(self, size):
            self.size = size

        def weigh(self, rows):
            return torch.full_like(rows.logq, self.size)

    problem = Problem.make((3, 9001, 8), dtype)
    with torch.no_grad():
        problem.bias[4500:] += climb
    one, *others = (through_weighted(problem, Tiny(size), impl="triton") for size in (1.0, 1e-24, 1e20))
    for got, size in zip(others, (1e-24, 1e20), strict=True):
        for name in ("hidden", "head", "bias"):
            torch.testing.assert_close(got[name].double() / size, one[name].double(), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("shape", [(1, 1), (5, 24), (3, 4100)], **IDS)
@pytest.mark.parametrize("wide", [torch.bfloat16, torch.float32], **IDS)
def test_rows_are_scaled_in_float32_whatever_their_strides(shape, wide):
    x_CD, w_C = torch.randn(shape).to(wide), torch.rand(shape[0]) + 0.5
    strided_CD = x_CD.repeat(1, 2)[:, : shape[1]]
    for x in (x_CD, strided_CD, x_CD.T.contiguous().T):
        out_CD = torch.full(shape, 7.0, dtype=wide)
        TRITON.scale_rows(w_C, (x, out_CD))
        expected_CD = x_CD.float() * w_C[:, None]
        torch.testing.assert_close(out_CD.float(), expected_CD, rtol=2**-7 if wide == torch.bfloat16 else 1e-6, atol=0)
    other_CD = torch.empty(shape, dtype=torch.bfloat16)
    TRITON.scale_rows(w_C, (strided_CD, strided_CD), (x_CD.float(), other_CD))  # of two dtypes, in one launch
    assert torch.equal(strided_CD, out_CD)
    torch.testing.assert_close(other_CD.float(), expected_CD, rtol=2**-7, atol=0)  # the interpreter cuts, a GPU rounds


@pytest.mark.parametrize("sizes", [(1,), (4097,), (3 * 4096 + 5, 0, 7), (7, 2 * 4096 + 5), (1, 2, 3)])
def test_a_factor_reaches_every_element_of_every_tensor_once(sizes):
    tensors = [torch.ones(size) for size in sizes]
    TRITON.multiply_(torch.tensor(1.5), *tensors)
    assert all((x == 1.5).all() for x in tensors)


@pytest.mark.parametrize("rows", [1, 7, 2048, 5003])
def test_sums_over_the_targets_are_those_of_torch(rows):
    each_kT = torch.rand(4, rows + 3)[:, :rows]
    each_kT[0].neg_()[::3] = -math.inf
    each_kT[1][::3] = 0.0  # a weight of 0 times -inf is 0
    each_kT[1][1::3] *= 1e20
    value_T = 2 * each_kT[0]
    torch.testing.assert_close(
        TRITON.sum_targets(each_kT, value_T),
        target_sums(*each_kT, tokens=rows, value_N=value_T),
        rtol=1e-12,
        atol=0,
        equal_nan=True,
    )


def test_sums_over_no_target_are_zero():
    assert (
        TRITON.sum_targets(torch.empty(4, 0), torch.empty(0)).tolist()
        == target_sums(*torch.empty(4, 0), tokens=0).tolist()
        == [0.0] * 9
    )


def test_a_nan_among_the_targets_is_seen_in_their_sums():
    each_kT = torch.rand(4, 100)
    each_kT[0, 50] = math.nan
    found = Figures(*TRITON.sum_targets(each_kT, each_kT[0]).tolist())
    assert math.isnan(found.weighted)
    assert math.isnan(found.logq)


def test_error_is_no_worse_than_eager_under_a_soft_cap():
    check((5, 507, 23), torch.float32, "triton", softcap=3.0)


def test_entropy_top1_and_logq_are_those_of_eager():
    problem = Problem.make((12, 131, 12), torch.float32)
    problem.target[4:8] = (problem.hidden @ problem.head.T + problem.bias)[4:8].argmax(-1)
    got, eager = (problem.weighted(Power(), impl=impl) for impl in ("triton", "eager"))
    for name in ("loss", "logq_N", "w_N", "entropy_N"):
        torch.testing.assert_close(getattr(got, name), getattr(eager, name))
    assert torch.equal(got.is_top1_N, eager.is_top1_N)
    assert 4 <= got.is_top1_N.sum() < 8
    rows = problem.logprob(impl="triton", needs={"logq", "entropy", "top1"}, workspace=5 * 144 * 4)
    torch.testing.assert_close((rows.logq, rows.entropy), (eager.logq_N, eager.entropy_N))
    assert torch.equal(rows.top1.bool(), eager.is_top1_N)


@pytest.mark.parametrize("scale", [1.0, -3.5])
def test_the_upstream_gradient_is_read_on_the_device(scale):
    problem = Problem.make((9, 57, 12), torch.float32)
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
@pytest.mark.parametrize(
    "launch", [softmax_triton.launch_two_reads, softmax_triton.launch_one_read], ids=["two reads", "one read"]
)
def test_a_program_reads_whole_packs(vocabulary, itemsize, launch):
    """A launch whose block does not hold whole 16-byte packs, or whose lanes are no power of two, would not compile."""
    block, warps = launch(vocabulary, itemsize)
    lanes = block // (16 // itemsize)
    assert lanes & (lanes - 1) == 0
    assert lanes >= 16
    assert warps in (4, 8, 16, 32)
    assert 0 <= TRITON.pitch(vocabulary) - vocabulary < 16


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("vocabulary", [1, 2048, 16384, 262144, 10**6])
def test_a_lane_has_a_bit_for_every_block(vocabulary, itemsize):
    assert -(-vocabulary // softmax_triton.launch_one_read(vocabulary, itemsize).block) <= 32


@pytest.fixture
def early(monkeypatch):
    """One row in four is launched before the host knows the target rows, however little there is to multiply."""
    monkeypatch.setattr(head_config, "EARLY_LAUNCH", head_config.EarlyLaunch(one_in=4, least=0))
    monkeypatch.setattr(head_config, "_TILE", 1)


@pytest.mark.usefixtures("early")
def test_error_is_no_worse_than_eager_with_an_early_launch():
    check((5, 507, 23), torch.bfloat16, "triton")


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("counted", [0, 1, 7])
def test_an_early_launch_changes_nothing_however_few_rows_have_targets(counted, monkeypatch):
    problem = Problem.make((32, 57, 12), torch.float32, ignored=0.0)
    problem.target[torch.randperm(32, generator=torch.Generator().manual_seed(0))[counted:]] = -100
    results = []
    for launch in (head_config.EARLY_LAUNCH, None):
        monkeypatch.setattr(head_config, "EARLY_LAUNCH", launch)
        out = problem.weighted(Power(), impl="triton", workspace=20 * 64 * 4)
        results.append((*out[:4], *torch.autograd.grad(out.loss, list(problem.leaves.values()))))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("early")
def test_early_rows_are_launched_before_the_host_waits_and_the_first_chunk_before_any_row_is_looked_at(monkeypatch):
    done, fill, product, wait = [], TritonRowOps.fill_stats, RowOps.product_, host_copy.TargetRows.rows
    monkeypatch.setattr(RowOps, "product_", lambda self, z, *a: done.append(len(z)) or product(self, z, *a))
    monkeypatch.setattr(
        TritonRowOps, "fill_stats", lambda self, z, *a, **kw: done.append(f"{len(z)} filled") or fill(self, z, *a, **kw)
    )
    monkeypatch.setattr(host_copy.TargetRows, "rows", lambda self: done.append("waited") or wait(self))
    problem = Problem.make((32, 57, 12), torch.float32, ignored=0.0)
    problem.weighted(Power(), impl="triton", workspace=20 * 64 * 4)
    # two chunks of 16; the early rows are at most a quarter of the first
    assert done == [4, "waited", 12, "16 filled", 16, "16 filled"]
    done.clear()
    problem.logprob(impl="triton", workspace=20 * 64 * 4)
    assert done == ["waited", 16, "16 filled", 16, "16 filled"]


@pytest.mark.parametrize("size", [1, 100, 4096, 9001])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.7, 1.0])
def test_active_rows_move_to_the_front_as_in_torch(size, share):
    g = torch.Generator().manual_seed(size)
    w_C = torch.randn(size, generator=g) * (torch.rand(size, generator=g) < share)
    w_C[-1] = math.nan  # a nan is not 0: it must stay visible
    found, expected = TRITON.find_active(w_C), TORCH.find_active(w_C)
    count, holes = expected.counts.tolist()
    assert found.counts.tolist() == [count, holes]
    assert torch.equal(found.order_C[:count], expected.order_C[:count])
    assert torch.equal(found.hole_C[:holes], expected.hole_C)


@pytest.mark.parametrize("vocabulary", [1, 17, 9001])
def test_rows_are_moved_whole_and_others_are_left_alone(vocabulary):
    like_VD = torch.empty(vocabulary, 1, dtype=torch.bfloat16)
    z_CV = config_of("triton", like_VD).new_buffer(40, like_VD)
    z_CV.copy_(torch.randn(40, vocabulary))
    w_C = (torch.arange(40) % 3 != 0).float()
    order_C, hole_C, counts = TRITON.find_active(w_C)
    moved_CV = z_CV.clone()
    moved_CV[: counts[0]] = z_CV[order_C[: counts[0]]]
    TRITON.move_rows_(z_CV, order_C, hole_C[: counts[1]])
    assert torch.equal(z_CV, moved_CV)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(("weight", "parts"), [(Power(), 4), (Gate(), 5)], ids=["kept", "broken"])
def test_never_zero_saves_a_wait_per_chunk_and_changes_no_number(weight, parts, monkeypatch):
    problem = Problem.make((16, 57, 12), torch.float32, ignored=0.0)
    asked, results = [], []

    class Noted(HostCopy):
        def __init__(self, x):
            asked.append(x)
            super().__init__(x)

    monkeypatch.setattr(logit_buffer, "HostCopy", Noted)
    for promise in (False, True):
        monkeypatch.setattr(type(weight), "never_zero", promise, raising=False)
        out = problem.weighted(weight, impl="triton", workspace=5 * 64 * 4)
        results.append((*out[:4], *torch.autograd.grad(out.loss, list(problem.leaves.values()))))
        assert len(asked) == (0 if promise else parts)
        asked.clear()
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("size", [0, 1, 4096, 9001])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], **IDS)
def test_the_target_rows_are_found_in_one_launch(size, dtype):
    g = torch.Generator().manual_seed(size)
    target = torch.randint(-2, 52, (size,), generator=g).to(dtype)
    target[torch.rand(size, generator=g) < 0.3] = -100
    row_N, counts = TRITON.find_targets(target, 50, -100)
    _, expected = TORCH.find_targets(target, 50, -100)
    assert counts.tolist() == expected.tolist()
    count = counts[0].item()
    assert torch.equal(row_N[:count], (target != -100).nonzero()[:, 0])
    assert not row_N[count:].any()


def test_targets_need_not_be_contiguous():
    problem = Problem.make((3, 40, 6), torch.float32, ignored=0.0)
    expected = problem.logprob(impl="triton"), problem.weighted(Power(), impl="triton").loss
    problem.target = torch.stack((problem.target, torch.zeros_like(problem.target)), 1)[:, 0]
    assert not problem.target.is_contiguous()
    torch.testing.assert_close(
        (problem.logprob(impl="triton"), problem.weighted(Power(), impl="triton").loss), expected
    )
