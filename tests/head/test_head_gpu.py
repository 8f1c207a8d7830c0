"""The head on a CUDA device: the error rule of the CPU for both implementations, and what only a device can get wrong."""

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
    chunked,
    distance,
    through_weighted,
)

from widen.head import HostCopy, head_config, linear_logprob, logit_buffer, target_sums, weighted_linear_nll
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


def test_auto_is_triton_on_a_gpu(caplog):
    problem = Problem.make((8, 50, 16), torch.bfloat16, "cuda")
    with caplog.at_level("DEBUG", logger="widen.head"):
        problem.logprob()
    assert caplog.messages == ["impl=auto runs triton: the tensors are on cuda:0 in torch.bfloat16"]


@pytest.mark.parametrize("impl", IMPLS)
def test_a_target_outside_the_vocabulary_is_an_error(impl):
    problem = Problem.make((12, 7, 16), torch.float32, "cuda", ignored=0.0)
    problem.target[4] = 7
    with pytest.raises(ValueError, match="outside the vocabulary, the first 7"):
        problem.weighted(Power(), impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_a_batch_without_targets_gives_a_differentiable_zero(impl):
    problem = Problem.make((5, 7, 16), torch.bfloat16, "cuda")
    problem.target[:] = -100
    out = problem.weighted(Power(), impl=impl)
    assert out.loss == 0
    assert all(g.count_nonzero() == 0 for g in problem.gradients(out.loss).values())
    assert all(g.count_nonzero() == 0 for g in problem.gradients(problem.logprob(impl=impl).sum()).values())


@pytest.mark.parametrize("impl", IMPLS)
def test_two_runs_agree_to_the_bit_under_deterministic_algorithms(impl, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    problem = Problem.make((700, 5003, 96), torch.bfloat16, "cuda")
    kw = {"impl": impl, "workspace": chunked((700, 5003, 96), torch.bfloat16, impl)}
    torch.use_deterministic_algorithms(True)
    try:
        for weight in (Power(), Gate()):
            first, second = (through_weighted(problem, weight, **kw) for _ in range(2))
            assert all(torch.equal(first[name], second[name]) for name in first)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], **IDS)
@pytest.mark.parametrize("accumulate", [None, torch.float32])
def test_under_autocast_products_run_in_its_dtype_and_gradients_come_back_in_the_parameters(dtype, accumulate):
    problem = Problem.make((64, 500, 32), torch.float32, "cuda")
    results = []
    for impl in ("eager", "triton"):
        with torch.autocast("cuda", dtype=dtype):
            out = problem.weighted(Power(), impl=impl, accumulate=accumulate)
            logq = problem.logprob(impl=impl, accumulate=accumulate)
        loss = out.loss + logq.sum() / 64
        results.append(torch.autograd.grad(loss, list(problem.leaves.values())))
    for a, b in zip(*results, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 2e-2 * b.norm()


def test_a_gradient_scaler_steps_in_float16():
    problem = Problem.make((64, 500, 32), torch.float32, "cuda")
    optimizer = torch.optim.SGD(list(problem.leaves.values()), lr=1e3)
    scaler = torch.amp.GradScaler("cuda")
    before = problem.head.detach().clone()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = problem.weighted(Power(), num_tokens=10**6).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**16  # no overflow was seen
    assert not torch.equal(problem.head, before)


def test_peak_memory_is_the_workspace_and_little_more():
    n, v, d, workspace = 8192, 32000, 256, 64 * 2**20
    problem = Problem.make((n, v, d), torch.bfloat16, "cuda", ignored=0.0)

    def peak(loss_of):
        for x in problem.leaves.values():
            x.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated()
        loss_of().backward()
        return torch.cuda.max_memory_allocated() - start

    returned = 2 * (n * d + v * d + v)
    # The weighted copy of a chunk's hidden states, the gradient of the bias, statistics of N rows.
    spare = 2 * (workspace // (2 * v)) * d * 2 + 12 * v + 64 * n + 64 * 2**20  # the last for cuBLAS's own workspace
    for loss_of in (
        lambda: problem.weighted(Power(), impl="triton", workspace=workspace).loss,
        lambda: problem.weighted(Gate(), impl="triton", workspace=workspace).loss,
        lambda: problem.logprob(impl="triton", workspace=workspace).sum(),
    ):
        loss_of().backward()  # warm up: cuBLAS takes a workspace of its own at its first product
        assert peak(loss_of) < returned + workspace + spare
    assert peak(lambda: problem.weighted(Power(), impl="eager").loss) > 2 * n * v


def test_between_forward_and_backward_the_last_chunk_is_held_and_nothing_else():
    n, v, d, workspace = 8192, 32000, 256, 64 * 2**20
    problem = Problem.make((n, v, d), torch.bfloat16, "cuda", ignored=0.0)
    problem.gradients(problem.logprob(impl="triton", workspace=workspace).sum())  # warm up
    start = torch.cuda.memory_allocated()
    loss = problem.logprob(impl="triton", workspace=workspace).sum()
    held = torch.cuda.memory_allocated() - start
    assert workspace // 2 < held < workspace + 64 * n
    torch.autograd.grad(loss, list(problem.leaves.values()), retain_graph=True)
    assert torch.cuda.memory_allocated() - start < 64 * n


COMPILE_STEPS = ["weighted", "logprob"]


@pytest.mark.filterwarnings("ignore")  # dynamo and inductor warn at every graph break
@pytest.mark.parametrize("which", COMPILE_STEPS)
def test_torch_compile_around_the_head_changes_nothing(which):
    """The body is compiled by inductor, the head stays out of its graph."""
    # Past the type checker of the test run, which dynamo would try to trace.
    fused = getattr(weighted_linear_nll, "__wrapped__", weighted_linear_nll)
    general = getattr(linear_logprob, "__wrapped__", linear_logprob)
    problem = Problem.make((300, 507, 64), torch.float32, "cuda")
    body = torch.nn.Linear(64, 64, device="cuda")

    def step(hidden_ND):
        hidden_ND = body(hidden_ND).relu()
        if which == "logprob":
            return -general(hidden_ND, problem.head, problem.target).sum()
        return fused(
            hidden_ND, problem.head, problem.target, Power(),
            position_N=problem.position, length_N=problem.length, num_tokens=300,
        ).loss  # fmt: skip

    leaves = [problem.head, body.weight, problem.hidden]
    plain = torch.autograd.grad(step(problem.hidden), leaves)
    compiled = torch.autograd.grad(torch.compile(step)(problem.hidden), leaves)
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-4)


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


def test_copies_started_before_any_is_read_keep_their_own_numbers_and_their_memory_is_reused():
    with torch.inference_mode():
        asked = [HostCopy(torch.tensor([k, k + 1], device="cuda")) for k in range(3)]
    torch.zeros(2, dtype=torch.int64, device="cuda").add_(7)
    assert [copy.read() for copy in asked] == [[0, 1], [1, 2], [2, 3]]
    room = {copy._host.data_ptr() for copy in asked}
    again = HostCopy(torch.tensor([5, 6], device="cuda"))
    assert again._host.data_ptr() in room
    assert asked[2].read() == [2, 3]
    assert again.read() == [5, 6]


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
