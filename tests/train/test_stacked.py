"""Stacked models are the models alone: same data, same losses, same weights, up to rounding."""

from dataclasses import replace

import pytest
import torch

from widen.data.mulmod import MulMod
from widen.losses import TokenWeight
from widen.models.tiny_llama import LlamaShape
from widen.train.log import read_log
from widen.train.settings import AdamW, Configuration, Schedule, Train
from widen.train.small_models import loop_of, train_one
from widen.train.stacked import Stacked, run_stacked

LOSSES = [
    "nll",
    "gem:beta=0.7 * tailr:gamma=0.1",
    "eaft * focal:gamma=2",
    "cdiv:alpha=1.4",
    "dco:n=4 * entropy:bonus=0.1",
    "lambda_pr:lam=0.5,gamma=0.1 * gold",
    "trunc:drop=0.2,window=64 * dft",
    "truncr:drop=0.2,window=64 * tofu:gamma=1,beta=0.8",
    "nll:steps=7 then truncr:drop=0.2,window=64 * smooth:eps=0.1",
    "nll:steps=7 then truncr:drop=0.3,window=100,score=mean",
]
"""Weights of every kind, products, schedules and residuals."""
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


def stacked(made, *, dtype=torch.float64, folders=None, **options) -> Stacked:
    folders = folders or [None] * len(made)
    loops = [loop_of(c, folder=folder, dtype=dtype, **options) for c, folder in zip(made, folders, strict=True)]
    return Stacked(loops, made)


def test_small_models_take_every_loss_but_those_with_a_reference():
    from widen import losses

    named = {name for name in losses.LOSSES if any(name in loss for loss in LOSSES)}
    assert set(losses.LOSSES) - named == {"asft", "anchor"}
    for loss in ("asft:kl=0.1", "nll:steps=2 then anchor:kl=0.1"):
        with pytest.raises(ValueError, match=r"reads ref_logq, which the data of a small model does not have"):
            Configuration(loss=loss)


def test_each_model_is_what_it_would_be_alone():
    dtype, steps, tolerance = torch.float64, 12, 1e-9
    made = configurations(steps)
    together = stacked(made, dtype=dtype)
    figures = together.advance(steps)
    together.write_back()
    for m, configuration in enumerate(made):
        alone = train_one(configuration, dtype=dtype)
        loop = together.loops[m]
        difference = (loop.model.flat() - alone.model.flat()).abs().max()
        assert difference < tolerance, f"{configuration.loss}: {difference}"
        assert figures[-1][m].sums.tokens == 24 * 8
        if alone.average is not None:
            for name, average in alone.average.items():
                assert (loop.average[name] - average).abs().max() < tolerance


class Weighed(MulMod):
    """Examples that count once, half or not at all."""

    def train_batch(self):
        batch = super().train_batch()
        weights = torch.arange(len(batch.mask_BL)) % 3 / 2
        return replace(batch, weights_BL=weights[:, None].expand(batch.mask_BL.shape).contiguous())


def test_weights_of_the_data_hold_in_stacked_models_too():
    plain = configurations(3)[:2]
    made = [replace(plain[0], data=Weighed(num_samples=100)), replace(plain[1], data=MulMod(num_samples=100))]
    together = stacked(made)
    figures = together.advance(3)
    assert 0 < figures[0][0].sums.counted < figures[0][0].sums.tokens == figures[0][1].sums.counted
    for m, configuration in enumerate(made):
        assert (together.flat_MP[m] - train_one(configuration, dtype=torch.float64).model.flat()).abs().max() < 1e-9


class Focal(TokenWeight):
    """A loss of a user's own, without a hash or an equality."""

    def weigh(self, rows):
        return -torch.expm1(rows.logq)


def test_a_loss_of_ones_own_trains_stacked_too():
    made = [replace(c, loss=loss) for c, loss in zip(configurations(5)[:3], ["nll", Focal(), Focal()], strict=True)]
    together = stacked(made)
    together.advance(5)
    for m, configuration in enumerate(made):
        assert (together.flat_MP[m] - train_one(configuration, dtype=torch.float64).model.flat()).abs().max() < 1e-9


def test_a_run_stacked_leaves_the_files_of_models_alone_and_resumes(tmp_path):
    """Stopped in the middle, it goes on stacked or alone: the checkpoint is that of one model."""
    made = [replace(c, train=replace(c.train, steps=8)) for c in configurations(8)[6:9]]
    folders = [tmp_path / str(m) for m in range(3)]
    first = stacked(made, folders=folders, save_every=3)

    def halt(count, figures):
        if first.step > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(halt)
    alone = train_one(made[0], folder=folders[0], dtype=torch.float64, save_every=3)
    rest = stacked(made[1:], folders=folders[1:], save_every=3)
    assert rest.step == 3
    run_stacked(rest.loops, made[1:], progress=lambda count, figures: None, compile=False)
    for loop, configuration, folder in zip([alone, *rest.loops], made, folders, strict=True):
        whole = train_one(configuration, dtype=torch.float64)
        assert (loop.model.flat() - whole.model.flat()).abs().max() < 1e-9
        assert [line["step"] for line in read_log(folder / "log.jsonl")] == list(range(8))
        assert {"weight_ess", "weight_mean", "entropy", "nll", "grad_norm", "lr", "loss"} <= read_log(
            folder / "log.jsonl"
        )[-1].keys()


def test_models_of_several_shapes_are_stacked_in_groups():
    made = configurations(3)[:2]
    other = replace(made[0], model=replace(SHAPE, layers=1))
    loops = [loop_of(c, dtype=torch.float64) for c in (*made, other)]
    run_stacked(loops, [*made, other], progress=lambda count, figures: None, compile=False)
    for loop, c in zip(loops, (*made, other), strict=True):
        assert (loop.model.flat() - train_one(c, dtype=torch.float64).model.flat()).abs().max() < 1e-9


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_what_is_not_finite_ends_the_run_before_it_reaches_any_weight(broken, monkeypatch):
    class Breaks(TokenWeight):
        calls = 0

        def weigh(self, rows):
            self.calls += 1
            return torch.full_like(rows.logq, float("nan") if broken == "loss" and self.calls == 3 else 1.0)

    made = [configurations(5)[0], replace(configurations(5)[1], loss=Breaks())]
    together = stacked(made)
    together.advance(2)
    before = together.flat_MP.clone()
    if broken == "gradient":
        real = torch.linalg.vector_norm
        monkeypatch.setattr(
            torch.linalg, "vector_norm", lambda x, dim: real(x, dim=dim) * torch.tensor([1.0, torch.inf])
        )
    with pytest.raises(ArithmeticError, match="step 3 is not made"):
        together.advance(3)
    assert torch.equal(together.flat_MP[1], before[1])
    assert not torch.equal(together.flat_MP[0], before[0])  # the others are not held up by it
    together.write_back()
    assert all(parameter.isfinite().all() for parameter in together.loops[1].model.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_the_models_are_those_of_the_cpu(compiled):
    made = configurations(20)
    loops = [loop_of(c, device="cuda", dtype=torch.float64) for c in made]
    together = Stacked(loops, made, compile=compiled)
    assert together.graph
    together.advance(20)
    for m, configuration in enumerate(made):
        assert (
            together.flat_MP[m].cpu() - train_one(configuration, dtype=torch.float64).model.flat()
        ).abs().max() < 1e-9
