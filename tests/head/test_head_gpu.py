"""The numbers of the head on a CUDA device: the error rule of the CPU for both implementations, and every kernel against torch."""

import pytest
import torch
from head_oracle import (
    DTYPES,
    IDS,
    SHAPES,
    SLACK,
    Gate,
    One,
    Power,
    Problem,
    assert_as_good_as_eager,
    check,
    check_climb,
    check_residual,
    check_softmax,
    distance,
    through_weighted,
)

from widen.head import head_config, logit_buffer, target_sums
from widen.head.row_ops import RowOps

TORCH = RowOps()
TRITON = pytest.importorskip("widen.head.row_ops_triton", exc_type=ImportError).TritonRowOps()
pytestmark = pytest.mark.gpu
IMPLS = ["chunked", "triton"]
# Larger batches than on the CPU: several tiles, a chunk that is no whole tile, GPT-2's odd vocabulary.
LARGE = [(1000, 50257, 96), (700, 128256, 128), (2048, 1003, 576)]


@pytest.fixture(autouse=True)
def exact_products():
    """float32 products in float32: the rule compares roundings, and TF32's would hide ours."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
@pytest.mark.parametrize("shape", SHAPES + LARGE, **IDS)
def test_error_is_no_worse_than_eager(shape, dtype, impl):
    check(shape, dtype, impl, device="cuda")


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
def test_error_is_no_worse_than_eager_under_a_soft_cap(dtype, impl):
    check((700, 5003, 96), dtype, impl, device="cuda", softcap=3.0)


RESIDUALS = [(0.7, 0.0, 0.0), (1.6, 0.0, 0.0), (1.0, 0.1, 0.0), (1.0, 0.0, 0.3), (0.7, 0.2, 0.3)]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
@pytest.mark.parametrize("residual", RESIDUALS, **IDS)
@pytest.mark.parametrize(
    ("shape", "softcap"), [((700, 50257, 96), None), ((300, 507, 64), None), ((700, 5003, 96), 3.0)], **IDS
)
def test_error_of_another_residual_is_no_worse_than_eager(shape, softcap, residual, dtype, impl):
    check_residual(shape, dtype, impl, residual, device="cuda", softcap=softcap)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
@pytest.mark.parametrize("residual", RESIDUALS, **IDS)
@pytest.mark.parametrize("vocabulary", [3, 2049, 50304, 128256])
def test_every_residual_agrees_with_float64_on_the_same_logits(vocabulary, residual, dtype):
    check_softmax(vocabulary, dtype, "cuda", residual=residual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
@pytest.mark.parametrize("tau", [0.05, 0.7, 1.6])
def test_a_tempered_row_that_climbs_far_above_its_first_block_keeps_every_digit(tau, dtype):
    check_climb(dtype, "cuda", residual=(tau, 0.0, 0.0))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("room", "length"), [(3000, 300), (1100, 300), (1100, 2000)], ids=["all fit", "chunks", "cut"])
def test_weights_of_whole_sequences_have_the_gradient_of_the_same_weights_by_chunk(room, length, share):
    class Some(Power):
        def weigh(self, rows):
            return torch.where(rows.position < share * 3000, super().weigh(rows), 0.0)

    class Whole(Some):
        def sequence_ends(self, row_T):
            return [*range(length, len(row_T), length), len(row_T)]

    problem = Problem.make((3000, 5003, 96), torch.bfloat16, "cuda")
    problem.position = torch.randperm(3000, device="cuda")
    exact, eager = (through_weighted(p, Some(), impl="eager") for p in (problem.to(torch.float64), problem))
    mine = through_weighted(problem, Whole(), impl="triton", workspace=room * 5008 * 2)
    assert_as_good_as_eager(mine, eager, exact, torch.bfloat16)


def test_logprob_gives_entropy_and_top1_on_request():
    problem = Problem.make((700, 5003, 96), torch.float32, "cuda")
    rows = problem.logprob(impl="triton", needs={"logq", "entropy", "top1"}, workspace=300 * 5008 * 4)
    out = problem.weighted(Power(), impl="eager")
    torch.testing.assert_close((rows.logq, rows.entropy), (out.logq_N, out.entropy_N), rtol=1e-4, atol=1e-4)
    assert torch.equal(rows.top1.bool(), out.is_top1_N)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], **IDS)
def test_error_is_no_worse_than_eager_when_the_head_is_summed_in_float32(dtype):
    check((700, 5003, 96), dtype, "triton", device="cuda", accumulate=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
@pytest.mark.parametrize("vocabulary", [1, 3, 127, 1025, 2049, 9000, 20001, 70001, 262144])
def test_every_launch_of_the_softmax_agrees_with_float64_on_the_same_logits(vocabulary, dtype):
    check_softmax(vocabulary, dtype, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
def test_a_row_that_climbs_far_above_its_first_block_keeps_every_digit(dtype):
    check_climb(dtype, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], **IDS)
@pytest.mark.parametrize("climb", [18.0, 60.0])  # within `ROOM` of the first block; repaired by a second pass
def test_error_is_no_worse_than_eager_where_rows_climb(climb, dtype):
    check((700, 50257, 96), dtype, "triton", device="cuda", climb=climb)


@pytest.mark.parametrize(("weight", "limit"), [(Power(), 1.15), (One(), 1.45)], ids=["c-Div", "NLL"])
def test_one_read_of_the_logits_rounds_little_more_than_eager_does(weight, limit):
    """Without the slack, which is wider than the whole error of bfloat16."""
    problem = Problem.make((1024, 8192, 256), torch.bfloat16, "cuda", ignored=0.0)
    exact = through_weighted(problem.to(torch.float64), weight, impl="eager")
    mine, eager = (through_weighted(problem, weight, impl=impl) for impl in ("triton", "eager"))
    for name in ("hidden", "head"):
        assert distance(mine[name], exact[name]) < limit * distance(eager[name], exact[name])


@pytest.mark.parametrize("shape", [(1, 1), (300, 576), (70, 4096), (3, 5000)], **IDS)
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
def test_scaled_rows_are_those_of_torch(shape, dtype):
    x_CD, w_C = torch.randn(shape, device="cuda", dtype=dtype), torch.rand(shape[0], device="cuda")
    got_CD, expected_CD = torch.empty_like(x_CD), (x_CD.float() * w_C[:, None]).to(dtype)
    TRITON.scale_rows(w_C, (x_CD, got_CD))
    assert torch.equal(got_CD, expected_CD)
    wide_CD = x_CD.float().clone()
    TRITON.scale_rows(w_C, (x_CD.T.contiguous().T, x_CD), (wide_CD, wide_CD))
    assert torch.equal(x_CD, expected_CD)
    assert torch.equal(wide_CD.to(dtype), expected_CD)


@pytest.mark.parametrize("size", [1, 4097, 2048 * 4096 + 4099])  # the last takes more than one round of all programs
def test_an_upstream_factor_reaches_every_element_once(size):
    x, y = torch.ones(size, device="cuda"), torch.ones(4097, device="cuda", dtype=torch.bfloat16)
    TRITON.multiply_(torch.tensor(1.5, device="cuda"), x, y)
    assert (x == 1.5).all()
    assert (y == 1.5).all()


@pytest.mark.parametrize("rows", [1, 5003, 300_000])
def test_sums_over_the_targets_are_those_of_torch(rows):
    each_kT = torch.rand(4, rows + 3, device="cuda")[:, :rows]
    each_kT[0].neg_()[::3] = -float("inf")
    each_kT[1][::3] = 0.0
    value_T = 2 * each_kT[0]
    expected = target_sums(*each_kT, tokens=rows, value_N=value_T)
    first, second = (TRITON.sum_targets(each_kT, value_T) for _ in range(2))
    torch.testing.assert_close(first, expected, rtol=1e-12, atol=0)
    assert torch.equal(first, second)


@pytest.mark.parametrize("scale", [1.0, 1 / 3])
def test_the_upstream_gradient_is_read_on_the_device(scale):
    problem = Problem.make((300, 507, 64), torch.float32, "cuda")
    exact = through_weighted(problem.to(torch.float64), Gate(), scale=scale, impl="eager")
    eager = through_weighted(problem, Gate(), scale=scale, impl="eager")
    assert_as_good_as_eager(through_weighted(problem, Gate(), scale=scale, impl="triton"), eager, exact, torch.float32)


@pytest.fixture
def early(monkeypatch):
    """Rows are launched early however little there is to multiply; how many each time."""
    monkeypatch.setattr(head_config, "EARLY_LAUNCH", head_config.EarlyLaunch(one_in=4, least=0))
    seen, start_early = [], logit_buffer.LogitBuffer.start_early

    def spied(self, row_N, stats):
        start_early(self, row_N, stats)
        seen.append(self.early)

    monkeypatch.setattr(logit_buffer.LogitBuffer, "start_early", spied)
    return seen


@pytest.mark.parametrize("dtype", DTYPES, **IDS)
@pytest.mark.parametrize(("shape", "rows"), [((2048, 5003, 576), 256), ((1000, 50257, 96), 128)], **IDS)
def test_error_is_no_worse_than_eager_with_an_early_launch(shape, rows, dtype, early):
    check(shape, dtype, "triton", device="cuda")
    assert set(early) == {rows}


@pytest.mark.parametrize("counted", [0, 1, 100, 2000, 4096])
@pytest.mark.parametrize("weight", [Power(), Gate()], ids=["dense", "gated"])
def test_an_early_launch_changes_nothing_however_few_rows_have_targets(counted, weight, early, monkeypatch):
    problem = Problem.make((4096, 503, 64), torch.float32, "cuda", ignored=0.0)
    problem.target[torch.randperm(4096, device="cuda")[counted:]] = -100
    results = []
    for launch in (head_config.EARLY_LAUNCH, None):
        monkeypatch.setattr(head_config, "EARLY_LAUNCH", launch)
        out = problem.weighted(weight, impl="triton", workspace=3000 * 512 * 4)
        results.append((*out[:4], *torch.autograd.grad(out.loss, list(problem.leaves.values()))))
    assert early == [512, 0]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2, 17, 128, 129, 515])
@pytest.mark.parametrize("vocabulary", [1, 3, 17, 130])
@pytest.mark.usefixtures("early")
def test_small_sizes_are_those_of_eager(tokens, vocabulary, monkeypatch):
    monkeypatch.setattr(head_config, "_TILE", 1)  # an early launch from four rows on
    problem = Problem.make((tokens, vocabulary, 24), torch.float32, "cuda")
    weight_N = torch.rand(tokens, device="cuda")
    for workspace in (None, max(1, tokens // 3) * TRITON.bytes_per_row(vocabulary, torch.float32)):
        results = []
        for impl in ("triton", "eager"):
            out = problem.weighted(Power(), impl=impl, workspace=workspace)
            logq_N = problem.logprob(impl=impl, workspace=workspace)
            loss = out.loss + (weight_N * logq_N).mean()
            results.append((*out[:4], logq_N, *torch.autograd.grad(loss, list(problem.leaves.values()))))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], **IDS)
def test_the_target_rows_are_found_in_one_launch(dtype):
    for size in (0, 1, 2, 15, 16, 17, 127, 128, 4095, 4096, 4097, 9001, 100_003):
        target = torch.randint(-2, 52, (size,), device="cuda").to(dtype)
        target[torch.rand(size, device="cuda") < 0.3] = -100
        row_N, counts = TRITON.find_targets(target, 50, -100)
        assert counts.tolist() == TORCH.find_targets(target, 50, -100)[1].tolist()
        assert torch.equal(row_N[: counts[0]], (target != -100).nonzero()[:, 0])
        assert not row_N[counts[0] :].any()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
def test_kept_logits_give_the_gradient_that_recomputed_ones_give(share, dtype):
    """The second backward over one graph computes all logits again."""
    problem = Problem.make((1000, 5003, 96), dtype, "cuda")
    weight_N = (torch.rand(1000, device="cuda") < share).float()
    loss = (weight_N * problem.logprob(impl="triton", workspace=300 * 5008 * dtype.itemsize)).sum()
    leaves = list(problem.leaves.values())
    kept, recomputed = (torch.autograd.grad(loss, leaves, retain_graph=True) for _ in range(2))
    for a, b in zip(kept, recomputed, strict=True):
        assert distance(a, b) < 2 * SLACK[dtype]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97, 1.0])
def test_active_rows_move_to_the_front_as_in_torch(share):
    for size in (1, 2, 127, 4096, 4097, 20_001):
        w_C = torch.randn(size, device="cuda") * (torch.rand(size, device="cuda") < share)
        found, expected = TRITON.find_active(w_C), TORCH.find_active(w_C)
        count, holes = expected.counts.tolist()
        assert found.counts.tolist() == [count, holes]
        assert torch.equal(found.order_C[:count], expected.order_C[:count])
        assert torch.equal(found.hole_C[:holes], expected.hole_C)
        z_CV = torch.randn(size, 48, device="cuda", dtype=torch.bfloat16)
        expected_CV = z_CV[expected.order_C[:count]]
        if holes:
            TRITON.move_rows_(z_CV, found.order_C, found.hole_C[:holes])
        assert torch.equal(z_CV[:count], expected_CV)


@pytest.mark.parametrize("share", [0.03, 0.4, 0.75, 0.98])
@pytest.mark.parametrize("dtype", DTYPES, **IDS)
def test_error_is_no_worse_than_eager_whatever_share_of_rows_is_active(share, dtype):
    class Some(Power):
        def weigh(self, rows):
            return torch.where(rows.position < share * len(counted_N), super().weigh(rows), 0.0)

    problem = Problem.make((3000, 5003, 96), dtype, "cuda")
    counted_N = problem.position = torch.randperm(3000, device="cuda")
    exact, eager = (through_weighted(p, Some(), impl="eager") for p in (problem.to(torch.float64), problem))
    for rows in (3000, 1100, 200):  # all at once; in whole chunks; with some rows held for the next chunk
        mine = through_weighted(problem, Some(), impl="triton", workspace=rows * 5008 * dtype.itemsize)
        assert_as_good_as_eager(mine, eager, exact, dtype)
