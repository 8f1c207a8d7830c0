"""Rows of weight 0 cost no backward product, whatever their share and wherever they are."""

import pytest
import torch
from head_oracle import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from test_head_cost import D, N, V, cost

from widen.head import gradients
from widen.head.row_ops import RowOps


class Given:
    """Given weights, looked up by position."""

    token_local = True

    def __init__(self, w_N):
        self.w_N = w_N

    def weigh(self, rows):
        return self.w_N.to(rows.logq)[rows.position]


def gated(shape, share, seed, **kw):
    """A problem and weights of which about ``share`` are not 0."""
    problem, g = Problem.make(shape, torch.float64, seed=seed, **kw), torch.Generator().manual_seed(seed)
    problem.position = torch.arange(shape[0])
    w_N = torch.randn(shape[0], generator=g) * (torch.rand(shape[0], generator=g) < share)
    w_N[shape[0] // 2 :] *= seed % 3 != 0  # in a third of the cases no row of the second half is active
    return problem, w_N


SHARES = st.sampled_from([0.0, 0.05, 0.3, 0.6, 0.8, 0.98, 1.0])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 60), rows=st.integers(1, 70), seed=st.integers(0, 99), share=SHARES,
    softcap=st.sampled_from([None, 0.7]), ignored=st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
def test_chunked_is_eager_whichever_rows_are_active(n, rows, seed, share, softcap, ignored):
    problem, w_N = gated((n, 17, 5), share, seed, ignored=ignored)
    eager, mine = (
        problem.gradients(problem.weighted(Given(w_N), impl=impl, softcap=softcap, **kw).loss)
        for impl, kw in (("eager", {}), ("chunked", {"workspace": rows * 17 * 40}))
    )
    for name in problem.leaves:
        torch.testing.assert_close(mine[name], eager[name], rtol=1e-10, atol=1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99), share=SHARES, rows=st.integers(1, N))
def test_a_row_costs_one_product_and_two_more_if_it_is_active(seed, share, rows):
    problem, w_N = gated((N, V, D), share, seed, ignored=0.0)
    spent = cost(lambda: problem.weighted(Given(w_N), impl="chunked", bias=False, workspace=rows * V * 16).loss)
    assert spent == 1 + 2 * w_N.count_nonzero().item() / N


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99), share=SHARES, chunks=st.sampled_from([1, 2, 4]))
def test_linear_logprob_recomputes_logits_only_of_active_rows_that_were_not_kept(seed, share, chunks):
    problem, w_N = gated((N, V, D), share, seed, ignored=0.0)
    size = N // chunks
    lost = w_N[: N - size].count_nonzero().item()
    spent = cost(lambda: (w_N * problem.logprob(impl="chunked", bias=False, workspace=size * V * 16)).sum())
    assert spent == 1 + (2 * w_N.count_nonzero().item() + lost) / N


@pytest.mark.parametrize(
    ("share", "expected"),
    # 16 rows fit. All active: four times 16. Every fourth: 4, then 7 with the next 12 rows, then 10 with 9 more, over half the buffer.
    [(1, [16, 16, 16, 16]), (2, [12, 12, 8]), (4, [10, 6]), (64, [1])],
)
def test_active_rows_wait_until_there_are_enough_for_a_product(share, expected, monkeypatch):
    problem, taken = Problem.make((N, V, D), torch.float64, ignored=0.0), []
    problem.position = torch.arange(N)
    w_N = (problem.position % share == 0).float()
    add = gradients.Gradients.add
    monkeypatch.setattr(
        gradients.Gradients, "add", lambda self, z, *a, **kw: taken.append(len(z)) or add(self, z, *a, **kw)
    )
    problem.weighted(Given(w_N), impl="chunked", workspace=16 * V * 16)
    assert taken == expected


def test_a_row_of_weight_zero_and_no_finite_logit_spoils_nothing():
    """A loss may use a weight of 0 to drop such a row."""
    problem, w_N = gated((30, 17, 5), 1.0, 1, ignored=0.0)
    w_N[[3, 29]] = 0.0
    with torch.no_grad():
        problem.hidden[[3, 29]] = float("nan")
    found = problem.gradients(problem.weighted(Given(w_N), impl="chunked", workspace=8 * 17 * 16).loss)
    assert all(g.isfinite().all() for g in found.values())
    assert not found["hidden"][[3, 29]].any()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(active=st.lists(st.booleans(), min_size=1, max_size=50))
def test_active_rows_move_to_the_front_with_the_fewest_moves(active):
    w_C = torch.tensor(active).double()
    z_CV = torch.arange(len(active))[:, None].repeat(1, 3)
    order_C, hole_C, counts = RowOps().find_active(w_C)
    count, holes = counts.tolist()
    assert count == sum(active)
    assert holes == count - sum(active[:count])
    RowOps().move_rows_(z_CV, order_C, hole_C[:holes])
    assert z_CV[:count, 0].tolist() == order_C[:count].tolist()
    assert sorted(order_C[:count].tolist()) == [i for i, here in enumerate(active) if here]
