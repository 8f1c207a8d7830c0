"""What a run reports: figures over the logging window, NLL in evaluation whatever the loss, and where a loss stopped being a number."""

import json
import math
import tempfile
from types import SimpleNamespace

import pytest
import torch
import transformers
from trainer_runs import (
    FIGURES,
    WAYS,
    apart,
    arguments,
    evaluated,
    pad,
    rows,
    spoiled,
    tiny_model,
    tiny_tokenizer,
    train,
    train_sft,
    with_one_bad_row,
)
from transformers import PrinterCallback

from widen.data.targets import read_sequences
from widen.head import HeadLoss, target_sums
from widen.hosts.fused_head import Request, add_fused_head, ask
from widen.hosts.transformers import Trainer
from widen.losses import Rows, parse
from widen.train.figures import Figures
from widen.train.guard import NonFiniteLossError
from widen.train.objective import Objective


def oracle(loss, batch):
    """Figures of one step at the initial weights, from full logits."""
    model, weight = tiny_model(), parse(loss)
    logq, w, entropy, right, lengths = [], [], [], [], []
    for row in batch:
        ids, mask = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"][1:]]) != -100
        logp = model(ids).logits[:, :-1].log_softmax(-1).detach()
        here = logp.gather(-1, ids[:, 1:, None])[..., 0]
        w.append(weight.apply(Rows(here), mask, weight.init())[0][mask])
        logq.append(here[mask])
        entropy.append(-(logp.exp() * logp).sum(-1)[mask])
        right.append((logp.argmax(-1) == ids[:, 1:])[mask].float())
        lengths.append(int(mask.sum()))
    logq, w, entropy, right = (torch.cat(x) for x in (logq, w, entropy, right))
    return {
        "loss": -(w * logq).mean().item(),
        "nll": -logq.mean().item(),
        "entropy": entropy.mean().item(),
        "token_accuracy": right.mean().item(),
        "weight_mean": w.mean().item(),
        "weight_max": w.max().item(),
        "weight_ess": (w.double().sum() ** 2 / w.double().square().sum() / len(w)).item(),
        "weight_zero_share": (w == 0).double().mean().item(),
    }, sum(lengths) / len(lengths)


@pytest.mark.parametrize("loss", ["cdiv:alpha=1.4", "lambda_pr:lam=0.1,gamma=0.01"])
def test_figures_are_those_of_all_tokens_of_the_window(loss):
    """A learning rate of 0, one log line for two steps of 1x4: the oracle sees the eight rows at once."""
    frozen = {"learning_rate": 0.0, "logging_steps": 2, "max_steps": 2}
    wanted, mean_length = oracle(loss, rows()[:8])
    wanted.pop("loss")  # the host's is a mean over steps
    if loss.startswith("lambda_pr"):
        assert 0 < wanted["weight_zero_share"] < 1
        wanted["threshold"] = parse(loss).threshold(mean_length)
    from widen.hosts.trl import SFTTrainer

    for trainer in (
        train(Trainer, WAYS["1x4"], loss=loss, changes=frozen)[1],
        train_sft(SFTTrainer, WAYS["1x4"], loss=loss, changes=frozen)[1],
    ):
        (line,) = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert {name: line[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
        assert all(isinstance(value, (int, float)) for value in line.values())
        assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert line["mean_token_accuracy"] == line["token_accuracy"]  # TRL's own name, over tokens and not micro-batches


def test_figures_of_weights_whose_squares_leave_float32_are_right():
    one = torch.ones(4)
    found = Figures(*target_sums(-one, 1e20 * one, 3 * one, 0 * one, tokens=4).tolist())
    assert found.weighted == pytest.approx(-4e20)
    assert found.logged() == pytest.approx(
        {"nll": 1, "entropy": 3, "token_accuracy": 0, "weight_mean": 1e20, "weight_max": 1e20, "weight_ess": 1, "weight_zero_share": 0}
    )  # fmt: skip


def test_a_soft_cap_that_changed_between_two_trainers_is_read_anew():
    model = tiny_model()
    for cap in (30.0, None):
        model.config.final_logit_softcapping = cap
        add_fused_head(model)
        request = Request(Objective(parse("nll")), read_sequences({"labels": torch.ones(1, 4, dtype=torch.long)}), 3.0)
        ask(model, {"input_ids": torch.ones(1, 4, dtype=torch.long)}, request)
        assert request.softcap == cap


def test_the_threshold_of_trunc_is_logged_once_there_is_one():
    trainer = train(Trainer, WAYS["4x1"], loss="truncr:drop=0.5,window=8")[1]
    lines = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert "threshold" not in lines[0]
    assert lines[-1]["threshold"] == float(trainer.objective.state.threshold)


def test_a_short_run_gets_a_window_that_it_fills_and_an_explicit_one_is_said_to_be_too_long(caplog):
    with caplog.at_level("WARNING"):
        trainer = train(Trainer, (2, 1, False), loss="truncr:drop=0.2")[1]
    assert str(trainer.objective.weight) == "truncr:drop=0.2,window=19,start=5"
    assert any(entry.get("weight_zero_share") for entry in trainer.state.log_history)
    assert "drop any sequence" not in caplog.text
    with caplog.at_level("WARNING"):
        train(Trainer, (2, 1, False), loss="truncr:drop=0.2,window=10000")
    assert "will not drop any sequence: it needs 100 scores first, and this run has 18 sequences" in caplog.text
    assert "has not dropped any sequence: it saw 18 scores and needs 100" in caplog.text


def test_a_low_effective_sample_size_is_said_once():
    objective = Objective(parse("cdiv:alpha=1.4,cap=1e4"))
    seen = Figures(tokens=1000.0, counted=1000.0, weight=10_999.0, squares=1e8 + 999, largest=1e4)
    assert "effective sample size is 0.12% of the tokens" in objective.warning(seen)
    assert objective.warning(seen) is None
    even = Figures(tokens=1000.0, counted=1000.0, weight=1000.0, squares=1000.0, largest=1.0)
    assert Objective(parse("cdiv:alpha=1.4")).warning(even) is None


def test_tokens_that_the_data_weighs_with_0_are_not_said_to_be_dropped_by_truncr():
    """Half of the targets have the weight 0 in the data, and TruncR drops a tenth of the rest."""
    seen, ids = Figures(tokens=100.0, counted=40.0, weight=40.0, squares=40.0, largest=1.0), torch.ones(2, 4).long()
    for given, said in (({}, True), ({"loss_weights": torch.tensor([0.0, 1.0])}, False)):
        objective = Objective(parse("truncr:drop=0.1,window=8"))
        sequences = read_sequences({"labels": ids, **given})
        hidden, head = torch.ones(8, 3), torch.ones(48, 3)
        out = objective.through_head(hidden, head, sequences, num_tokens=6.0)
        objective.add(out, sequences, ids, divided_by=6.0)
        assert ("are left out where drop=0.1 was asked for" in str(objective.warning(seen))) == said


def test_a_window_fits_the_sequences_of_a_packed_data_set_and_not_its_rows():
    import trl
    from datasets import Dataset

    from widen.hosts.trl import WeightedLoss

    made = trl.pack_dataset(Dataset.from_list(rows()), 30, "bfd")
    assert len(made) < 9
    for data, count in ((made, 18), (Dataset.from_list(rows()), 18), (rows(), 18)):
        assert WeightedLoss._sequences_per_row(SimpleNamespace(train_dataset=data)) * len(data) == pytest.approx(count)


def test_a_loss_that_would_start_after_the_last_step_is_refused():
    with pytest.raises(ValueError, match=r"the run has 9 steps, so cdiv:alpha=0\.5 would never be used"):
        train(Trainer, (2, 1, False), loss="nll:steps=9 then gold")


def test_figures_reach_whatever_the_host_reports_to():
    lines = []

    class Board(transformers.TrainerCallback):  # what TensorBoard, W&B and Trackio are to the host
        def on_log(self, args, state, control, logs=None, **kwargs):
            lines.append(dict(logs))

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=tiny_model(),
            args=arguments(folder),
            train_dataset=rows(),
            data_collator=pad,
            callbacks=[Board()],
            loss="gold",
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    assert set(FIGURES) <= lines[0].keys()


@pytest.mark.parametrize(("first_rank", "times"), [(True, 1), (False, 0)])
def test_a_starved_loss_says_so_once_and_on_the_first_rank_alone(first_rank, times, caplog, monkeypatch):
    monkeypatch.setattr(Trainer, "is_world_process_zero", lambda self: first_rank)
    transformers.utils.logging.enable_propagation()
    try:
        trainer = train(Trainer, WAYS["4x1"], loss="lambda_pr:lam=0.1,gamma=1e-7")[1]
    finally:
        transformers.utils.logging.disable_propagation()
    assert sum("target tokens count" in record.message for record in caplog.records) == times
    assert "few" in trainer.objective._said


def nll_per_token(data):
    model, total, count = tiny_model(), 0.0, 0
    for row in data:
        ids, mask = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"][1:]]) != -100
        logq = model(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        total, count = total - logq[mask].sum().item(), count + int(mask.sum())
    return total / count


def test_evaluation_is_nll_per_token_whatever_the_loss_and_the_batches():
    wanted = nll_per_token(rows()[:7])
    assert evaluated(Trainer, rows()[:7], size=3) == pytest.approx(wanted, rel=1e-5)
    assert evaluated(Trainer, rows()[:7], size=7) == pytest.approx(wanted, rel=1e-5)
    accuracy = lambda prediction: {"shape": len(prediction.predictions.shape)}  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=tiny_model(), args=arguments(folder, per_device_eval_batch_size=3), eval_dataset=rows()[:7], data_collator=pad,
            compute_metrics=accuracy, loss="gold",
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(wanted, rel=1e-5)
    assert found["eval_shape"] == 3  # metrics still get the logits


def test_evaluation_in_trl_is_nll_per_token_too():
    from datasets import Dataset
    from trl import SFTConfig

    from widen.hosts.trl import SFTTrainer

    for size, packed in ((3, False), (3, True)):
        fixed = {
            "dataset_kwargs": {"skip_prepare_dataset": True},
            "max_length": None,
            "padding_free": packed,
            "bf16": False,
        }
        with tempfile.TemporaryDirectory() as folder:
            trainer = SFTTrainer(
                model=tiny_model(), args=arguments(folder, kind=SFTConfig, per_device_eval_batch_size=size, **fixed), loss="dft",
                train_dataset=Dataset.from_list(rows()), eval_dataset=Dataset.from_list(rows()[:7]), processing_class=tiny_tokenizer(),
            )  # fmt: skip
            trainer.remove_callback(PrinterCallback)
            assert trainer.evaluate()["eval_loss"] == pytest.approx(nll_per_token(rows()[:7]), rel=1e-5)


def test_the_best_checkpoint_is_chosen_by_nll(tmp_path):
    steps = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 4,
        "learning_rate": 0.05,
    }
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "per_device_train_batch_size": 4}
    trainer = Trainer(
        model=tiny_model(), args=arguments(tmp_path, **steps, **best), train_dataset=rows(), eval_dataset=rows(), data_collator=pad,
        loss="cdiv:alpha=1.4",
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    found = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert trainer.state.best_metric == min(found)


@pytest.mark.parametrize("way", ["4x1", "1x4", "packed 4x1"])
def test_a_loss_that_is_not_finite_stops_before_the_step_and_names_the_row(way):
    data, row, model = with_one_bad_row()
    ids, step = ", ".join(map(str, data[row]["input_ids"])), row // 4 + 1
    said = rf"step {step} is not made.*in micro-batch \d of \d.*row {row} of the dataset \(token ids {ids}\)[.;] "
    with pytest.raises(NonFiniteLossError, match=said):
        train(Trainer, WAYS[way], loss="cdiv:alpha=1.4", data=data, model=model)
    kept = torch.cat([p.flatten() for name, p in model.named_parameters() if "embed" not in name])
    assert kept.isfinite().all()  # nothing was spread


@pytest.mark.parametrize(
    "loss", ["truncr:drop=0.3,window=8", "trunc:drop=0.3,window=8", "nll:steps=1 then truncr:drop=0.3"]
)
@pytest.mark.parametrize("host", ["transformers", "trl"])
def test_a_nan_that_the_loss_leaves_out_stops_the_run_too(host, loss):
    """Its sequence is worth 0, the loss a number; the gradient of the layers below is a nan all the same."""
    from widen.hosts.trl import SFTTrainer

    data, row, model = with_one_bad_row()
    step = row // 4 + 1
    with pytest.raises(NonFiniteLossError, match=rf"step {step} is not made.*row {row} of the dataset"):
        (train if host == "transformers" else train_sft)(
            Trainer if host == "transformers" else SFTTrainer, WAYS["4x1"], loss=loss, data=data, model=model
        )
    kept = torch.cat([p.flatten() for name, p in model.named_parameters() if "embed" not in name])
    assert kept.isfinite().all()


def test_the_guard_works_in_trl_and_finds_the_sequence_inside_a_pack():
    from widen.hosts.trl import SFTTrainer

    data, row, model = with_one_bad_row()
    ids = ", ".join(map(str, data[row]["input_ids"]))
    with pytest.raises(NonFiniteLossError, match=rf"row {row} of the dataset \(token ids {ids}\)"):
        train_sft(SFTTrainer, WAYS["packed 4x1"], loss="gold", data=data, model=model)


def test_the_guard_names_one_sequence_of_a_row_that_holds_several():
    """Rows that were packed beforehand, the first sequence of each a single token."""
    single, bad, fine = [3], rows()[6], rows()[2]
    assert bad["input_ids"][-2] not in fine["input_ids"]
    packs = []
    for row in (fine, fine, bad):
        ids, labels = row["input_ids"], row["labels"]
        positions = [0, *range(len(ids)), *range(len(fine["input_ids"]))]
        packs.append(
            {
                "input_ids": single + ids + fine["input_ids"],
                "labels": [-100, *labels, *fine["labels"]],
                "position_ids": positions,
            }
        )
    shown = ", ".join(map(str, bad["input_ids"]))
    with pytest.raises(
        NonFiniteLossError, match=rf"step 3 is not made.*row 2 of the dataset \(token ids {shown}\)[.;] "
    ):
        train(
            Trainer,
            (1, 1, True),
            loss="gold",
            data=packs,
            model=spoiled(bad),
            collator=transformers.default_data_collator,
        )


def test_an_infinite_loss_is_stopped_although_the_host_would_filter_it_out_of_the_log():
    """A token of probability 0: the loss is inf, which the Trainer's logging_nan_inf_filter hides."""
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[rows()[5]["input_ids"][-1]] = -1e30 * model.lm_head.weight[3].sign()
    with pytest.raises(NonFiniteLossError, match=r"the loss \(nll\) is not finite \((inf|nan)\)"):
        train(Trainer, WAYS["4x1"], loss="nll", model=model)


def test_no_backward_is_waited_for_to_look_at_a_loss(monkeypatch):
    """The host asks whether the loss of each micro-batch is a nan, on a device a wait for all that was launched; the guard does not."""
    asked, isnan = [], torch.isnan
    monkeypatch.setattr(torch, "isnan", lambda x: asked.append(x) or isnan(x))
    trainer = train(Trainer, WAYS["1x4"], loss="nll")[1]
    assert asked == []
    assert trainer.args.logging_nan_inf_filter  # the user's own again
    train(transformers.Trainer, WAYS["1x4"])
    assert len(asked) == len(rows())


def test_the_warm_start_is_nll_and_then_the_loss():
    loss = "nll:steps=2 then cdiv:alpha=1.4"
    changed, nll = train(Trainer, WAYS["1x4"], loss=loss)[0], train(Trainer, WAYS["1x4"], loss="nll")[0]
    assert apart(changed.gradients[:2], nll.gradients[:2]) == 0
    assert apart(changed.gradients[2:3], nll.gradients[2:3]) > 0.5


def test_a_cap_bounds_every_weight():
    trainer = train(Trainer, WAYS["1x4"], loss="cdiv:alpha=1.4,cap=2")[1]
    assert max(entry["weight_max"] for entry in trainer.state.log_history if "loss" in entry) == pytest.approx(2.0)
    assert math.isclose(trainer.objective.weight.cap, 2.0)


def test_an_evaluation_set_without_a_target_has_no_nll(tmp_path):
    """0, which the host gives, would win every comparison of checkpoints."""
    data = [{"input_ids": row["input_ids"], "labels": [-100] * len(row["input_ids"])} for row in rows(4)]
    assert math.isnan(evaluated(Trainer, data))


@pytest.mark.parametrize(
    ("size", "count", "message"),
    [
        (1e3, 1e-37, r"not finite \(inf\)"),  # the scale of the step before was tiny
        (1e38, 100.0, "its sum over the tokens overflows float32"),
        (math.nan, 4.0, r"not finite \(nan\)"),
    ],
)
def test_a_loss_that_leaves_float32_by_its_scale_stops_the_step(size, count, message):
    one = torch.ones(4)
    sequences = read_sequences({"labels": torch.ones(1, 5, dtype=torch.long)})
    objective = Objective(parse("nll"))
    w_N, logq_N = torch.cat([size * one, torch.zeros(1)]), torch.cat([-one, torch.zeros(1)])
    sums = target_sums(logq_N, w_N, one.new_zeros(5), one.new_zeros(5), tokens=4)
    loss = (-sums[0] / count).float()
    out = HeadLoss(loss, logq_N, w_N, one.new_zeros(5), one.new_zeros(5).bool(), 4, sums)
    objective.add(out, sequences, torch.ones(1, 5, dtype=torch.long), divided_by=count)
    with pytest.raises(NonFiniteLossError, match=message):
        objective.finish(step=1, dataset=[])
