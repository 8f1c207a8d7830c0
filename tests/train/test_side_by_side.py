"""Models side by side are the models alone: same data, same losses, same weights, up to rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from widen.data.mulmod import MulMod
from widen.losses import TokenWeight, parse
from widen.models.tiny_llama import LlamaShape
from widen.train.alone import train_alone
from widen.train.engine import Engine
from widen.train.settings import AdamW, Configuration, Schedule, Train
from widen.train.side_by_side import SideBySide
from widen.train.stacked_weights import StackedWeights

LOSSES = [
    "nll",
    "gold",
    "dft",
    "cdiv:alpha=1.4",
    "tailr:gamma=0.1",
    "lambda_pr:lam=0.5,gamma=0.1",
    "trunc:drop=0.2,window=64",
    "truncr:drop=0.2,window=64",
    "truncr:drop=0.2,window=64 * cdiv:alpha=1.2",
    "nll:steps=7 then truncr:drop=0.3,window=100,score=mean",
]
"""Every loss, a product and a schedule: trained."""
MORE = [
    "nll:floor=4.0",
    "cdiv:alpha=2,cap=30",
    "cdiv:alpha=1",
    "tailr:gamma=0",
    "tailr:gamma=1e-5,floor=0.2",
    "lambda_pr:lam=1,gamma=0.01",
    "trunc:drop=0.4,window=64,score=mean",
    "trunc:drop=0,window=16",
    "truncr:drop=0.5,window=7,floor=0.1",
    "truncr:drop=0.5,window=30 * truncr:drop=0.2,window=30",
    "nll:steps=3 then lambda_pr:lam=0.9,gamma=0.5",
]
"""Their corners: weights only."""
SHAPE = LlamaShape(layers=2, dim=16, heads=2, hidden=24, init_std=0.1)


def configurations(steps: int) -> list[Configuration]:
    """Every loss, each with its own data, seed, rate, decay, schedule, average and clipping."""
    made = []
    for i, loss in enumerate(LOSSES):
        optimizer = AdamW(lr=1e-3 * (1 + i % 3), weight_decay=0.1 * (i % 4), betas=(0.9, 0.99 if i % 2 else 0.999))
        if i % 5 == 0:
            optimizer = replace(optimizer, max_grad_norm=0.5)
        schedule = Schedule(decay=("constant", "linear", "cosine")[i % 3], warmup_steps=i % 4)
        train = Train(steps=steps, batch_size=24, optimizer=optimizer, schedule=schedule, ema=0.9 * (i % 2))
        data = MulMod(under_representation=0.1 + 0.02 * i, num_samples=100 + i, seed=i)
        made.append(
            Configuration(data=data, model=replace(SHAPE, init_std=0.1 + 0.01 * i), loss=loss, train=train, seed=i)
        )
    return made


@pytest.mark.parametrize(
    ("dtype", "steps", "tolerance"), [(torch.float64, 50, 1e-9), (torch.float32, 20, 1e-4)], ids=["float64", "float32"]
)
def test_each_model_is_what_it_would_be_alone(dtype, steps, tolerance):
    made = configurations(steps)
    together = SideBySide(made, engine=Engine(dtype=dtype, models_at_once=5))
    logs = list(together.advance())
    assert [log.step for log in logs] == list(range(steps))
    for m, configuration in enumerate(made):
        loop = train_alone(configuration, dtype=dtype)
        difference = (together.flat_MP[m] - loop.model.flat()).abs().max()
        assert difference < tolerance, f"{configuration.loss}: {difference}"
        assert loop.model.flat().std() > 0
        if loop.average is not None:
            average = torch.cat([loop.average[name].reshape(-1) for name in SHAPE.parameter_shapes()])
            assert (together.optimizer.average(m) - average).abs().max() < tolerance
            assert (average - loop.model.flat()).abs().max() > 1e-5


@pytest.mark.parametrize(
    "engine",
    [
        Engine(models_at_once=4, share=False),
        Engine(models_at_once=10),
        Engine(workers=2),  # a model to each worker
        Engine(models_at_once=5, workers=4),  # two groups, each batch in two parts
        Engine(models_at_once=10, workers=3, split=2),
    ],
    ids=["nothing shared", "one group", "workers", "parts", "parts and split"],
)
def test_how_the_arithmetic_is_cut_changes_nothing(engine):
    made = configurations(4)
    plain = SideBySide(made, engine=Engine(dtype=torch.float64, workers=1))
    expected = torch.tensor([log.loss_M for log in plain.advance()], dtype=torch.float64)
    threads = torch.get_num_threads()
    cut = SideBySide(made, engine=replace(engine, dtype=torch.float64))
    losses = torch.tensor([log.loss_M for log in cut.advance()], dtype=torch.float64)
    torch.testing.assert_close(losses, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(cut.flat_MP, plain.flat_MP, rtol=1e-10, atol=1e-10)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("m", [0, 7])
def test_one_model_shared_out_among_workers_is_the_same_model(m):
    """Each worker takes some of the sequences, in the order of their prefixes, and only the prefixes that these have."""
    made = [replace(c, data=replace(c.data, num_samples=1000)) for c in configurations(8)[m : m + 1]]
    plain, shared = (SideBySide(made, engine=Engine(dtype=torch.float64, workers=n)) for n in (1, 3))
    assert shared.groups[0].parts == 3
    list(plain.advance())
    list(shared.advance())
    torch.testing.assert_close(shared.flat_MP, plain.flat_MP, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_stacked_weights_are_the_losses_own(dtype):
    """Several steps, with log q from certain to hopeless; Trunc's lists fill, turn over and set their thresholds."""
    weights = [parse(loss) for loss in LOSSES + MORE]
    stacked = StackedWeights(weights, length=5, device="cpu", dtype=dtype)
    states = [weight.init() for weight in weights]
    mask = torch.ones(12, 5, dtype=torch.bool)
    kept = []
    for step in range(12):
        generator = torch.Generator().manual_seed(step % 2)  # a score comes again: ties with the threshold are kept
        logq = -(10 ** (4 * torch.rand(len(weights), 5, 12, generator=generator, dtype=torch.float64) - 2)).to(dtype)
        logq[:, 0, 0], logq[:, 1, 1] = 0.0, -200.0
        stacked.at_step(step)
        w = stacked.apply(logq)
        for m, weight in enumerate(weights):
            expected, states[m] = weight.apply(logq[m].T, mask, states[m])
            states[m] = weight.observe(weight.seen(states[m]), states[m])
            torch.testing.assert_close(w[m].T, expected, rtol=1e-6 if dtype == torch.float32 else 1e-13, atol=0)
            if not weight.token_local:
                assert torch.equal(w[m].T == 0, expected == 0)  # the same masks, not nearly
        kept.append((w == 0).double().mean().item())
    assert min(kept[6:]) > 0.01  # some gates were closed, or this test shows nothing


def test_states_survive_a_restore_to_the_bit():
    made = configurations(9)
    whole = SideBySide(made, engine=Engine(models_at_once=4))
    list(whole.advance())
    first = SideBySide(made, engine=Engine(models_at_once=4))
    list(first.advance(5))
    second = SideBySide(made, engine=Engine(models_at_once=4))
    second.restore(first.checkpoint())
    assert second.step == 5
    logs = list(second.advance())
    assert [log.step for log in logs] == [5, 6, 7, 8]
    assert torch.equal(second.flat_MP, whole.flat_MP)
    assert torch.equal(second.optimizer.ema_MP, whole.optimizer.ema_MP)
    with pytest.raises(ValueError, match="not the same run"):
        SideBySide(made[1:], engine=Engine()).restore(first.checkpoint())


class Focal(TokenWeight):
    """A loss of a user's own."""

    def at(self, logq_N, position_N, length_N):
        return -torch.expm1(logq_N)


def test_a_loss_of_ones_own_trains_side_by_side_too():
    made = [replace(c, loss=loss) for c, loss in zip(configurations(5)[:3], ["nll", Focal(), "gold"], strict=True)]
    together = SideBySide(made, engine=Engine(dtype=torch.float64, models_at_once=3))
    list(together.advance())
    for m, configuration in enumerate(made):
        alone = train_alone(configuration, dtype=torch.float64).model
        assert (together.flat_MP[m] - alone.flat()).abs().max() < 1e-9


def test_scores_of_all_models_come_from_one_pass():
    from widen.models.likelihood import log_likelihood

    made = configurations(3)[:3]
    trainer = SideBySide(made)
    list(trainer.advance())
    support = MulMod().support()[::200]
    scores = trainer.log_likelihood(support, [0.5, 1.0])
    assert scores.shape == (3, 2, len(support))
    for m in range(3):
        np.testing.assert_allclose(scores[m], log_likelihood(trainer.model(m), support, [0.5, 1.0]), rtol=1e-12)
    averaged = trainer.log_likelihood(support, [1.0], average=True)
    np.testing.assert_allclose(
        averaged[1, 0], log_likelihood(trainer.model(1, average=True), support, [1.0])[0], rtol=1e-12
    )
    np.testing.assert_allclose(averaged[0, 0], scores[0, 1], rtol=1e-12)  # model 0 keeps no average
    with pytest.raises(ValueError, match="keeps no average"):
        trainer.model(0, average=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": Train(steps=4, batch_size=24)}, "train.steps"),
        ({"train": Train(steps=3, batch_size=8)}, "train.batch_size"),
        ({"data": MulMod(modulus=7)}, "data.length"),
        ({"model": LlamaShape()}, "parameters"),
        ({"model": replace(SHAPE, norm_eps=1e-3)}, "norm_eps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_share_products_is_refused_by_name(change, message):
    first = replace(configurations(3)[0], train=Train(steps=3, batch_size=24))
    with pytest.raises(ValueError, match=message):
        SideBySide([first, replace(first, **change)])
    with pytest.raises(ValueError, match="empty"):
        SideBySide([])
