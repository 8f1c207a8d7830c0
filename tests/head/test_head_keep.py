"""`linear_logprob` keeps the logits of its last chunk until the backward: one product less for them, and the same numbers."""

import weakref

import pytest
import torch
from head_oracle import Problem
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.head.head_config import HeadConfig


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 40), v=st.integers(1, 23), d=st.integers(1, 9), rows=st.integers(1, 50), seed=st.integers(0, 99),
    softcap=st.sampled_from([None, 0.7]), ignored=st.sampled_from([0.0, 0.3, 0.9]), share=st.sampled_from([0.0, 0.2, 0.8, 1.0]),
)  # fmt: skip
def test_chunked_is_eager_whatever_the_chunks_and_whichever_rows_are_active(
    n, v, d, rows, seed, softcap, ignored, share
):
    problem = Problem.make((n, v, d), torch.float64, seed=seed, ignored=ignored)
    g = torch.Generator().manual_seed(seed)
    weight_N = torch.randn(n, dtype=torch.float64, generator=g) * (torch.rand(n, generator=g) < share)
    weight_N[n // 2 :] *= seed % 3 != 0  # in a third of the cases the kept rows are inactive
    eager, mine = (
        problem.gradients((weight_N * problem.logprob(impl=impl, softcap=softcap, **kw)).sum())
        for impl, kw in (("eager", {}), ("chunked", {"workspace": rows * v * 40}))
    )
    for name in problem.leaves:
        torch.testing.assert_close(mine[name], eager[name], rtol=1e-10, atol=1e-11)


def test_inactive_rows_before_the_kept_ones_have_gradient_zero():
    problem = Problem.make((40, 7, 3), torch.float64, ignored=0.0)
    weight_N = torch.ones(40, dtype=torch.float64)
    weight_N[:10] = 0
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory with nan
    try:
        loss = (weight_N * problem.logprob(impl="chunked", workspace=20 * 7 * 16)).sum()
        got = problem.gradients(loss)["hidden"]
    finally:
        torch.use_deterministic_algorithms(False)
    assert not got[:10].any()
    torch.testing.assert_close(got, problem.gradients((weight_N * problem.logprob(impl="eager")).sum())["hidden"])


def test_a_second_backward_over_one_graph_gives_the_same_gradient():
    problem = Problem.make((30, 7, 3), torch.float64)
    loss = problem.logprob(impl="chunked", workspace=8 * 7 * 16).sum()
    leaves = list(problem.leaves.values())
    first, second = (torch.autograd.grad(loss, leaves, retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second)


@pytest.fixture
def alive(monkeypatch):
    """How many buffers of logits are alive."""
    made, take = [], HeadConfig.new_buffer

    def new_buffer(self, total, like_VD):
        taken = take(self, total, like_VD)
        made.append(weakref.ref(taken))
        return taken

    monkeypatch.setattr(HeadConfig, "new_buffer", new_buffer)
    return lambda: sum(b() is not None for b in made)


def test_the_logits_are_held_from_the_forward_to_the_first_backward(alive):
    problem = Problem.make((30, 7, 3), torch.float64)
    loss = problem.logprob(impl="chunked", workspace=8 * 7 * 16).sum()
    assert alive() == 1
    loss.backward(retain_graph=True)
    assert alive() == 0
    loss.backward()
    assert alive() == 0


def test_a_graph_that_is_dropped_gives_its_logits_back(alive):
    problem = Problem.make((30, 7, 3), torch.float64)
    loss = problem.logprob(impl="chunked").sum()
    assert alive() == 1
    del loss
    assert alive() == 0


@pytest.mark.parametrize("why", ["no_grad", "frozen", "no targets"])
def test_nothing_is_kept_where_no_gradient_is_asked_for(why, alive):
    problem = Problem.make((30, 7, 3), torch.float64)
    for x in problem.leaves.values():
        x.requires_grad_(why != "frozen")
    if why == "no targets":
        problem.target[:] = -100
    with torch.set_grad_enabled(why != "no_grad"):
        logq_N = problem.logprob(impl="chunked")
    assert alive() == 0
    assert logq_N.requires_grad == (why == "no targets")
