"""Problems for the head, their solution in float64, and how far an implementation is from it.

An implementation passes if its error is at most 1.1 times the error that eager torch makes in the same dtype, plus a slack for
dtypes whose rounding is coarse: both are errors against float64, as the norm of the difference over the norm.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import torch

from widen.head import linear_logprob, weighted_linear_nll
from widen.head.head_config import HeadCall, config_for
from widen.head.row_ops import PLAIN, RowStats, eager_value

# (rows, vocabulary, hidden): one row; sizes that nothing divides; the vocabularies of OLMo, Llama 3 and Qwen with few rows and a small D,
# since a large vocabulary can break indexing and the softmax, not the products. At least 20 rows: with under four rows per product the
# CPU's BLAS sums 128,256 terms one after the other, and that error would hide every other.
SHAPES = [(1, 7, 16), (129, 507, 123), (20, 50304, 24), (20, 128256, 16), (20, 151936, 8)]
SLACK = {torch.float32: 5e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
DTYPES = list(SLACK)
IDS = {"ids": lambda x: "x".join(map(str, x)) if isinstance(x, tuple) else str(x).removeprefix("torch.")}


class Power:
    """c-Div with alpha = 1.4: every row is active, rare tokens weigh more."""

    token_local = True

    def weigh(self, rows):
        return (-0.4 * rows.logq).exp()


class Gate:
    """A weight that is 0 for most rows, by their position: its zeros do not depend on rounding."""

    token_local = True

    def weigh(self, rows):
        return torch.where(rows.position % 4 == 1, 1.0 + rows.position / rows.length, 0.0).to(rows.logq.dtype)


class Bent:
    """A residual with every term, and weights as Power's."""

    token_local = True
    needs = frozenset({"logq"})

    def __init__(self, tau=0.7, smooth=0.2, entropy=0.3):
        self.residual = SimpleNamespace(tau=tau, smooth=smooth, entropy=entropy)

    def weigh(self, rows):
        return (-0.4 * rows.logq).exp()


class One:
    """NLL."""

    token_local = True

    def weigh(self, rows):
        return torch.ones_like(rows.logq)


@dataclass
class Problem:
    """One batch: packed sequences of unequal lengths, some targets ignored."""

    hidden: torch.Tensor
    head: torch.Tensor
    bias: torch.Tensor
    target: torch.Tensor
    position: torch.Tensor
    length: torch.Tensor

    @classmethod
    def make(cls, shape, dtype, device="cpu", seed=0, ignored=0.15):
        n, v, d = shape
        g = torch.Generator().manual_seed(seed)
        # Logits of spread about 2: the model is neither uniform nor sure.
        hidden, head = torch.randn(n, d, generator=g), 2 * torch.randn(v, d, generator=g) / d**0.5
        bias = torch.randn(v, generator=g) / 2
        target = torch.randint(0, v, (n,), generator=g)
        if n > 1:
            target[torch.rand(n, generator=g) < ignored] = -100
            target[0] = v - 1  # the last column is where a mask is wrong first
        real = [x.to(device, dtype).requires_grad_() for x in (hidden, head, bias)]
        position = torch.arange(n) % 13 + 1
        length = torch.full((n,), 13)
        return cls(*real, *(x.to(device) for x in (target, position, length)))

    @property
    def leaves(self):
        return {"hidden": self.hidden, "head": self.head, "bias": self.bias}

    def to(self, dtype):
        real = [x.detach().to(dtype).requires_grad_() for x in self.leaves.values()]
        return Problem(*real, self.target, self.position, self.length)

    def gradients(self, loss):
        return dict(zip(self.leaves, torch.autograd.grad(loss, list(self.leaves.values())), strict=True))

    def weighted(self, weight, *, num_tokens=None, bias=True, **kw):
        return weighted_linear_nll(
            self.hidden, self.head, self.target, weight, position_N=self.position, length_N=self.length,
            num_tokens=num_tokens or len(self.target), bias=self.bias if bias else None, **kw,
        )  # fmt: skip

    def logprob(self, *, bias=True, **kw):
        return linear_logprob(self.hidden, self.head, self.target, bias=self.bias if bias else None, **kw)


def through_logprob(problem, weight_N, **kw):
    """Values and gradients of a fixed weighting of log q."""
    logq_N = problem.logprob(**kw)
    loss = -(weight_N * logq_N).sum() / len(logq_N)
    return {"logq": logq_N.detach(), "loss": loss.detach()} | problem.gradients(loss)


def through_weighted(problem, weight, scale=1.0, **kw):
    """Values and gradients of the one-pass loss, times an upstream gradient."""
    out = problem.weighted(weight, **kw)
    values = {"logq": out.logq_N, "w": out.w_N, "entropy": out.entropy_N, "loss": out.loss.detach()}
    return values | problem.gradients(out.loss * scale)


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-300)).item()


def assert_as_good_as_eager(got, eager, exact, dtype, slack=None):
    """The rule of this module, for every value and gradient in the three dictionaries."""
    slack = SLACK[dtype] if slack is None else slack
    worse = {}
    for name in exact:
        mine, theirs = distance(got[name], exact[name]), distance(eager[name], exact[name])
        if not mine <= 1.1 * theirs + slack:
            worse[name] = (mine, theirs)
    assert not worse, f"error against float64 (mine, eager's) beyond 1.1 x + {slack}: {worse}"


def chunked(shape, dtype, impl, softcap=None, residual=PLAIN):
    """A workspace that cuts these rows into two chunks, unevenly."""
    rows, vocabulary, _ = shape
    return max(1, rows * 2 // 3) * ops_of(impl, softcap, residual).bytes_per_row(vocabulary, dtype)


def check_softmax(vocabulary, dtype, device="cpu", rows=37, residual=PLAIN):
    """The Triton softmax against float64 on the same logits, so that the rounding of the product does not matter."""
    problem = Problem.make((rows, vocabulary, 16), dtype, device, ignored=0.0)
    head, target = problem.head.detach(), problem.target
    config = config_of("triton", head, residual=residual)
    check_rows(torch.mm(problem.hidden.detach(), head.t(), out=config.new_buffer(rows, head)), target, config.ops)


def ops_of(impl, softcap=None, residual=PLAIN):
    """The row operations of an implementation."""
    if impl == "triton":
        from widen.head.row_ops_triton import TritonRowOps as Ops
    else:
        from widen.head.row_ops import RowOps as Ops
    return Ops(softcap=softcap, **dict(zip(("tau", "smooth", "entropy"), residual, strict=True)))


def config_of(impl, head_VD, *, softcap=None, workspace=None, accumulate=None, residual=PLAIN):
    """How a call with this head runs."""
    hidden_ND, target_N = head_VD[:1], torch.zeros(1, dtype=torch.long, device=head_VD.device)
    return config_for(
        HeadCall(
            hidden_ND, head_VD, target_N, None, impl, -100, workspace, accumulate, ops_of("chunked", softcap, residual)
        )
    )


def check_rows(z_CV, target, ops):
    """Row statistics and residuals of these logits agree with float64."""
    rows, vocabulary = z_CV.shape
    logp_CV = z_CV.double().log_softmax(1)
    stats = RowStats.empty(rows, z_CV, plain=ops.plain)
    value_C = eager_value(logp_CV, target, ops.tau, ops.smooth, ops.entropy)
    ops.fill_stats(z_CV, target, stats, residual=True)
    logq_C = logp_CV.gather(1, target[:, None])[:, 0]
    entropy_C = torch.special.entr(logp_CV.exp()).sum(1)
    close = {"rtol": 1e-5, "atol": 5e-5, "check_dtype": False}
    torch.testing.assert_close(stats.logq_C, logq_C, **close)
    torch.testing.assert_close(stats.entropy_C, entropy_C, **close)
    torch.testing.assert_close(stats.value_C, value_C, **close)
    assert torch.equal(stats.top1_C.bool(), logq_C == logp_CV.amax(1))
    residual_CV = (logp_CV / ops.tau).softmax(1) - (1 - ops.smooth) * torch.nn.functional.one_hot(target, vocabulary)
    if not ops.plain:
        bonus_CV = logp_CV.exp() * (logp_CV.clamp(min=-1e4) + entropy_C[:, None])
        residual_CV = residual_CV - ops.smooth / vocabulary + ops.entropy * bonus_CV
    # bfloat16 has 2^-7 relative steps, and the interpreter truncates where a device rounds.
    rtol = 2**-7 if z_CV.dtype == torch.bfloat16 else 2e-5
    torch.testing.assert_close(
        z_CV.double() * stats.factor_C[:, None], residual_CV, rtol=rtol, atol=1e-6, check_dtype=False
    )
    whole_CP = z_CV.as_strided((rows, z_CV.stride(0)), (z_CV.stride(0), 1))
    assert not whole_CP[:, vocabulary:].any()  # the padding of a row stays 0


def check_climb(dtype, device="cpu", residual=PLAIN, all_targets=True):
    """Rows of several blocks (4,096 logits in bfloat16, 2,048 in float32), some of which lie far above earlier ones."""
    steps_CB = [
        [0, 0, 0, 0], [0, 19, 0, 0], [0, 21, 0, 0], [0, 41, 82, 123], [0, 19, 22, 0], [0, 19, 59, 60], [5, 100, 0, 104],
        [1e4, 10021, 0, 1e4],
        [0, 0, 0, 500], [0, -500, 0, -500], [-1e9, 0, 1, 0], [-float("inf"), 0, 1, 0], [-float("inf"), -float("inf"), -float("inf"), 3],
        [-1e30, -1e30, 1e30, 0], [0, 3e38, 0, 3e38],
    ]  # fmt: skip
    size, rows = 4096, len(steps_CB)
    g = torch.Generator().manual_seed(0)
    z_CV = 2 * torch.randn(rows, 4 * size - 7, generator=g)
    z_CV += torch.tensor(steps_CB).repeat_interleave(size, 1)[:, :-7]
    target = torch.randint(0, z_CV.shape[1], (rows,), generator=g)
    kinds = target, z_CV.argmax(1), torch.zeros_like(target), torch.full_like(target, z_CV.shape[1] - 1)
    if not all_targets:  # one kind per row
        kinds = (torch.stack([kinds[row % 4][row] for row in range(rows)]),)
    for at in kinds:
        like_VD = torch.empty(z_CV.shape[1], 1, dtype=dtype, device=device)
        config = config_of("triton", like_VD, residual=residual)
        check_rows(config.new_buffer(rows, like_VD).copy_(z_CV), at.to(device), config.ops)


def check_residual(shape, dtype, impl, residual, *, device="cpu", softcap=None):
    """`weighted_linear_nll` with another residual, in several chunks, against eager and float64."""
    problem, weight = Problem.make(shape, dtype, device), Bent(*residual)
    mine = {"impl": impl, "softcap": softcap, "workspace": chunked(shape, dtype, impl, softcap, residual)}
    assert_as_good_as_eager(
        through_weighted(problem, weight, **mine),
        through_weighted(problem, weight, impl="eager", softcap=softcap),
        through_weighted(problem.to(torch.float64), weight, impl="eager", softcap=softcap),
        dtype,
    )


def check(shape, dtype, impl, *, device="cpu", softcap=None, climb=0.0, **kw):
    """`linear_logprob` and `weighted_linear_nll` (dense and gated) on one problem, in several chunks, against eager and float64.

    The second half of the vocabulary lies ``climb`` above the first.
    """
    problem = Problem.make(shape, dtype, device)
    with torch.no_grad():
        problem.bias[shape[1] // 2 :] += climb
    exact = problem.to(torch.float64)
    eager = {"impl": "eager", "softcap": softcap}
    mine = {"impl": impl, "softcap": softcap, "workspace": chunked(shape, dtype, impl, softcap)} | kw
    weight_N = torch.linspace(0.0, 2.0, shape[0], device=device)  # the first row's upstream gradient is 0
    if shape[0] == 1:
        weight_N += 1
    assert_as_good_as_eager(
        through_logprob(problem, weight_N, **mine),
        through_logprob(problem, weight_N, **eager),
        through_logprob(exact, weight_N.double(), **eager),
        dtype,
    )
    for weight in (Power(), Gate(), One()):
        assert_as_good_as_eager(
            through_weighted(problem, weight, **mine),
            through_weighted(problem, weight, **eager),
            through_weighted(exact, weight, **eager),
            dtype,
        )
