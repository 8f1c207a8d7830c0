"""The first product that writes exponentials, under Triton's interpreter; test_head_triton.py runs this file with TRITON_INTERPRET=1 set.

In float32: the interpreter's descriptors load bfloat16 as integers.
"""

import pytest
import torch
from head_oracle import IDS, Power, Problem, check, config_of, through_weighted

from widen.head import exp_product_triton, head_config
from widen.head.exp_product_triton import ExpRowOps

torch.set_num_threads(1)
# Overflow, and infinity minus infinity, in rows that are repaired.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def exponentials(monkeypatch):
    monkeypatch.setattr(head_config, "_multiplies_to_exponentials", lambda call, config: True)
    assert isinstance(config_of("triton", torch.empty(8, 4)).ops, ExpRowOps)


CLIMBS = [((7, 507, 24), 0.0), ((7, 507, 24), 60.0), ((7, 507, 24), 85.0), ((150, 300, 72), 0.0)]
"""Shapes, and how far logits climb above their target; rows that climb by 85 are repaired."""


@pytest.mark.parametrize(("shape", "climb"), CLIMBS, **IDS)
def test_error_is_no_worse_than_eager(shape, climb):
    check(shape, torch.float32, "triton", climb=climb)


@pytest.mark.parametrize("bias", [False, True])
def test_every_tile_of_a_program_is_multiplied(bias):
    """Three rows of tiles by three columns, for two programs."""
    problem = Problem.make((300, 600, 72), torch.float32)
    got, eager = (problem.weighted(Power(), impl=impl, bias=bias) for impl in ("triton", "eager"))
    torch.testing.assert_close((got.loss, got.logq_N), (eager.loss, eager.logq_N), rtol=1e-4, atol=1e-4)


def test_a_logit_of_minus_infinity_has_probability_zero_even_if_it_is_the_target():
    problem = Problem.make((6, 300, 8), torch.float32, ignored=0.0)
    with torch.no_grad():
        problem.bias[5:] = -float("inf")
        problem.target.clamp_(max=4)
        problem.target[3] = 200
        problem.hidden[2, 0] = float("nan")
    got, eager = (problem.weighted(Power(), impl=impl) for impl in ("triton", "eager"))
    torch.testing.assert_close(
        (got.logq_N, got.entropy_N), (eager.logq_N, eager.entropy_N), rtol=1e-4, atol=1e-4, equal_nan=True
    )
    assert got.logq_N[3] == -float("inf")


def test_no_log_probability_is_above_zero_where_the_model_is_certain():
    """The logit of the target is computed twice, in two orders: 1 minus its probability may round to less than 0."""
    problem = Problem.make((64, 300, 72), torch.float32, ignored=0.0)
    with torch.no_grad():
        problem.hidden.copy_(20 * problem.head[problem.target] / problem.head.std())
    got = problem.weighted(Power(), impl="triton", bias=False)
    assert got.logq_N.max() <= 0
    assert got.logq_N.min() > -1e-3


@pytest.mark.parametrize("first", [-100, 56])
def test_rows_launched_early_need_no_target(first, monkeypatch):
    """Row 0 stands in for rows that do not exist; its own target may be ignored."""
    monkeypatch.setattr(head_config, "EARLY_LAUNCH", head_config.EarlyLaunch(one_in=4, least=0))
    monkeypatch.setattr(head_config, "_TILE", 1)
    problem = Problem.make((32, 57, 16), torch.float32, ignored=0.0)
    problem.target[3:] = -100
    problem.target[0] = first
    got, eager = (through_weighted(problem, Power(), impl=impl) for impl in ("triton", "eager"))
    for name in eager:
        torch.testing.assert_close(got[name], eager[name], rtol=1e-4, atol=1e-5)


def test_a_target_outside_the_vocabulary_is_an_error_though_its_row_is_launched_early(monkeypatch):
    monkeypatch.setattr(head_config, "EARLY_LAUNCH", head_config.EarlyLaunch(one_in=4, least=0))
    monkeypatch.setattr(head_config, "_TILE", 1)
    problem = Problem.make((32, 57, 16), torch.float32, ignored=0.0)
    problem.target[1] = 10**9
    with pytest.raises(ValueError, match="outside the vocabulary"):
        problem.weighted(Power(), impl="triton")


@pytest.mark.parametrize(("room", "again"), [(32, 0), (20, 16)], ids=["one chunk", "two chunks"])
def test_logprob_multiplies_every_row_once_and_the_rows_that_it_could_not_keep_again(room, again, monkeypatch):
    rows, product = [], ExpRowOps.product_
    monkeypatch.setattr(ExpRowOps, "product_", lambda self, z, *a: rows.append(len(z)) or product(self, z, *a))
    monkeypatch.setattr(head_config, "_TILE", 1)
    problem = Problem.make((32, 57, 16), torch.float32, ignored=0.0)
    problem.logprob(impl="triton", workspace=room * 64 * 4).sum().backward()
    assert sum(rows) == 32 + again


def test_a_chunk_takes_four_launches_and_the_head_is_described_once_per_call(monkeypatch):
    launched, described, describe = [], [], exp_product_triton.TensorDescriptor.from_tensor

    class Noted:
        def __init__(self, name):
            self.name, self.kernel = name, getattr(exp_product_triton, name)

        def __getitem__(self, grid):
            launched.append(self.name)
            return self.kernel[grid]

    kernels = ["_target_logits", "_exp_product", "_finish_rows", "_repair_rows"]
    for name in kernels:
        monkeypatch.setattr(exp_product_triton, name, Noted(name))
    monkeypatch.setattr(
        exp_product_triton.TensorDescriptor,
        "from_tensor",
        lambda x, block: described.append(len(x)) or describe(x, block),
    )
    monkeypatch.setattr(head_config, "_TILE", 1)
    problem = Problem.make((32, 57, 16), torch.float32, ignored=0.0)
    problem.weighted(Power(), impl="triton", workspace=20 * 64 * 4)
    assert launched == 2 * kernels
    assert described == [57, *4 * [16]]  # the head, then hidden states and exponentials of each chunk
