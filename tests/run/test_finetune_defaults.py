"""What a fine-tuning does when it is told nothing but model, data and loss: it trains, and says how much."""

import json
import logging
from dataclasses import replace

import pytest
from tiny_pretrained import save_model, save_sums

from widen.cli.__main__ import main
from widen.run.finetune import FineTune, Lora, Source, fine_tune
from widen.run.finetune.defaults import PAPER, choose, learning_rate, steps_of
from widen.run.finetune.summary import HARDLY

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("defaults")
    model, data = save_model(folder / "tiny-model"), save_sums(folder / "sums.jsonl", count=60)
    return FineTune(model=model, train=Source(task="mathqa_python", path=data), precision="fp32", loss="cdiv:alpha=1.4")


def log(folder):
    return [json.loads(line) for line in folder.log.read_text().splitlines()]


def summary(folder):
    return json.loads((folder.path / "summary.json").read_text())


def test_sixty_rows_with_defaults_move_the_weights_and_lower_the_nll(base, tmp_path):
    said = []
    folder = fine_tune(replace(base, epochs=2), tmp_path, device="cpu", say=said.append)
    found = summary(folder)
    assert found["weight_change"] > 10 * HARDLY
    assert found["nll_last"] < found["nll_first"] - 0.2
    assert found["chosen"]["lr"] == max(line.get("lr", 0) for line in log(folder)) == 1e-3
    assert [line.get("weight_change") for line in log(folder)] == [None] * 15 + [found["weight_change"]]
    assert "16 steps, learning rate 0.001, no warm-up" in said[1]  # said[0] describes the data
    for name in ("weight_ess", "weight_zero_share"):  # one name per figure: that of the log
        assert found[name] == pytest.approx(sum(line[name] for line in log(folder)) / 16)
    assert "the weights moved by" in said[-1]
    assert ": step 16: loss " in said[-2]
    assert len(said) == 3 + 8  # at most ten sentences of progress


def test_a_run_that_hardly_moved_its_weights_says_so(base, tmp_path, caplog):
    config = replace(base, lr=1e-8, max_steps=1, lora=Lora(rank=2))
    with caplog.at_level(logging.WARNING, logger="widen.run"):
        folder = fine_tune(config, tmp_path, device="cpu")
    assert 0 <= summary(folder)["weight_change"] < 1e-5
    assert "the weights hardly moved" in caplog.text


def test_the_weight_change_is_the_relative_norm_of_the_difference(base, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = fine_tune(replace(base, lr=1e-2, max_steps=2), tmp_path, device="cpu")
    start, end = (AutoModelForCausalLM.from_pretrained(path) for path in (base.model, folder.checkpoint))
    pairs = list(zip(start.parameters(), end.parameters(), strict=True))
    moved = sum((a - b).double().square().sum().item() for a, b in pairs)
    length = sum(a.double().square().sum().item() for a, _ in pairs)
    assert summary(folder)["weight_change"] == pytest.approx((moved / length) ** 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"warmup_steps": 1000}, r"warmup_steps=1000 .*: the run has 8 steps.* only reach 0\.007 of its value"),
        ({"warmup_steps": 8}, r"warmup_steps=8 .*: the run has 8 steps"),
        ({"loss": "nll:steps=8 then gold"}, r"the run has 8 steps, so cdiv:alpha=0\.5 would never be used"),
    ],
)
def test_a_warm_up_that_does_not_end_inside_the_run_is_refused_before_anything_is_written(
    base, tmp_path, changes, sentence
):
    with pytest.raises(ValueError, match=sentence):
        fine_tune(replace(base, **changes), tmp_path / "runs", device="cpu")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("changes", [{"epochs": 2.5}, {"batch_size": 24, "micro_batch": 4}])
def test_steps_are_counted_as_the_host_counts_them(base, tmp_path, changes):
    class Stop(Exception):
        pass

    def stop(_, done, total):
        raise Stop(total)

    config = replace(base, **changes)
    with pytest.raises(Stop) as stopped:
        fine_tune(config, tmp_path, device="cpu", progress=stop)
    assert stopped.value.args == (steps_of(config, examples=60),)


def test_the_rate_falls_with_the_size_of_the_model_and_is_larger_for_an_adapter(base):
    rates = [learning_rate(size) for size in (10**4, 10**8, 10**9, 10**10, 10**11)]
    assert rates == sorted(rates, reverse=True)
    assert 1e-3 >= rates[0] > rates[-1] >= 1e-6
    assert learning_rate(10**9, lora=True) == pytest.approx(10 * learning_rate(10**9), rel=0.01)
    chosen = choose(replace(base, lr=3e-5, warmup_steps=7), parameters=10**9, steps=100)
    assert (chosen.lr, chosen.warmup_steps) == (3e-5, 7)
    assert choose(replace(base, schedule="constant"), parameters=10**9, steps=100).warmup_steps == 0


def test_the_papers_settings_are_those_of_the_recipes():
    from widen_recipes.paper_texts import tuned

    model = tuned("m", Source(task="writing_prompts"), "nll")
    assert {key: getattr(model, key) for key in PAPER} == PAPER


def test_truncr_drops_sequences_in_a_short_run_and_says_how_many(base, tmp_path):
    folder = fine_tune(replace(base, loss="truncr:drop=0.2", epochs=2), tmp_path, device="cpu")
    found = summary(folder)
    assert found["loss"] == "truncr:drop=0.2,window=19,start=16"
    assert found["weight_zero_share"] > 0
    assert sum(line.get("weight_zero_share", 0) > 0 for line in log(folder)) > 4


def test_the_command_prints_what_it_chose_and_what_came_of_it(base, tmp_path, capsys):
    flags = ["--model", base.model, "--task", "mathqa_python", "--data", base.train.path, "--precision", "fp32"]
    assert main(["train", *flags, "--device", "cpu", "--steps", "2", "--out", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 steps, learning rate 0.001, no warm-up" in said
    assert "the weights moved by" in said
    assert main(["train", *flags, "--device", "cpu", "--paper", "--out", str(tmp_path)]) == 2
    assert "warmup_steps=1000 (--warmup-steps): the run has 24 steps" in capsys.readouterr().err
