"""The loop: schedule, average, accumulation, log, and a resume that changes nothing."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from widen.data.mulmod import MulMod
from widen.head import SUMS, target_sums
from widen.losses import TokenWeight
from widen.models.convert import load_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.train.figures import Figures
from widen.train.log import Log, read_log
from widen.train.loop import Loop, Timer
from widen.train.order import Order
from widen.train.settings import AdamW, Configuration, Schedule, Train
from widen.train.small_models import batches_of, train_models, train_one

GOLDEN = Path(__file__).parent / "golden"
TINY = Configuration(
    data=MulMod(num_samples=200),
    model=LlamaShape(layers=2, dim=16, heads=2, hidden=24, init_std=0.1),
    loss="nll:steps=4 then truncr:drop=0.2,window=64 * cdiv:alpha=1.4",
    train=Train(
        steps=12, batch_size=16, optimizer=AdamW(weight_decay=0.1), schedule=Schedule(decay="cosine", warmup_steps=3), ema=0.9
    ),
    seed=3,
)  # fmt: skip


@pytest.mark.parametrize("name", ["cdiv", "truncr"])
def test_the_trajectory_is_the_golden_one(name, tmp_path):
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    train_one(replace(TINY, loss=golden["loss"]), folder=tmp_path, dtype=torch.float64)
    steps = read_log(tmp_path / "log.jsonl")
    for key in ("loss", "nll", "grad_norm"):
        np.testing.assert_allclose([s[key] for s in steps], [s[key] for s in golden["steps"]], rtol=1e-9, err_msg=key)


def test_a_finished_run_leaves_a_model_its_average_and_a_log(tmp_path):
    loop = train_one(TINY, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "checkpoint", "log.jsonl"]
    assert torch.equal(load_pretrained(tmp_path / "checkpoint").flat(), loop.model.flat())
    average = load_pretrained(tmp_path / "checkpoint" / "average").flat()
    assert torch.equal(average, torch.cat([loop.average[n].reshape(-1) for n in TINY.model.parameter_shapes()]))
    assert not torch.equal(average, loop.model.flat())
    records = read_log(tmp_path / "log.jsonl")
    assert [r["step"] for r in records] == list(range(12))
    assert records[0]["lr"] == pytest.approx(1e-3 / 3)
    assert records[3]["weight_mean"] == 1  # NLL first
    assert records[-1]["weight_mean"] > 1


def test_stopping_anywhere_and_resuming_gives_the_same_bits(tmp_path):
    whole = train_one(TINY, folder=tmp_path / "whole")
    for stop in (1, 4, 7, 11):
        folder = tmp_path / str(stop)
        loop = make_loop(folder)

        def halt(now, stop=stop):
            if now.step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            loop.run(progress=halt)
        torch.manual_seed(stop)
        again = make_loop(folder)
        assert again.step == stop // 3 * 3
        again.run()
        assert torch.equal(again.model.flat(), whole.model.flat())
        assert all(torch.equal(again.average[name], whole.average[name]) for name in whole.average)
        assert read_log(folder / "log.jsonl") == read_log(tmp_path / "whole" / "log.jsonl")


def make_loop(folder: Path, configuration: Configuration = TINY) -> Loop:
    model = TinyLlama(configuration.model, seed=configuration.seed)
    return Loop(
        model, batches_of(configuration), configuration.weight, configuration.train, folder=folder, save_every=3
    )


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    make_loop(tmp_path).run()
    with pytest.raises(ValueError, match="loss"):
        make_loop(tmp_path, replace(TINY, loss="gold"))
    with pytest.raises(ValueError, match="train"):
        make_loop(tmp_path, replace(TINY, train=replace(TINY.train, steps=13)))


@pytest.mark.parametrize("micro", [5, 16])
def test_micro_batches_change_nothing(micro):
    plain = train_one(TINY, dtype=torch.float64).model.flat()
    cut = replace(TINY, train=replace(TINY.train, micro_batch=micro))
    assert (train_one(cut, dtype=torch.float64).model.flat() - plain).abs().max() < 1e-11


def test_many_write_one_folder_each_and_resume(tmp_path):
    """Killed when two of three models are done or under way: each goes on from its own checkpoint."""
    made = [
        replace(TINY, loss=loss, seed=seed) for seed, loss in enumerate(["nll", "truncr:drop=0.2,window=64", "gold"])
    ]
    folders = [tmp_path / c.loss[:4] for c in made]

    def halt(now):
        if now.step == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_models(made, folders, progress=halt, save_every=5, log_every=1)
    assert not all((folder / "checkpoint").exists() for folder in folders)
    steps = []
    train_models(made, folders, save_every=5, log_every=1, progress=lambda now: steps.append((now.step, now.steps)))
    assert steps[-1] == (36, 36)
    assert len(steps) < 36  # the rest was done before
    for configuration, folder in zip(made, folders, strict=True):
        assert sorted(path.name for path in folder.iterdir()) == [".lock", "checkpoint", "log.jsonl"]
        assert [r["step"] for r in read_log(folder / "log.jsonl")] == list(range(12))
        assert torch.equal(load_pretrained(folder / "checkpoint").flat(), train_one(configuration).model.flat())
        assert (folder / "checkpoint" / "average" / "config.json").exists()
    with pytest.raises(ValueError, match="2 folders"):
        train_models(made, folders[:2])


def test_threads_change_nothing_and_are_given_back(tmp_path):
    made = [replace(TINY, seed=seed) for seed in range(3)]
    torch.set_num_threads(2)
    loops = train_models(made, [tmp_path / str(seed) for seed in range(3)])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    for configuration, loop in zip(made, loops, strict=True):
        assert torch.equal(loop.model.flat(), train_one(configuration).model.flat())


def test_a_model_that_cannot_go_on_stops_the_others(tmp_path):
    class Breaks(TokenWeight):
        def weigh(self, rows):
            return torch.full_like(rows.logq, math.nan)

    torch.set_num_threads(2)
    long = replace(TINY, train=replace(TINY.train, steps=100_000))
    with pytest.raises(ArithmeticError, match="step 1 is not made"):
        train_models([long, replace(long, loss=Breaks())], [tmp_path / "a", tmp_path / "b"])
    assert not (tmp_path / "a" / "checkpoint").exists()


def test_figures_of_parts_add_up_to_those_of_the_whole():
    torch.manual_seed(0)
    w = torch.rand(40).double() * (torch.rand(40) > 0.3)
    logq, entropy, top1 = -torch.rand(40), torch.rand(40), (torch.rand(40) > 0.5).float()

    def figures(part):
        return Figures(*target_sums(logq[part], w[part], entropy[part], top1[part], tokens=len(w[part])).tolist())

    whole, parts = figures(slice(0, 40)), figures(slice(0, 15)) + figures(slice(15, 40))
    wanted = {
        "nll": -logq.mean(), "entropy": entropy.mean(), "token_accuracy": top1.mean(), "weight_mean": w.mean(), "weight_max": w.max(),
        "weight_ess": w.sum() ** 2 / (40 * w.square().sum()), "weight_zero_share": (w == 0).double().mean(),
    }  # fmt: skip
    for found in (whole, parts):
        assert found.logged() == pytest.approx({name: value.item() for name, value in wanted.items()}, rel=1e-6)
    assert Figures().logged() == {}


def test_a_torn_last_line_and_steps_ahead_of_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n{"st')
    log = Log(path, step=2)
    log.write({"step": 2, "loss": 1.5})
    log.close()
    assert read_log(path) == [{"step": 0}, {"step": 1}, {"step": 2, "loss": 1.5}]
    path.write_text('{"step": 0}\nrubbish\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_log(path)


def test_every_epoch_sees_every_sample_once_and_batches_are_always_full():
    order = Order(num_samples=10, batch_size=4, seed=1)
    stream = np.concatenate([order.indices(step) for step in range(10)])
    for epoch in stream.reshape(4, 10):
        assert sorted(epoch) == list(range(10))
    assert (stream[:10] != stream[10:20]).any()
    assert (Order(num_samples=10, batch_size=4, seed=2).indices(0) != order.indices(0)).any()
    assert (Order(num_samples=3, batch_size=8, seed=0).indices(5) < 3).all()


def test_schedules_are_their_formulas():
    cosine = Schedule(decay="cosine", warmup_steps=2, final=0.1)
    assert [cosine.factor(step, 10) for step in (0, 1)] == [0.5, 1.0]
    assert cosine.factor(6, 10) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)
    assert Schedule(decay="linear", final=0.1).factor(10, 10) == pytest.approx(0.1)
    assert Schedule().factor(10**6, 10) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamW(lr=-1.0), "lr=-1"),
        (lambda: AdamW(betas=(0.9, 1.0)), "betas"),
        (lambda: AdamW(eps=0.0), "eps"),
        (lambda: AdamW(weight_decay=-0.1), "weight_decay"),
        (lambda: AdamW(max_grad_norm=0.0), "max_grad_norm"),
        (lambda: Schedule(final=2.0), "final"),
        (lambda: Schedule(warmup_steps=-1), "warmup_steps"),
        (lambda: Train(steps=-1), "steps"),
        (lambda: Train(batch_size=0), "batch_size"),
        (lambda: Train(micro_batch=0), "micro_batch"),
        (lambda: Train(ema=1.0), "ema"),
        (lambda: Configuration(seed=-1), "seed"),
        (lambda: Configuration(loss="cdiv:alfa=2"), "alfa"),
    ],
)
def test_bad_settings_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_time_left_counts_the_steps_of_this_process_only():
    timer = Timer(90, 100)
    timer.start -= 10.0  # as if ten seconds had passed
    assert timer.at(95, 1.0, 1.0).seconds_left == pytest.approx(10, rel=0.01)
    assert timer.at(90, 1.0, 1.0).seconds_left == math.inf


def test_a_loss_that_leaves_nothing_to_train_says_so_once(tmp_path, caplog):
    """lambda-PR from scratch with a tiny gamma: delta is 3e-5, and a fresh model is nowhere that unsure."""
    data = MulMod(modulus=7, high=9, under_representation=None, num_samples=64)
    made = Configuration(data=data, loss="lambda_pr:lam=0.1,gamma=1e-5", train=Train(steps=3, batch_size=8))
    with caplog.at_level("WARNING", logger="widen.train"):
        train_one(made, folder=tmp_path)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "only 0.00% of the target tokens count" in said
    assert "delta = " in said


@pytest.mark.parametrize("size", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_ends_the_run_before_it_reaches_the_weights(size):
    class Breaks(TokenWeight):
        step = 0

        def weigh(self, rows):
            self.step += 1
            return torch.full_like(rows.logq, size if self.step > 3 else 1.0)

    loop = Loop(TinyLlama(TINY.model, seed=3), batches_of(TINY), Breaks(), TINY.train)
    for _ in range(3):
        loop.advance()
    before = loop.model.flat().clone()
    with pytest.raises(ArithmeticError, match="weights are those of the step before"):
        loop.advance()
    assert torch.equal(loop.model.flat(), before)
    assert before.isfinite().all()


def test_the_first_figures_are_the_sums_of_the_head():
    assert Figures._fields == (*SUMS, "sequences")
