"""What the other verbs do with the run folder of a fine-tuned model."""

import json
from dataclasses import replace

import pytest
import torch
from huggingface_hub import ModelCard
from tiny_pretrained import save_model, save_sums
from transformers import AutoModelForCausalLM, GenerationConfig

from widen.cli.__main__ import main
from widen.disk.checksums import check_files
from widen.disk.json_file import write_sealed
from widen.run.advise.advice import Advice, Value
from widen.run.folder import RunFolder
from widen.run.model_card import MARK, card_text, recommended
from widen.run.record import Record, write_records
from widen.run.value import to_json
from widen.sample import Decoding
from widen.sample.processors import logits_processors


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two models of one tiny base: NLL and c-Div."""
    root = tmp_path_factory.mktemp("folder")
    model, data = save_model(root / "base"), save_sums(root / "sums.jsonl")
    for loss in ("nll", "cdiv:alpha=1.4"):
        flags = (
            f"--model {model} --task mathqa_python --data {data} --loss {loss} --steps 2 --batch-size 4 --micro-batch 4"
        )
        assert (
            main(["train", *flags.split(), "--precision", "fp32", "--device", "cpu", "--out", str(root / "runs")]) == 0
        )
    return sorted(path for path in (root / "runs").iterdir() if path.is_dir())


def test_sample_takes_the_run_folder_and_leaves_its_samples_there(runs, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "# what is 1 + 2 ?\\n"}\n')
    flags = "--num 3 --temperatures 1 --max-tokens 5 --device cpu"
    status = main(["sample", str(runs[0]), "--prompts", str(prompts), *flags.split()])
    (file,) = (runs[0] / "samples").glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert status == 0
    assert sum(record["kind"] == "sample" for record in records) == 3


def test_score_says_that_a_fine_tuned_model_has_no_exact_score(runs, capsys):
    assert main(["score", str(runs[0])]) == 2
    said = capsys.readouterr().err
    assert "fine-tuned" in said
    assert "widen score REFERENCE " in said
    assert "widen score --checker FILE.py:check " in said


def test_report_shows_the_training_of_fine_tuned_models(runs, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", *map(str, runs), "--out", str(page), "--no-figures"]) == 0
    text = page.read_text()
    assert all(f"{loss}" in text for loss in ("nll", "cdiv:alpha=1.4"))


def with_scores(path, scores, *, name="by-hand", asked=None, prompts="some"):
    """Records of precision and recall at each decoding, of samples asked for in one way."""
    about = {
        "task": "sums",
        "model": "base",
        "loss": "cdiv:alpha=1.4",
        "seed": 0,
        "detail": {"score": {"kind": "checker", "prompts": prompts}, "asked": asked or {"max_tokens": 64, "seed": 0}},
    }
    found = [
        Record(
            **about, decoding=Decoding.parse(spec), metric=metric, value=value, low=value - 0.05, high=value + 0.04, n=9
        )
        for spec, values in scores.items()
        for metric, value in zip(("precision", "recall"), values, strict=True)
    ]
    write_records(RunFolder(path), name, found)
    assert main(["report", str(path), "--out", str(path.parent / "page.html"), "--no-figures"]) == 0
    return ModelCard.load(path / "checkpoint" / "README.md")


def test_training_leaves_a_card_with_the_loss_and_the_data_and_no_path_of_this_machine(runs):
    card = ModelCard.load(runs[0] / "checkpoint" / "README.md")
    assert card.data.to_dict()["tags"] == ["widen"]
    assert card.data.library_name == "transformers"
    assert "`cdiv:alpha=1.4,cap=10.0`: the sum of -w log Q(x)" in card.text
    assert "`sums.jsonl` in the format `mathqa_python`: 24 examples" in card.text
    assert "Not scored yet" in card.text
    assert str(runs[0].parent.parent) not in card.content


def test_scores_complete_the_card_and_the_best_decoding_is_what_generate_does(runs):
    card = with_scores(runs[0], {"t=1": (0.4, 0.3), "t=0.7,top_p=0.9,min_p=0.05": (0.8, 0.5)})
    assert "| `t=1` | 0.400 [0.350, 0.440] | 0.300 [0.250, 0.340] |" in card.text
    assert "Recommended: `t=0.7,top_p=0.9,min_p=0.05`" in card.text
    check_files(runs[0] / "checkpoint")
    model = AutoModelForCausalLM.from_pretrained(runs[0] / "checkpoint")
    prompt = torch.tensor([[0, 5, 9]])
    out = model.generate(prompt, max_new_tokens=1, output_scores=True, return_dict_in_generate=True)
    logits = model(prompt).logits[:, -1].detach().float()
    for step in logits_processors(Decoding.parse("t=0.7,top_p=0.9,min_p=0.05")):
        logits = step(prompt, logits)
    torch.testing.assert_close(out.scores[0].softmax(-1), logits.softmax(-1))


def test_a_card_keeps_samples_asked_for_in_different_ways_apart(runs):
    plain = {"t=1": (0.4, 0.3), "t=0.7,top_p=0.9,min_p=0.05": (0.8, 0.5)}
    with_scores(runs[0], plain)
    chat = {"max_tokens": 64, "seed": 0, "chat": True}
    card = with_scores(runs[0], {"t=1": (0.9, 0.9)}, name="a-chat", asked=chat)  # the first file by name
    assert card.text.count("| `t=1` |") == 2
    assert "sums, checker, chat; 95 % intervals" in card.text
    assert "Recommended: `t=0.7,top_p=0.9,min_p=0.05`" in card.text
    card = with_scores(runs[0], dict.fromkeys(("t=1", "t=0.5", "t=0.25"), (0.2, 0.2)), name="a-chat", asked=chat)
    assert "Recommended: `t=1` (t=1), asked with chat." in card.text
    (runs[0] / "scores" / "a-chat.json").unlink()


def test_a_card_keeps_scores_on_different_prompts_apart(runs):
    with_scores(runs[0], {"t=1": (0.4, 0.3), "t=0.5": (0.8, 0.5)})
    card = with_scores(runs[0], {"t=1": (0.9, 0.9)}, name="a-test", prompts="others")
    assert "sums, checker (prompts=others)" in card.text
    assert card.text.count("| `t=1` |") == 2
    (runs[0] / "scores" / "a-test.json").unlink()


def test_card_and_page_of_a_model_that_advise_chose_state_the_wish_and_what_to_expect(runs):
    expected = {"precision": Value(value=0.85, low=0.8, high=0.9), "recall": Value(value=0.5, low=0.4, high=0.6)}
    about = {"wish": "recall at precision >= 0.8", "loss": "cdiv:alpha=1.4", "steps": 2, "parts": {}, "reasons": ()}
    advice = Advice(**about, met=True, decoding="t=0.5", expected=expected, folder=str(runs[0]), test_prompts=11)
    file = runs[0].parent / "advice.json"
    write_sealed(file, {"schema": 1, "advice": to_json(advice), "request": {}})
    card = with_scores(runs[0], {"t=1": (0.9, 0.9), "t=0.5": (0.8, 0.5)}).text  # t=1 has the best F1
    other = card_text(RunFolder(runs[1]))
    write_sealed(file, {"schema": 1, "advice": to_json(replace(advice, met=False)), "request": {}})
    unmet = card_text(RunFolder(runs[0]))
    file.unlink()
    assert "Recommended by `widen advise` for the wish *recall at precision >= 0.8*: `t=0.5` (t=0.5). Expected" in card
    assert (
        "precision 0.850 [0.800, 0.900], recall 0.500 [0.400, 0.600] (95 % interval over the 11 test prompts)" in card
    )
    assert GenerationConfig.from_pretrained(runs[0] / "checkpoint").temperature == 0.5
    assert advice.headline in (runs[0].parent / "page.html").read_text()
    assert "No decoding meets the wish *recall at precision >= 0.8* of `widen advise`. The closest is `t=0.5`" in unmet
    assert "widen advise" not in other


def test_a_decoding_that_solves_as_many_problems_with_more_right_samples_is_recommended():
    """The recall of programs is pass@k - pass@1, which falls as precision rises."""
    scores = {"t=1": (0.5, 0.9), "t=0.7": (0.9, 0.9)}  # pass@1, pass@10
    about = {"task": "sums", "model": "base", "loss": "nll", "seed": 0}
    records = [
        Record(**about, decoding=Decoding.parse(spec), metric=metric, value=value)
        for spec, (first, most) in scores.items()
        for metric, value in {
            "precision": first,
            "recall": most - first,
            "recall_normalised": (most - first) / (1 - first),
        }.items()
    ]
    assert recommended(records) == (Decoding.parse("t=0.7"), "")


def test_a_decoding_that_transformers_cannot_express_is_left_out_and_the_card_says_how_to_draw_with_it(runs):
    before = GenerationConfig.from_pretrained(runs[1] / "checkpoint")
    card = with_scores(runs[1], {"t=1": (0.4, 0.3), "t=2,min_p=0.1,order=temperature_last": (0.8, 0.5)})
    assert "transformers cannot apply these steps in this order" in card.text
    assert "--decodings 't=2,min_p=0.1,order=temperature_last'" in card.text
    assert GenerationConfig.from_pretrained(runs[1] / "checkpoint") == before


def test_a_card_without_the_mark_is_the_users_own(runs):
    path = runs[1] / "checkpoint" / "README.md"
    path.write_text(path.read_text().replace(MARK, "My own words."))
    assert "My own words." in with_scores(runs[1], {"t=1": (0.1, 0.1)}).text
    check_files(path.parent)
