"""The head in use: edges of the input, refusals, autocast, loss scaling, torch.compile, tied heads, reproducibility, the log."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from head_oracle import Gate, Power, Problem, through_weighted

from widen import losses
from widen.head import TokenLocalWeight, head_config, linear_logprob, weighted_linear_nll

IMPLS = ["eager", "chunked"]


def one(n):
    return torch.ones(n, dtype=torch.long)


def gradients_of(leaves, loss):
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("rows", [0, 3])
def test_a_batch_without_targets_gives_a_differentiable_zero(impl, rows):
    hidden, head = torch.randn(rows, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    target = torch.full((rows,), -100)
    out = weighted_linear_nll(
        hidden, head, target, Power(), position_N=one(rows), length_N=one(rows), num_tokens=0, impl=impl
    )
    logq = linear_logprob(hidden, head, target, impl=impl)
    assert out.loss == 0
    assert out.num_targets == 0
    for loss in (out.loss, logq.sum()):
        dx, dw = gradients_of((hidden, head), loss)
        assert dx.shape == hidden.shape
        assert dw.count_nonzero() == 0


@pytest.mark.parametrize("impl", IMPLS)
def test_ignored_rows_give_zero_and_change_nothing_else(impl):
    problem = Problem.make((30, 11, 5), torch.float64, ignored=0.4)
    keep = problem.target != -100
    out, logq = problem.weighted(Power(), impl=impl), problem.logprob(impl=impl)
    for x in (out.logq_N, out.w_N, out.entropy_N, out.is_top1_N, logq):
        assert not x[~keep].any()
    kept = Problem(
        problem.hidden.detach()[keep].requires_grad_(), problem.head, problem.bias,
        problem.target[keep], problem.position[keep], problem.length[keep],
    )  # fmt: skip
    sliced = kept.weighted(Power(), num_tokens=30, impl=impl)
    torch.testing.assert_close(out.loss, sliced.loss)
    torch.testing.assert_close(out.logq_N[keep], sliced.logq_N)
    assert out.num_targets == int(keep.sum()) < 30


def test_another_ignore_index_may_lie_inside_the_vocabulary():
    problem = Problem.make((12, 7, 3), torch.float64, ignored=0.0)
    problem.target[:5] = 0
    out = problem.weighted(Power(), ignore_index=0)
    assert out.num_targets == int((problem.target != 0).sum())
    assert not out.logq_N[:5].any()


@pytest.mark.parametrize("impl", IMPLS)
def test_targets_may_be_int32(impl):
    problem = Problem.make((12, 7, 3), torch.float64)
    expected = problem.weighted(Power(), impl=impl).loss, problem.logprob(impl=impl)
    problem.target = problem.target.int()
    torch.testing.assert_close((problem.weighted(Power(), impl=impl).loss, problem.logprob(impl=impl)), expected)


def test_the_papers_losses_and_a_class_of_five_lines_are_token_local_weights():
    assert isinstance(Power(), TokenLocalWeight)
    assert isinstance(losses.parse("cdiv:alpha=1.4"), TokenLocalWeight)


def test_the_weight_is_asked_chunk_by_chunk_in_float32_with_its_own_positions():
    seen = []

    class Spy(Power):
        def weigh(self, rows):
            assert not rows.logq.requires_grad
            seen.append((rows.logq.dtype, rows.position.clone(), rows.length.clone()))
            return super().weigh(rows)

    problem = Problem.make((40, 9, 3), torch.bfloat16)
    problem.weighted(Spy(), impl="chunked", workspace=10 * 9 * 10)
    keep = problem.target != -100
    assert {dtype for dtype, *_ in seen} == {torch.float32}
    assert len(seen) > 2
    assert torch.equal(torch.cat([p for _, p, _ in seen]), problem.position[keep])
    assert torch.equal(torch.cat([n for *_, n in seen]), problem.length[keep])


def test_auto_says_what_it_runs_and_why(caplog):
    with caplog.at_level(logging.DEBUG, logger="widen.head"):
        linear_logprob(torch.randn(2, 3), torch.randn(5, 3), torch.tensor([0, 1]))
    assert caplog.messages == ["impl=auto runs chunked: the tensors are on cpu"]


class Hinge(losses.TokenWeight):
    """A margin loss: the target's logit should exceed every other by 1."""

    needs = frozenset({"logq"})

    def weigh(self, rows):
        return torch.ones_like(rows.logq)

    def rows_fn(self, z_CV, target_C):
        onehot_CV = torch.nn.functional.one_hot(target_C, z_CV.shape[1]).to(z_CV.dtype)
        gap_CV = (1 - onehot_CV) + z_CV - z_CV.gather(1, target_C[:, None])
        loss_C, worst_C = gap_CV.max(1)
        return loss_C, torch.nn.functional.one_hot(worst_C, z_CV.shape[1]).to(z_CV.dtype) - onehot_CV


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_a_loss_may_be_any_function_of_a_row_of_logits(softcap):
    """The gradient that the function gives is the one that autograd finds for its value."""
    problem = Problem.make((20, 11, 5), torch.float64)
    kw = {"softcap": softcap, "num_tokens": 20}
    eager, mine = problem.weighted(Hinge(), impl="eager", **kw), problem.weighted(Hinge(), workspace=6 * 11 * 48, **kw)
    torch.testing.assert_close(mine.loss, eager.loss)
    torch.testing.assert_close(mine.sums, eager.sums)
    assert mine.loss > 0
    for a, b in zip(problem.gradients(mine.loss).values(), problem.gradients(eager.loss).values(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_product_passes_a_function_of_the_logits_on_and_has_one_at_most():
    problem = Problem.make((20, 11, 5), torch.float64)
    alone, loss = problem.weighted(Hinge()), losses.Product(Hinge(), losses.parse("cdiv:alpha=0.5"))
    out = problem.weighted(loss)
    torch.testing.assert_close(out.w_N, torch.where(problem.target == -100, 0.0, (0.5 * out.logq_N).exp()))
    assert 0 < out.loss < alone.loss
    with pytest.raises(ValueError, match="two residuals have no product"):
        losses.Product(Hinge(), losses.parse("gem"))
    with pytest.raises(ValueError, match="does not move the logits by softmax - onehot"):
        losses.weighted_nll(torch.zeros(1, 1), torch.ones(1, 1).bool(), loss, loss.init(), num_tokens=1)


def test_a_function_of_the_logits_runs_in_pytorch_and_says_why(caplog, monkeypatch):
    with caplog.at_level(logging.DEBUG, logger="widen.head"):
        chosen = head_config.choose_impl("auto", torch.device("cuda"), torch.bfloat16, rows_fn=True)
    assert chosen == "chunked"
    assert "this loss has a rows_fn, which is PyTorch code" in caplog.messages[0]
    monkeypatch.setattr(head_config, "_require_triton", lambda *_: None)
    with pytest.raises(ValueError, match="cannot run the rows_fn of this loss"):
        Problem.make((4, 7, 3), torch.float32).weighted(Hinge(), impl="triton")


def test_a_function_of_the_logits_that_returns_another_shape_is_refused():
    class Odd(Hinge):
        def rows_fn(self, z_CV, target_C):
            return z_CV, z_CV

    with pytest.raises(ValueError, match=r"rows_fn must return one loss per row, shape \(4,\)"):
        Problem.make((4, 7, 3), torch.float32, ignored=0.0).weighted(Odd())


@pytest.mark.parametrize("impl", IMPLS)
def test_logprob_gives_entropy_and_top1_on_request(impl):
    problem = Problem.make((33, 19, 5), torch.float64)
    kw = {"impl": impl, "workspace": 10 * 19 * 16}
    rows = problem.logprob(needs={"logq", "entropy", "top1"}, **kw)
    out = problem.weighted(Power(), impl="eager")
    torch.testing.assert_close((rows.logq, rows.entropy), (out.logq_N, out.entropy_N))
    assert torch.equal(rows.top1.bool(), out.is_top1_N)
    assert not rows.entropy.requires_grad
    for a, b in zip(*(problem.gradients(x.sum()).values() for x in (rows.logq, problem.logprob(**kw))), strict=True):
        assert torch.equal(a, b)
    assert "logq" not in problem.logprob(needs={"entropy"}, **kw)
    with pytest.raises(ValueError, match=r"needs=\['position'\]; legal: any of logq, entropy, top1"):
        problem.logprob(needs={"position"})


def test_logprob_can_be_differentiated_twice_over_one_graph():
    problem = Problem.make((8, 7, 3), torch.float64)
    loss = problem.logprob(impl="chunked").sum()
    first = gradients_of_retained(problem, loss)
    for a, b in zip(first, gradients_of_retained(problem, loss), strict=True):
        assert torch.equal(a, b)


def gradients_of_retained(problem, loss):
    return torch.autograd.grad(loss, list(problem.leaves.values()), retain_graph=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("accumulate", [None, torch.float32])
def test_under_autocast_products_run_in_its_dtype_and_gradients_come_back_in_the_parameters(dtype, accumulate):
    """As for F.linear: eager under the same autocast is the reference."""
    problem = Problem.make((24, 50, 16), torch.float32)
    results = []
    for impl in IMPLS:
        with torch.autocast("cpu", dtype=dtype):
            out = problem.weighted(Power(), impl=impl, accumulate=accumulate)
            logq = problem.logprob(impl=impl, accumulate=accumulate)
        assert out.loss.dtype == logq.dtype == torch.float32
        results.append((out.logq_N, logq, *gradients_of(list(problem.leaves.values()), out.loss + logq.sum())))
    eager, chunked = results
    assert torch.equal(eager[0], chunked[0])  # the same products, rounded the same way
    exact = problem.logprob(impl="eager")
    assert not torch.allclose(chunked[1], exact, atol=1e-5)
    for a, b in zip(chunked[2:], eager[2:], strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 2e-2 * b.norm()


def test_float64_is_not_lowered_by_autocast():
    problem = Problem.make((8, 7, 3), torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert problem.logprob(impl="chunked").dtype == torch.float64


def test_a_float16_gradient_survives_until_the_loss_scale_multiplies_it():
    """Over 1e8 tokens a gradient is 1e-7, at float16's smallest number; a loss scale of 2^16 brings it back only if it was not
    rounded first."""
    problem = Problem.make((16, 40, 8), torch.float16)
    exact = through_weighted(problem.to(torch.float64), Power(), scale=2.0**16, num_tokens=10**8, impl="eager")
    got = through_weighted(problem, Power(), scale=2.0**16, num_tokens=10**8, impl="chunked")
    for name in problem.leaves:
        assert (got[name].double() - exact[name]).norm() < 5e-3 * exact[name].norm()


def test_a_weight_of_ten_thousand_does_not_overflow_float16():
    class Heavy(Power):
        def weigh(self, rows):
            return torch.full_like(rows.logq, 1e4)

    problem = Problem.make((16, 40, 8), torch.float16, ignored=0.0)
    with torch.no_grad():
        problem.hidden[0, 0] = 100.0
    exact = through_weighted(problem.to(torch.float64), Heavy(), num_tokens=10**5, impl="eager")
    got = through_weighted(problem, Heavy(), num_tokens=10**5, impl="chunked")
    for name in problem.leaves:
        assert (got[name].double() - exact[name]).norm() < 5e-3 * exact[name].norm()


@pytest.mark.parametrize("num_tokens", [20, 20.0, torch.tensor(20), torch.tensor(20.0)])
def test_the_token_count_is_a_number_or_a_tensor(num_tokens):
    problem = Problem.make((20, 7, 3), torch.float64)
    assert torch.equal(
        problem.weighted(Power(), num_tokens=num_tokens).loss, problem.weighted(Power(), num_tokens=20).loss
    )


def test_accumulated_micro_batches_add_up_to_the_batch():
    problem = Problem.make((40, 13, 6), torch.float64)
    whole = problem.gradients(problem.weighted(Power(), num_tokens=40).loss)
    parts = [
        weighted_linear_nll(
            problem.hidden[s], problem.head, problem.target[s], Power(),
            position_N=problem.position[s], length_N=problem.length[s], num_tokens=40, bias=problem.bias,
        ).loss
        for s in (slice(0, 7), slice(7, 29), slice(29, 40))
    ]  # fmt: skip
    for x in problem.leaves.values():
        x.grad = None
    for loss in parts:
        loss.backward()
    for name, x in problem.leaves.items():
        torch.testing.assert_close(x.grad, whole[name])


def test_packed_sequences_are_the_sequences_one_by_one():
    """Packing only concatenates: nothing in the head looks at a neighbour."""
    problem = Problem.make((39, 13, 6), torch.float64)
    packed = problem.weighted(Gate(), impl="chunked", workspace=7 * 13 * 16)
    for s in (slice(0, 13), slice(13, 26), slice(26, 39)):
        alone = Problem(
            problem.hidden.detach()[s].requires_grad_(), problem.head, problem.bias,
            problem.target[s], problem.position[s], problem.length[s],
        ).weighted(Gate(), impl="chunked")  # fmt: skip
        torch.testing.assert_close(packed.logq_N[s], alone.logq_N)
        assert torch.equal(packed.w_N[s], alone.w_N)


@pytest.mark.parametrize("fused", [True, False])
def test_a_head_tied_to_the_embedding_gets_both_gradients(fused):
    torch.manual_seed(0)
    embed = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    token, target = torch.randint(0, 9, (20,)), torch.randint(0, 9, (20,))
    grads = []
    for impl in IMPLS:
        hidden = embed[token].tanh()
        if fused:
            loss = weighted_linear_nll(
                hidden, embed, target, Power(), position_N=one(20), length_N=one(20), num_tokens=20, impl=impl
            ).loss
        else:
            loss = -linear_logprob(hidden, embed, target, impl=impl).mean()
        grads += gradients_of([embed], loss)
    torch.testing.assert_close(*grads)


COMPILED = """
import warnings
warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")  # dynamo's own, at any graph break
import torch
from head_oracle import Power, Problem
from widen.head import linear_logprob, weighted_linear_nll

problem = Problem.make((20, 11, 6), torch.float64)
body = torch.nn.Linear(6, 6, dtype=torch.float64)

def fused(hidden_ND):
    out = weighted_linear_nll(
        body(hidden_ND).relu(), problem.head, problem.target, Power(),
        position_N=problem.position, length_N=problem.length, num_tokens=20,
    )
    return out.loss * 2 + out.entropy_N.sum()

def general(hidden_ND):
    return -linear_logprob(body(hidden_ND).relu(), problem.head, problem.target).sum() * 2

for step in (fused, general):
    compiled = torch.compile(step, backend="aot_eager")
    for hidden in (problem.hidden.detach(), 2 * problem.hidden.detach()):  # the second call reuses the graphs
        leaves = [problem.head, body.weight]
        torch.testing.assert_close(torch.autograd.grad(compiled(hidden), leaves), torch.autograd.grad(step(hidden), leaves))
"""


@pytest.mark.slow
def test_torch_compile_around_the_head_changes_nothing():
    """In a process of its own: dynamo would try to trace the type checker of the test run."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILED], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_two_runs_agree_to_the_bit_under_deterministic_algorithms():
    problem = Problem.make((60, 33, 6), torch.float32)
    kw = {"impl": "chunked", "workspace": 7 * 33 * 8}
    for weight in (Power(), Gate()):
        first, second = (through_weighted(problem, weight, **kw) for _ in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_hidden_states_need_not_be_contiguous():
    """What a model hands over is often a slice: all but the last position of every sequence."""
    torch.manual_seed(0)
    hidden_BLD = torch.randn(3, 9, 4, dtype=torch.float64, requires_grad=True)
    head = torch.randn(4, 7, dtype=torch.float64).T.requires_grad_()
    target = torch.randint(0, 7, (24,))
    grads = []
    for impl in IMPLS:
        hidden_ND = hidden_BLD[:, :-1].flatten(0, 1)
        strided_ND = hidden_ND.T.contiguous().T
        grads.append(gradients_of([hidden_BLD, head], linear_logprob(strided_ND, head, target, impl=impl).sum()))
    torch.testing.assert_close(*grads)


def test_a_nan_in_the_hidden_states_is_seen_in_the_loss():
    problem = Problem.make((8, 7, 3), torch.float32, ignored=0.0)
    with torch.no_grad():
        problem.hidden[3, 0] = float("nan")
    out = problem.weighted(Power(), impl="chunked")
    assert out.loss.isnan()
    assert out.logq_N.isnan().sum() == 1


@pytest.mark.parametrize("ignored", [0.0, 0.5], ids=["every row counts", "some do not"])
@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_log_probabilities_may_be_edited_in_place(impl, ignored):
    problem = Problem.make((12, 40, 6), torch.float32, ignored=ignored)
    expected = torch.autograd.grad((2 * problem.logprob(impl=impl)).sum(), problem.hidden)
    logq = problem.logprob(impl=impl)
    logq.mul_(2)
    torch.testing.assert_close(torch.autograd.grad(logq.sum(), problem.hidden), expected)
