"""A loss fitted to its run: windows that short runs can fill, and sentences about losses that would do nothing."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.losses import CDiv, Rows, Trunc, TruncR, fitted, idle, parse, refuse_late_start, was_idle
from widen.train.figures import Figures, concentration


@settings(max_examples=50, deadline=None, derandomize=True)
@given(drop=st.floats(0.01, 0.99), sequences=st.integers(0, 10**7), kind=st.sampled_from([Trunc, TruncR]))
def test_a_fitted_window_grows_with_the_square_of_the_run_within_its_bounds(drop, sequences, kind):
    loss, thin = kind(drop=drop).fitted(sequences), min(drop, 1 - drop)
    square = int(10_000 * (sequences / 40_000) ** 2 + 1e-9)
    assert loss.window == min(10_000, max(square, 19, math.ceil(2 / thin) - 1))
    assert loss.start <= max(sequences // 8, math.ceil(1 / thin))
    assert loss.start * thin >= 1 - 1e-9
    assert parse(str(loss)) == loss
    assert loss.fitted(7) == loss  # what is chosen, or was given, stays


def test_long_runs_keep_the_window_and_the_start_that_they_always_had():
    for drop in (0.05, 0.1, 0.25, 0.5, 0.9):
        long, unfitted = TruncR(drop=drop).fitted(40_000), TruncR(drop=drop)
        assert (long.window, long.first_drop) == (10_000, unfitted.first_drop)


def test_a_window_and_a_start_that_were_given_are_kept():
    assert TruncR(drop=0.1, window=300).fitted(40) == TruncR(drop=0.1, window=300)
    assert TruncR(drop=0.1, start=3).fitted(4000) == TruncR(drop=0.1, window=100, start=3)
    assert fitted(parse("cdiv:alpha=1.4"), 40) == CDiv(alpha=1.4)


def run(loss, *, steps=15, batch=8, rise=0.0):
    """Train nothing: show a loss random scores, higher by ``rise`` at each step. How many it drops in all, and its last state."""
    generator, state, dropped = torch.Generator().manual_seed(0), loss.init(), 0
    for step in range(steps):
        logq = step * rise - torch.rand(batch, 1, generator=generator)
        w, state = loss.apply(Rows(logq), torch.ones(batch, 1, dtype=torch.bool), state)
        state = loss.observe(loss.seen(state), state)
        dropped += int((w == 0).sum())
    return dropped, state


def test_a_hundred_and_twenty_sequences_are_enough_to_drop_a_tenth_of_them():
    unfitted, loss = TruncR(drop=0.1), TruncR(drop=0.1).fitted(120)
    assert run(unfitted)[0] == 0
    dropped, state = run(loss)
    assert 6 <= dropped <= 18
    assert was_idle(loss, state) is None
    assert idle(loss, steps=15, batch_size=8) is None


def test_truncr_drops_about_a_tenth_while_the_model_improves_fast():
    """With a window of a quarter of the run it dropped 41 %."""
    dropped, _ = run(TruncR(drop=0.1).fitted(1200), steps=150, rise=0.03)
    assert 0.08 <= dropped / 1200 <= 0.15


@pytest.mark.parametrize("spec", ["truncr:drop=0.1,window=10000", "nll:steps=2 then trunc:drop=0.1,window=500 * gold"])
def test_a_loss_that_cannot_drop_says_so_before_and_after(spec):
    loss = parse(spec)
    assert "will not drop any sequence: it needs 200 scores first, and this run has 120 sequences" in idle(
        loss, steps=15, batch_size=8
    )
    assert "has not dropped any sequence: it saw 120 scores and needs 200" in was_idle(loss, run(loss)[1])


def test_a_threshold_that_comes_with_the_last_step_drops_nothing():
    loss = TruncR(drop=0.5, window=8, start=16)
    assert idle(loss, steps=2, batch_size=8)
    assert idle(loss, steps=3, batch_size=8) is None
    assert run(loss, steps=2)[0] == 0 < run(loss, steps=3)[0]


def test_nll_that_fills_the_whole_run_is_refused():
    refuse_late_start(parse("nll:steps=7 then gold"), steps=8)
    with pytest.raises(ValueError, match=r"the run has 8 steps, so cdiv:alpha=0\.5 would never be used"):
        refuse_late_start(parse("nll:steps=8 then gold"), steps=8)


def test_a_few_tokens_that_decide_a_step_are_said_with_what_to_do():
    seen = Figures(tokens=1000, counted=1000, weight=10_999, squares=1e8 + 999, largest=1e4)
    said = concentration(CDiv(alpha=1.4, cap=1e4), seen)
    assert "effective sample size is 0.12%" in said
    assert "Lower the cap (cap=10)" in said
    assert "--after-nll-epochs 1" in said
    assert "cap" not in concentration(parse("dft"), seen).partition("decide")[2]


def test_tokens_left_out_on_purpose_do_not_count_as_a_low_sample_size():
    assert concentration(Trunc(drop=0.98), Figures(tokens=1000, counted=20, weight=20, squares=20, largest=1)) is None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(logq=st.lists(st.floats(-80, 0), min_size=1, max_size=50), alpha=st.floats(1.01, 4))
def test_the_default_cap_keeps_a_third_of_the_sample(logq, alpha):
    w = CDiv(alpha=alpha).weigh(Rows(torch.tensor(logq, dtype=torch.float64)))
    assert w.sum() ** 2 / (len(w) * w.square().sum()) >= 4 * 10 / 11**2 - 1e-9
