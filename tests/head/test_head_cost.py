"""What the head does not do: unneeded products, and tensors of N x V elements."""

from types import SimpleNamespace

import pytest
import torch
from head_oracle import Gate, Power, Problem, config_of, ops_of
from torch.utils._python_dispatch import TorchDispatchMode

from widen.head import head_config
from widen.head.head_config import EARLY_LAUNCH, EarlyLaunch, HeadCall, HeadConfig, config_for, default_workspace
from widen.head.logit_buffer import LogitBuffer
from widen.head.row_ops import PLAIN, RowStats

PRODUCTS = {"aten.mm", "aten.addmm"}


class Watch(TorchDispatchMode):
    """Multiplications done in matrix products, and the largest tensor made."""

    def __init__(self):
        super().__init__()
        self.multiplications, self.largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if str(func.overloadpacket) in PRODUCTS:
            left, right = [x for x in args if isinstance(x, torch.Tensor)][-2:]
            self.multiplications += left.shape[0] * left.shape[1] * right.shape[1]
        if isinstance(out, torch.Tensor):
            self.largest = max(self.largest, out.numel())
        return out


N, V, D = 64, 40, 8
ONE = N * V * D  # one product over all rows


@pytest.fixture
def problem():
    return Problem.make((N, V, D), torch.float32, ignored=0.0)


def cost(loss_of):
    with Watch() as watch:
        loss_of().backward()
    return watch.multiplications / ONE


@pytest.mark.parametrize(
    ("learn", "products"),
    [(("hidden", "head"), 3), (("hidden",), 2), (("head",), 2)],
    ids=["both", "frozen head", "frozen hidden states"],
)
@pytest.mark.parametrize("kept", [1, 1 / 2, 1 / 4])
def test_a_gradient_that_nobody_asks_for_costs_no_product(problem, learn, products, kept):
    """`linear_logprob` recomputes only the logits of the chunks that it does not keep."""
    for name, x in problem.leaves.items():
        x.requires_grad_(name in learn)
    asked = {"impl": "chunked", "bias": False, "workspace": int(kept * N) * V * 8}
    assert cost(lambda: problem.weighted(Power(), **asked).loss) == products
    assert cost(lambda: -problem.logprob(**asked).sum()) == products + 1 - kept


def test_under_no_grad_there_is_one_product(problem):
    with Watch() as watch, torch.no_grad():
        out = problem.weighted(Power(), impl="chunked", bias=False)
        problem.logprob(impl="chunked", bias=False)
    assert watch.multiplications == 2 * ONE
    assert not out.loss.requires_grad


def test_ignored_rows_cost_nothing(problem):
    problem.target[:48] = -100
    assert cost(lambda: problem.weighted(Power(), impl="chunked", bias=False).loss) == 3 / 4
    assert cost(lambda: -problem.logprob(impl="chunked", bias=False).sum()) == 3 / 4


def test_rows_of_weight_zero_cost_no_backward_product(problem):
    """A quarter of the rows is active: one product for all rows, then two for that quarter."""
    problem.position = torch.arange(N)
    assert cost(lambda: problem.weighted(Gate(), impl="chunked", bias=False).loss) == 1 + 2 / 4
    weight_N = (torch.arange(N) % 4 == 1).float()
    assert cost(lambda: (weight_N * problem.logprob(impl="chunked", bias=False)).sum()) == 1 + 2 / 4


def test_without_active_rows_a_step_costs_the_forward_and_gives_zeros(problem):
    problem.position = torch.zeros(N, dtype=torch.long)
    assert cost(lambda: problem.weighted(Gate(), impl="chunked", bias=False).loss) == 1
    assert problem.hidden.grad.count_nonzero() == problem.head.grad.count_nonzero() == 0
    assert cost(lambda: (0 * problem.logprob(impl="chunked", bias=False)).sum()) == 1


@pytest.mark.parametrize("rows", [1, 63])
def test_logits_fit_in_the_workspace(rows):
    wide = Problem.make((N, 4000, D), torch.float32, ignored=0.0)
    workspace = rows * 4000 * 8  # logits and log-softmax
    for loss_of in (
        lambda: wide.weighted(Power(), impl="chunked", workspace=workspace).loss,
        lambda: wide.weighted(Gate(), impl="chunked", workspace=workspace).loss,
        lambda: wide.logprob(impl="chunked", workspace=workspace).sum(),
    ):
        with Watch() as watch:
            loss_of().backward()
        assert watch.largest <= max(rows, D) * 4000
    with Watch() as watch:
        wide.weighted(Power(), impl="eager").loss.backward()
    assert watch.largest == N * 4000


@pytest.mark.parametrize("weight", [Power(), Gate()], ids=["dense", "gated"])
@pytest.mark.parametrize("ignored", [0.0, 0.5])
def test_one_buffer_serves_whichever_rows_are_active(weight, ignored, monkeypatch):
    made, take = [], HeadConfig.new_buffer

    def new_buffer(self, total, like_VD, **kw):
        taken = take(self, total, like_VD, **kw)
        made.append(len(taken))
        return taken

    monkeypatch.setattr(HeadConfig, "new_buffer", new_buffer)
    problem = Problem.make((N, V, D), torch.float32, ignored=ignored)
    problem.weighted(weight, impl="chunked", workspace=30 * V * 8).loss.backward()
    assert made == [22]  # 64 rows in three chunks


@pytest.mark.parametrize(
    ("memory", "expected"), [(24, 512), (39, 512), (40, 1024), (79, 1024), (80, 2048), (150, 2048)]
)
def test_a_device_of_40_gb_gets_a_gigabyte_for_logits_and_one_of_80_two(memory, expected, monkeypatch):
    seen = SimpleNamespace(total_memory=memory * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: seen)
    monkeypatch.setattr(head_config, "_memory", head_config._memory.__wrapped__)  # without its cache
    assert default_workspace(torch.device("cuda", 0)) == expected * 2**20
    assert default_workspace(torch.device("cpu")) == 64 * 2**20


def test_chunks_are_even_and_whole_tiles():
    wide = config_of("chunked", torch.empty(1000, 4), workspace=300 * 1000 * 8)
    assert [wide.chunk_rows(n, 1000) for n in (1, 300, 301, 700, 5000)] == [1, 300, 256, 256, 256]
    hidden_ND, head_VD = torch.zeros(700, 4), torch.zeros(1000, 4)
    buffer = LogitBuffer(hidden_ND, head_VD, None, torch.zeros(700, dtype=int), wide, wide.new_buffer(700, head_VD))
    buffer.start(700, None, RowStats.empty(700, head_VD, plain=True))
    assert [len(chunk.z_CV) for chunk in buffer.chunks()] == [256, 256, 188]
    assert wide.chunk_rows(700, 1000, room=140) == 128
    narrow = config_of("chunked", torch.empty(1000, 4), workspace=90 * 1000 * 8)
    assert [narrow.chunk_rows(n, 1000) for n in (90, 100, 271)] == [90, 50, 68]


def config_with(early, impl="triton"):
    return HeadConfig(
        ops=ops_of(impl), dtype=torch.bfloat16, workspace=2048 * 2**20, accumulate=None, early=early
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "hidden", "early"),
    [(8192, 128256, 4096, 1024), (32768, 128256, 4096, 2048), (8192, 128256, 3072, 1024), (8192, 50304, 2048, 1024),
     (32768, 49152, 576, 4096), (8192, 49152, 576, 0), (1000, 128256, 4096, 0)],
    ids=["Llama-3.1-8B", "Llama-3.1-8B, 32k", "Llama-3.2-3B", "OLMo-1B", "SmolLM2-135M, 32k", "SmolLM2-135M", "few rows"],
)  # fmt: skip
def test_logits_are_launched_early_where_that_was_measured_to_help(tokens, vocabulary, hidden, early):
    """An eighth of the rows, in whole tiles and at most a quarter of a chunk; none if they are few multiplications."""
    pytest.importorskip("triton")
    head = torch.empty(vocabulary, hidden, dtype=torch.bfloat16, device="meta")
    how = config_with(EARLY_LAUNCH)
    assert how.early_rows(tokens, how.chunk_rows(tokens, vocabulary), head) == early


def test_nothing_is_launched_early_if_rows_cannot_be_found_without_a_wait():
    assert config_of("chunked", torch.empty(50, 4)).early is None


def test_an_early_launch_of_unknown_rows_is_an_error(problem):
    how, head = config_with(EarlyLaunch(one_in=1, least=0), "chunked"), problem.head.bfloat16()
    buffer = LogitBuffer(
        torch.empty(1024, D, dtype=torch.bfloat16), head, None, problem.target, how, how.new_buffer(1024, head)
    )
    row_N, _ = how.ops.find_targets(problem.target, V, -100)
    with pytest.raises(
        ValueError, match="an early launch of 256 rows needs row operations that find them without a wait"
    ):
        buffer.start_early(row_N, RowStats.empty(1024, head, plain=True))


def exp_call(rows=8192, vocabulary=128256, hidden=4096, *, softcap=None, residual=PLAIN, dtype=torch.bfloat16):
    hidden_ND, head_VD = (torch.empty(n, hidden, dtype=dtype) for n in (rows, vocabulary))  # memory that nobody touches
    ops = ops_of("chunked", softcap, residual)
    return HeadCall(hidden_ND, head_VD, torch.empty(rows), None, "triton", -100, None, None, ops)


@pytest.fixture
def hopper(monkeypatch):
    """A GPU of compute capability 9.0 with 80 GB, as far as decisions are concerned."""
    triton_ops = pytest.importorskip("widen.head.row_ops_triton", exc_type=ImportError)
    monkeypatch.setattr(triton_ops.TritonRowOps, "runs_on", staticmethod(lambda device: True))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(head_config, "default_workspace", lambda device: 2048 * 2**20)


def writes_exponentials(call, **other):
    return type(config_for(call._replace(**other)).ops).__name__ == "ExpRowOps"


@pytest.mark.usefixtures("hopper")
def test_the_first_product_writes_exponentials_in_large_calls_that_the_kernel_can_serve(monkeypatch):
    gains = exp_call(), exp_call(8192, 151936, 896), exp_call(32768, 49152, 576)
    assert all(writes_exponentials(call) for call in gains)
    assert not writes_exponentials(exp_call(8192, 50304, 2048))  # the host needs longer than is saved
    assert [writes_exponentials(exp_call(n, 50000, 64)) for n in (19999, 20000)] == [False, True]
    assert [writes_exponentials(exp_call(), workspace=n * 128256 * 2) for n in (2047, 2048)] == [False, True]
    others = (
        exp_call(hidden=4100),
        exp_call(softcap=30.0),
        exp_call(residual=(0.7, 0.0, 0.0)),
        exp_call(dtype=torch.float32),
    )
    assert not any(writes_exponentials(call) for call in others)
    assert not writes_exponentials(exp_call(), accumulate=torch.float32)
    assert not writes_exponentials(exp_call(), head_VD=torch.empty(4096, 128256, dtype=torch.bfloat16).t())
    shifted_VD = torch.empty(128256 * 4096 + 1, dtype=torch.bfloat16)[1:].view(128256, 4096)
    assert not writes_exponentials(exp_call(), head_VD=shifted_VD)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert not writes_exponentials(exp_call())


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    ("shape", "rows"), [((8192, 128256, 4096), 8192), ((8192, 151936, 896), 4096), ((32768, 49152, 576), 16384)]
)
def test_chunks_are_the_same_whether_logits_or_exponentials_are_written(shape, rows, monkeypatch):
    call = exp_call(*shape)
    assert writes_exponentials(call)
    with_exponentials = config_for(call).chunk_rows(*shape[:2])
    monkeypatch.setattr(head_config, "LEAST_EXP_LOGITS", 10**10)
    assert not writes_exponentials(call)
    assert with_exponentials == config_for(call).chunk_rows(*shape[:2]) == rows
