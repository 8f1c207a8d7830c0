"""What the other verbs do with the run folder of a fine-tuned model."""

import json

import pytest
from tiny_pretrained import save_model, save_sums

from widen.cli.__main__ import main


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


def test_report_shows_the_training_of_fine_tuned_models(runs, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", *map(str, runs), "--out", str(page), "--no-figures"]) == 0
    text = page.read_text()
    assert all(f"{loss}" in text for loss in ("nll", "cdiv:alpha=1.4"))
