"""Weights that depend on whole sequences: the loss gets whole sequences, and no logits are computed twice if each sequence fits."""

import pytest
import torch
from head_oracle import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from test_head_cost import D, V, Watch

from widen.data.targets import IGNORE, Sequences
from widen.head import head_config
from widen.losses import parse
from widen.train.objective import Objective


class Likely:
    """Keeps the sequences that are likelier than ``least``; notes which rows each call got."""

    token_local = True
    needs = frozenset({"logq", "sequence"})

    def __init__(self, sequence_N, least):
        self.sequence_N, self.least, self.calls = sequence_N, least, []

    def sequence_ends(self, row_T):
        sequence_T = self.sequence_N if row_T is None else self.sequence_N[row_T]
        return [*(sequence_T.diff().nonzero()[:, 0] + 1).tolist(), len(sequence_T)]

    def weigh(self, rows):
        self.calls.append(rows["sequence"].unique().tolist())
        total = torch.zeros(1 + int(self.sequence_N.max()), dtype=rows.logq.dtype)
        total.index_add_(0, rows["sequence"], rows.logq)
        return (total >= self.least)[rows["sequence"]].to(rows.logq) * torch.exp(0.1 * rows.logq)


def problem_of(lengths, *, seed, ignored=0.3):
    """Sequences of these lengths, some of whose tokens are not targets, and the sequence of each row."""
    problem = Problem.make((sum(lengths), V, D), torch.float64, seed=seed, ignored=ignored)
    return problem, torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(lengths=LENGTHS, room=st.integers(1, 40), seed=st.integers(0, 99), share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_each_call_gets_whole_sequences_and_only_a_sequence_that_exceeds_the_workspace_is_multiplied_again(
    lengths, room, seed, share
):
    problem, sequence_N = problem_of(lengths, seed=seed)
    target = problem.target != IGNORE
    with torch.no_grad():
        logq_N = problem.logprob(bias=False, impl="eager")
    total = torch.zeros(len(lengths), dtype=torch.float64).index_add_(0, sequence_N, logq_N)
    least = total.sort().values[min(int((1 - share) * len(lengths)), len(lengths) - 1)] + (1.0 if share == 0 else 0.0)
    expected = Likely(sequence_N, least)
    kw = {"bias": False, "extra": {"sequence": sequence_N}}
    eager = problem.weighted(expected, impl="eager", **kw)
    wanted = torch.autograd.grad(eager.loss, (problem.hidden, problem.head))

    weight = Likely(sequence_N, least)
    with Watch() as watch:
        out = problem.weighted(weight, impl="chunked", workspace=room * V * 16, **kw)
        found = torch.autograd.grad(out.loss, (problem.hidden, problem.head))
    active = int((out.w_N != 0).sum())
    size_S = torch.zeros(len(lengths), dtype=torch.long).index_add_(0, sequence_N, target.long())
    again = int(((out.w_N != 0) & (size_S > room)[sequence_N]).sum())
    rows = watch.multiplications / (V * D)
    fixed = int(target.sum()) + 2 * active
    assert fixed <= rows <= fixed + again
    met = [s for call in weight.calls for s in call]
    assert met == [s for s in range(len(lengths)) if size_S[s]]  # each once, in order
    torch.testing.assert_close((out.w_N, *found), (eager.w_N, *wanted), rtol=1e-9, atol=1e-12)


def batch_of(lengths, *, packed, seed):
    """Sequences with so many targets, padded to one row each or packed into one row, and weights from the data, some of them 0."""
    g = torch.Generator().manual_seed(seed)
    lines = [[*torch.randint(0, V, (length,), generator=g).tolist(), IGNORE] for length in lengths]
    if packed:
        target_BC = torch.tensor([[x for line in lines for x in line]])
        start_BC = torch.tensor([[at == 0 for line in lines for at in range(len(line))]])
    else:
        target_BC = torch.tensor([line + [IGNORE] * (max(lengths) + 1 - len(line)) for line in lines])
        start_BC = None
    weight_BC = torch.rand(target_BC.shape, generator=g, dtype=torch.float64)
    return Sequences(target_BC, start_BC, {"loss_weights": torch.where(weight_BC < 0.2, 0.0, weight_BC)})


def run(loss, sequences, problem, *, room):
    """Rows times products; then weights, scores and gradients of the micro-batch, whose threshold drops about half of the sequences."""
    objective = Objective(parse(loss))
    with pytest.MonkeyPatch.context() as patch, Watch() as watch:
        patch.setitem(head_config.WORKSPACE, "cpu", 10**9)
        objective.through_head(problem.hidden, problem.head, sequences, num_tokens=50.0)
        objective.state = objective.weight.observe(objective.weight.seen(objective.state), objective.state)
        watch.multiplications = 0
        patch.setitem(head_config.WORKSPACE, "cpu", room * V * 16)
        out = objective.through_head(problem.hidden, problem.head, sequences, num_tokens=50.0)
        gradients = torch.autograd.grad(out.loss, (problem.hidden, problem.head))
    scores = objective.weight.seen(objective.state).flatten().sort().values
    return watch.multiplications / (V * D), (out.w_N, scores[~scores.isnan()], *gradients)


@pytest.mark.parametrize(
    "loss", ["trunc:drop=0.5,start=1", "truncr:drop=0.5,start=1 * cdiv:alpha=1.4,cap=10", "dco:n=16"]
)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(lengths=LENGTHS, packed=st.booleans(), share=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_losses_of_whole_sequences_multiply_every_row_once_and_active_rows_twice_more_in_any_workspace(
    loss, lengths, packed, share, seed
):
    sequences = batch_of(lengths, packed=packed, seed=seed)
    problem = Problem.make((sequences.target_N.numel(), V, D), torch.float64, seed=seed)
    room = max(max(lengths), int(share * sum(lengths)))
    rows, found = run(loss, sequences, problem, room=room)
    assert rows == sum(lengths) + 2 * int(found[0].count_nonzero())
    torch.testing.assert_close(found, run(loss, sequences, problem, room=10**6)[1], rtol=1e-9, atol=1e-12)
