"""M models as batched products against each model alone under autograd, in float64."""

import numpy as np
import pytest
import torch

from widen.data.mulmod import MulMod
from widen.models.prefix import Prefixes, SharedBatch
from widen.models.stacked import StackedLlama
from widen.models.stacked_cpu import in_place
from widen.models.stacked_ops import Ops
from widen.models.tiny_llama import LlamaShape, TinyLlama

SHAPE = LlamaShape(layers=2, dim=16, heads=2, hidden=24, init_std=0.3)
OPS = {"definition": Ops, "in place": lambda: in_place(torch.float64)}


def shared_batch(sets: list[np.ndarray], shared: int) -> SharedBatch:
    tables = [Prefixes.of(tokens, batch_size=len(tokens), shared=shared) for tokens in sets]
    most = max(len(table.roots) for table in tables)
    roots = [np.pad(table.roots, ((0, most - len(table.roots)), (0, 0)), mode="edge").T for table in tables]
    return SharedBatch(
        torch.from_numpy(np.stack(roots)),
        torch.from_numpy(np.stack([table.index for table in tables])),
        torch.from_numpy(np.stack([tokens.T for tokens in sets])),
    )


def alone(model: TinyLlama, tokens: np.ndarray, upstream_LB: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.from_numpy(tokens)
    logq = model.logits(rows[:, :-1]).log_softmax(-1).gather(-1, rows[:, 1:, None])[..., 0]
    (logq.T * upstream_LB).sum().backward()
    parameters = dict(model.named_parameters())
    return logq.T.detach(), torch.cat([parameters[name].grad.reshape(-1) for name in model.shape.parameter_shapes()])


@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize("shared", [1, 4, 5, 7])
@pytest.mark.parametrize("split", [1, 4])
def test_log_probabilities_and_gradients_are_those_of_each_model_alone(ops, shared, split):
    models = [TinyLlama(SHAPE, seed=seed).double() for seed in range(3)]
    sets = [MulMod(seed=seed, num_samples=24).train_tokens() for seed in range(3)]
    net = StackedLlama.of(models, ops=OPS[ops](), split=split)
    upstream = torch.randn(3, 8, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # twice: kept buffers must not remember the first pass
        trace = net.forward(shared_batch(sets, shared))
        net.backward(trace, upstream)
    for m, model in enumerate(models):
        logq, grad = alone(model, sets[m], upstream[m])
        torch.testing.assert_close(trace.logq_MLB[m], logq, rtol=1e-12, atol=1e-12)
        assert (net.grad_MP[m] - grad).norm() / grad.norm() < 1e-12


def test_nothing_shared_but_bos_is_the_same_batch():
    tokens = MulMod(num_samples=16).train_tokens()
    net = StackedLlama.of([TinyLlama(SHAPE).double()])
    plain = SharedBatch.of(torch.from_numpy(tokens.T.copy())[None])
    torch.testing.assert_close(net.forward(plain).logq_MLB, net.forward(shared_batch([tokens], 4)).logq_MLB)
    with pytest.raises(ValueError, match="BOS"):
        SharedBatch.of(torch.tensor([[[1, 2], [3, 4]]]))


def test_the_cheapest_cut_of_the_integer_task_is_before_the_second_operand():
    prefixes = Prefixes.of(MulMod().train_tokens(), batch_size=512)
    assert prefixes.shared == 4
    assert len(prefixes.roots) == 99
    assert (prefixes.roots[prefixes.index] == MulMod().train_tokens()[:, :4]).all()


@pytest.mark.parametrize("shared", [0, 8, 9])
def test_a_cut_outside_the_sequence_is_refused(shared):
    with pytest.raises(ValueError, match="shared"):
        Prefixes.of(MulMod(num_samples=4).train_tokens(), batch_size=2, shared=shared or -1)


def test_a_buffer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="flat_MP"):
        StackedLlama(torch.zeros(2, 5), shape=SHAPE)
