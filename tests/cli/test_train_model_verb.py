"""`widen train` for real models: flags and config files become one value; what is wrong is a sentence. Nothing is trained here."""

import json
from dataclasses import replace

import pytest
import torch

from widen.cli.__main__ import main
from widen.run.finetune.config import FineTune, Lora, Source, load_finetune
from widen.run.value import from_json


def printed(capsys, *arguments):
    """The config that `widen train ... --print` shows."""
    assert main(["train", *arguments, "--print"]) == 0
    return from_json(FineTune, json.loads(capsys.readouterr().out))


def refusal(capsys, *arguments):
    assert main(["train", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("widen train: ")
    assert said.count("\n") == 1
    return said


def test_every_flag_reaches_its_key(capsys):
    flags = (
        "--model m --task mathqa_python --data org/set --split s --limit 9 --eval b.jsonl --loss gold --lora 4 --precision fp32 --epochs 3 "
        "--batch-size 32 --micro-batch 4 --lr 1e-4 --schedule cosine --warmup-steps 5 --max-length 77 --packing --gradient-checkpointing "
        "--seed 2 --save-every 50 --steps 40 --set lora.alpha=8 --set weight_scale=mean_one "
        "--eval-steps 5 --patience 3 --report-to wandb --save-dtype float16"
    )
    assert printed(capsys, *flags.split()) == FineTune(
        model="m",
        train=Source(task="mathqa_python", path="org/set", split="s", limit=9),
        evaluate=Source(task="mathqa_python", path="b.jsonl", split="validation"),
        loss="gold",
        lora=Lora(rank=4, alpha=8),
        precision="fp32",
        epochs=3,
        max_steps=40,
        batch_size=32,
        micro_batch=4,
        lr=1e-4,
        schedule="cosine",
        warmup_steps=5,
        max_length=77,
        packing=True,
        gradient_checkpointing=True,
        weight_scale="mean_one",
        seed=2,
        save_steps=50,
        eval_steps=5,
        patience=3,
        report_to="wandb",
        save_dtype="float16",
    )


def test_without_flags_rate_and_warm_up_are_left_to_the_run(capsys):
    config = printed(capsys, "--model", "m", "--task", "writing_prompts")
    assert (config.lr, config.schedule, config.warmup_steps) == (None, "constant_with_warmup", None)
    assert (config.batch_size, config.epochs, config.max_grad_norm) == (8, 1, 1)
    assert config.train == Source(task="writing_prompts")


def test_the_papers_training_is_one_flag_and_other_flags_still_count(capsys):
    flags = ("--model", "m", "--task", "writing_prompts", "--paper")
    config = printed(capsys, *flags)
    assert (config.lr, config.schedule, config.warmup_steps) == (1e-6, "constant_with_warmup", 1000)
    assert (config.batch_size, config.epochs) == (8, 3)
    assert printed(capsys, *flags, "--lr", "1e-5").lr == 1e-5


@pytest.mark.parametrize(("size", "micro"), [(4, 4), (12, 6), (64, 8), (13, 1)])
def test_a_step_alone_is_cut_by_the_largest_micro_batch_up_to_eight(capsys, tmp_path, size, micro):
    flags = ("--model", "m", "--data", "a.jsonl")
    config = printed(capsys, *flags, "--batch-size", str(size))
    assert (config.batch_size, config.micro_batch) == (size, micro)
    main(["train", *flags, "--print"])
    (tmp_path / "all.json").write_text(capsys.readouterr().out)
    assert printed(capsys, str(tmp_path / "all.json"), "--batch-size", str(size)) == config


def test_epochs_of_nll_before_are_one_run_for_all_losses(capsys):
    flags = ("--model", "m", "--data", "a.jsonl", "--epochs", "3", "--after-nll-epochs", "1", "--loss")
    cdiv = printed(capsys, *flags, "cdiv:alpha=1.4", "--set", "weight_scale=mean_one")
    gold = printed(capsys, *flags, "gold")
    assert cdiv.after == gold.after == FineTune(model="m", train=Source(path="a.jsonl"), precision=cdiv.precision)
    assert cdiv.after.key == gold.after.key != cdiv.key
    assert (cdiv.epochs, cdiv.after.epochs) == (3, 1)


def test_a_config_file_and_the_config_of_a_run_folder_give_the_same_model(capsys, tmp_path):
    main(["train", "--model", "m", "--data", "a.jsonl", "--lora", "8", "--loss", "truncr:drop=0.1", "--print"])
    text = capsys.readouterr().out
    (tmp_path / "plain.json").write_text(text)
    (tmp_path / "run.json").write_text(
        json.dumps({"schema": 1, "experiment": {"name": "x", "model": json.loads(text)}})
    )
    configs = [printed(capsys, str(tmp_path / name)) for name in ("plain.json", "run.json")]
    assert configs[0] == configs[1] == load_finetune(tmp_path / "plain.json")
    assert printed(capsys, str(tmp_path / "plain.json"), "--seed", "3") == replace(configs[0], seed=3)


def test_a_config_may_be_yaml_with_numbers_as_1e_3_and_lora_targets_as_a_list(capsys, tmp_path):
    text = "model: m\ntrain: {path: a.jsonl}\nlr: 1e-3\nweight_decay: 2.5E-2\nlora:\n  targets: [q_proj, v_proj]\n"
    (tmp_path / "c.yaml").write_text(text)
    config = printed(capsys, str(tmp_path / "c.yaml"))
    numbers = {"lr": 1e-3, "weight_decay": 0.025}
    assert config == FineTune(model="m", train=Source(path="a.jsonl"), lora=Lora(targets="q_proj,v_proj"), **numbers)
    assert config.lora == Lora(targets=("q_proj", "v_proj"))
    (tmp_path / "bad.yaml").write_text("model: [")
    assert "bad.yaml: not YAML" in refusal(capsys, str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--lora", "4"], "--lora is for real models: name one with --model"),
        (["--skip-bad"], "--skip-bad is for real models: name one with --model"),
        (["--paper"], "--paper is for real models: name one with --model"),
        (["--after-nll-epochs", "1"], "--after-nll-epochs is for real models"),
        (["--model", "m", "--data", "a.jsonl", "--b", "0.2"], "--b is for the integer task"),
        (["--model", "m", "--data", "a.jsonl", "--split", "test"], "a.jsonl is a file, which is read whole"),
        (["--model", "m", "--data", "a.jsonl", "--start", "x"], "--model takes the folder to start from"),
        (["--model", "m"], "the task 'jsonl' has no data set of its own"),
        (["--model", "m", "--task", "mathqa"], "did you mean 'mathqa_python'"),
        (["--model", "m", "--data", "none.jsonl"], "none.jsonl: there is no such file"),
        (["--model", "m", "--data", "a.jsonl", "--loss", "cdif"], "did you mean 'cdiv'"),
        (["--model", "m", "--data", "a.jsonl", "--set", "lora.rang=3"], "did you mean 'rank'"),
        (["--model", "m", "--data", "a.jsonl", "--set", "lr"], "write KEY=VALUE, as in --set lora.alpha=64"),
        (["--model", "m", "--data", "a.jsonl", "--set", "model.x=1"], "'model' is a plain value"),
        (["--model", "m", "--data", "a.jsonl", "--precision", "int8"], "must be one of bf16, fp16, fp32, pure_bf16"),
        (["--model", "m", "--data", "a.jsonl", "--schedule", "up"], "schedule='up': must be one of"),
        (
            ["--model", "m", "--data", "a.jsonl", "--batch-size", "6", "--micro-batch", "4"],
            "must be a multiple of micro_batch=4",
        ),
        (
            ["--model", "m", "--data", "a.jsonl", "--epochs", "0"],
            "epochs=0.0, max_steps=-1: one of them must be above 0",
        ),
        (["--model", "m", "--data", "a.jsonl", "--steps", "0"], "max_steps=0 (--steps): must be at least 1, or -1"),
        (["--model", "m", "--data", "a.jsonl", "--steps", "-5"], "max_steps=-5 (--steps): must be at least 1, or -1"),
        (["--model", "m", "--data", "a.jsonl", "--lr", "0"], "lr=0.0: must be above 0"),
        (["--model", "m", "--data", "a.jsonl", "--epochs", "inf"], "epochs=inf: must be finite"),
        (["--model", "m", "--data", "a.jsonl", "--packing", "--group-by-length"], "take one of them"),
        (["--model", "m", "--data", "a.jsonl", "--device", "tpu"], "must be cuda or cpu"),
        (["no.json"], "config file no.json is not there"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(capsys, *arguments)


def test_help_teaches_both_kinds_and_the_launchers(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for piece in (
        "--steps 2000",
        "torchrun --nproc-per-node",
        "accelerate launch -m widen.cli train",
        "--after-nll-epochs",
        "learning rate   1e-4 x sqrt(135M / parameters)",
        "warm-up         3% of the steps",
        "--paper         the paper's settings: learning rate 1e-6",
        "On real models, losses have gained little over NLL",
    ):
        assert piece in text


@pytest.mark.parametrize(
    ("flags", "precision"), [("", "fp32"), ("--device cuda", "bf16"), ("--precision bf16", "bf16")]
)
def test_a_cpu_trains_in_float32_unless_told_otherwise(capsys, flags, precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert printed(capsys, *f"--model m --data a.jsonl {flags}".split()).precision == precision
