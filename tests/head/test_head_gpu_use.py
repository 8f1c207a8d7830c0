"""The head on a CUDA device around its numbers: refusals, autocast, determinism, memory, `torch.compile` and copies to the host."""

import pytest
import torch
from head_oracle import IDS, Gate, Power, Problem, chunked, through_weighted

from widen.head import HostCopy, linear_logprob, weighted_linear_nll

pytest.importorskip("widen.head.row_ops_triton", exc_type=ImportError)
pytestmark = pytest.mark.gpu
IMPLS = ["chunked", "triton"]


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
