"""`widen train` on data of one's own: conversations, other field names, and the weights in 4 bits."""

import json
from dataclasses import replace

import pytest
import transformers
from tiny_pretrained import save_model, save_sums

from widen.cli.__main__ import main
from widen.run.finetune import FineTune, Lora, Source, fine_tune, model_files
from widen.run.finetune.token_data import TokenData, load_data
from widen.sample import read_samples

TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)
TALK = [
    {"role": "user", "content": "what is 1 + 1 ?"},
    {"role": "assistant", "content": "2.0"},
    {"role": "user", "content": "plus 1 ?"},
    {"role": "assistant", "content": "3.0"},
]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model("tiny-model")
    (tmp_path / "tiny-model" / "chat_template.jinja").write_text(TEMPLATE)
    flags = "--model tiny-model --precision fp32 --max-length 120 --device cpu --steps 1 --lr 1e-3 --batch-size 2"
    return ["train", *flags.split()]


def test_a_model_trained_on_conversations_is_asked_through_its_template(tiny, tmp_path, capsys):
    records = [{"messages": TALK}, {"prompt": TALK[:1], "completion": TALK[1:2]}]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert main([*tiny, "--data", "talk.jsonl"]) == 0
    said = capsys.readouterr().out
    tokenizer = transformers.AutoTokenizer.from_pretrained("tiny-model")
    answers = [len(tokenizer(f"{text}</s>", add_special_tokens=False).input_ids) for text in ("2.0", "3.0", "2.0")]
    assert f"2 examples, {sum(answers)} target tokens of" in said
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "inputs.json").read_text())["chat"] is True
    (tmp_path / "p.txt").write_text("what is 1 + 1 ?\n")
    sample = ["sample", str(folder), "--prompts", "p.txt", "--num", "1", "--max-tokens", "2", "--device", "cpu"]
    assert main(sample) == 0
    assert "Use --chat if it is an Instruct model" in " ".join(capsys.readouterr().out.split())
    assert main([*sample, "--chat"]) == 0
    assert "template" not in capsys.readouterr().out
    found = [read_samples(path).samples[0].prompt_tokens for path in (folder / "samples").glob("*.jsonl")]
    asked = tokenizer("user:\nwhat is 1 + 1 ?</s>assistant:\n", add_special_tokens=False).input_ids
    assert len(asked) in found


def test_a_conversation_that_the_model_cannot_learn_is_named(tiny, tmp_path, capsys):
    (tmp_path / "tiny-model" / "chat_template.jinja").unlink()
    (tmp_path / "talk.jsonl").write_text(json.dumps({"messages": TALK}))
    assert main([*tiny, "--data", "talk.jsonl"]) == 2
    assert "example 1 ('user: what is 1 + 1 ?" in (err := capsys.readouterr().err)
    assert "the tokenizer has no chat template" in err


def test_the_mask_of_a_conversation_is_in_its_digest(tiny, tmp_path):
    files = {"a": [{"messages": TALK}], "b": [{"prompt": TALK[:3], "completion": TALK[3:]}]}
    found: dict[str, TokenData] = {}
    for name, records in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        config = FineTune(model="tiny-model", train=Source(path=f"{name}.jsonl"))
        found[name] = load_data(config, config.train, {}, skip_bad=False)
    assert found["a"][0]["input_ids"] == found["b"][0]["input_ids"]
    assert found["a"].facts.digest != found["b"].facts.digest
    assert found["a"].facts.targets == sum(label != -100 for label in found["a"][0]["labels"])
    assert found["a"].facts.targets > found["b"].facts.targets


def test_field_names_reach_the_training_and_its_held_out_data(tiny, tmp_path, capsys):
    (tmp_path / "mine.tsv").write_text("question\tanswer\nwhat is 1 ?\t1.0\nwhat is 2 ?\t2.0\n")
    flags = ["--data", "mine.tsv", "--prompt-field", "question", "--completion-field", "answer"]
    assert main([*tiny, *flags, "--eval", "mine.tsv", "--print"]) == 0
    config = json.loads(capsys.readouterr().out)
    assert config["evaluate"]["prompt_field"] == config["train"]["prompt_field"] == "question"
    source = Source(path="mine.tsv", prompt_field="question", completion_field="answer")
    data = load_data(FineTune(model="tiny-model", train=source), source, {}, skip_bad=False)
    assert len(data) == 2
    assert main([*tiny, *flags, "--task", "alpaca"]) == 2
    assert "--prompt-field): the task 'alpaca' has its own fields" in capsys.readouterr().err


def test_distinct_learns_each_example_once_and_counts_its_repeats(tiny, tmp_path):
    records = [{"prompt": "1 + 1 =", "completion": answer} for answer in ("2", "two", "2", "2")]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    every, once = (Source(path="mine.jsonl", distinct=distinct) for distinct in (False, True))
    config, cache = FineTune(model="tiny-model", train=every), {}
    found = {source.distinct: load_data(config, source, cache, skip_bad=False) for source in (every, once)}
    assert (len(found[False]), len(found[True])) == (4, 2)
    assert [found[True][i] for i in range(2)] == [found[False][i] for i in range(2)]
    assert (found[False].facts.repeats, found[True].facts.repeats) == (0, 2)
    assert "; 2 repeats left out" in str(found[True].facts)


def test_new_settings_at_their_defaults_change_no_key():
    config = FineTune(model="m", train=Source(path="train.jsonl"))
    assert config.key == "ef85b9a39fac8bea"
    assert replace(config, train=Source(path="train.jsonl", prompt_field="q")).key != config.key
    assert replace(config, lora=Lora(), load_in_4bit=True).key != replace(config, lora=Lora()).key


@pytest.mark.parametrize(("changes", "message"), [({}, "give --lora R"), ({"lora": Lora(), "fsdp": True}, "--fsdp")])
def test_four_bits_need_an_adapter_on_one_device(changes, message):
    with pytest.raises(ValueError, match=message):
        FineTune(model="m", train=Source(path="x.jsonl"), load_in_4bit=True, **changes)


@pytest.mark.parametrize(
    ("flags", "package"), [("--lora 4 --load-in-4bit", "bitsandbytes"), ("--report-to wandb", "wandb")]
)
def test_a_package_that_is_not_installed_is_named_before_the_data_is_read(tiny, monkeypatch, capsys, flags, package):
    monkeypatch.setattr(model_files, "find_spec", lambda name: None)
    assert main([*tiny, "--data", "nowhere.jsonl", *flags.split()]) == 2
    assert f"needs {package}: pip install {package}" in capsys.readouterr().err


def test_the_frozen_weights_are_loaded_in_four_bits_on_the_device(tiny, monkeypatch):
    asked = {}
    monkeypatch.setattr(model_files, "four_bit", lambda precision: f"four bits for {precision}")
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda name, **options: asked.update(options)
    )
    model_files.load_model("tiny-model", precision="fp16", four_bit_on="cpu")
    assert asked["quantization_config"] == "four bits for fp16"
    assert asked["device_map"] == {"": "cpu"}


@pytest.mark.slow
def test_qlora_trains_an_adapter_on_weights_of_four_bits(tmp_path):
    pytest.importorskip("bitsandbytes", reason="pip install bitsandbytes")
    model = save_model(tmp_path / "m", hidden_size=64, intermediate_size=64)
    source = Source(task="mathqa_python", path=save_sums(tmp_path / "sums.jsonl"))
    common = {"model": model, "train": source, "precision": "fp32", "max_length": 80, "max_steps": 3, "lr": 1e-2}
    loaded = model_files.load_model(model, precision="fp32", four_bit_on="cpu")
    assert type(loaded.model.layers[0].mlp.up_proj).__name__ == "Linear4bit"
    said = []
    whole = fine_tune(FineTune(lora=Lora(rank=4), **common), tmp_path / "runs", device="cpu", say=said.append)
    four = fine_tune(FineTune(lora=Lora(rank=4), load_in_4bit=True, **common), tmp_path / "runs", device="cpu")
    logs = [[json.loads(line)["nll"] for line in one.log.read_text().splitlines()][:3] for one in (whole, four)]
    assert logs[1] == pytest.approx(logs[0], rel=0.02)  # the rounding of 4 bits
    assert logs[1] != logs[0]
    assert (four.checkpoint / "config.json").is_file()
