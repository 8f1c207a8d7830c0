"""Tasks of lm-evaluation-harness as prompts and checks: refusals here; slowly, the real package with a task of its own, offline."""

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import widen.needs as needs
from widen.cli.__main__ import main

ROOT = Path(__file__).parents[2]
TASK = """
task: own_sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/sums.jsonl}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{a}}}} + {{{{b}}}} ="
doc_to_target: "{{{{c}}}}"
generation_kwargs: {{until: ["\\n"]}}
filter_list:
  - name: number
    filter:
      - {{function: regex, regex_pattern: "(-?[0-9]+)"}}
      - {{function: take_first}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""
ANSWERS = {"1 + 2 =": [" 3\n 4 + 4 = 8", "so 3", "5"], "2 + 2 =": ["4", "4.", "five"]}


def task_file(folder, kind="generate_until"):
    (folder / "sums.jsonl").write_text('{"a": 1, "b": 2, "c": "3"}\n{"a": 2, "b": 2, "c": "4"}\n')
    path = folder / "own_sums.yaml"
    path.write_text(TASK.format(folder=folder, kind=kind))
    return path


@pytest.mark.parametrize("verb", [["score"], ["sample"]])
def test_without_the_package_the_sentence_names_the_extra(verb, capsys, monkeypatch, tmp_path):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(needs, "version", missing)
    (tmp_path / "samples.jsonl").write_text("")
    assert main([*verb, str(tmp_path / "samples.jsonl"), "--lm-eval", "gsm8k"]) == 2
    error = capsys.readouterr().err
    assert "lm-eval tasks needs lm_eval>=0.4.13,<0.5, which is not installed: pip install 'widen[lm-eval]'" in error


def test_a_task_of_the_harness_and_a_checker_are_two_checks(capsys, tmp_path):
    (tmp_path / "samples.jsonl").write_text("")
    flags = ["--lm-eval", "gsm8k", "--checker", "own.py:check"]
    assert main(["score", str(tmp_path / "samples.jsonl"), *flags]) == 2
    assert "--task, --checker and --lm-eval: give one of them" in capsys.readouterr().err


MODEL = """
import sys
sys.path.insert(0, sys.argv[1])
from tiny_pretrained import save_model
save_model(sys.argv[2])
"""
DRAW = """
import sys
from pathlib import Path
from widen.run.scoring.harness import HarnessTask
from widen.sample import Decoding, Identity, Sample, SamplesWriter, Settings
from widen.run.questions import prompts_for
answers = {answers!r}
prompts = prompts_for(HarnessTask.load(sys.argv[1]).questions, None)
path = Path(sys.argv[2]) / "lm" / "samples" / "t1-x.jsonl"
path.parent.mkdir(parents=True)
settings, identity = Settings(decoding=Decoding(), max_tokens=9), Identity(engine="local", name="by hand", model={{"weights": "none"}})
with SamplesWriter(path, settings=settings, identity=identity, prompts=prompts) as writer:
    writer.append(
        Sample(prompt=one.id, index=i, text=text, finish="stop", num_tokens=3, logq=-1.0)
        for one in prompts for i, text in enumerate(answers[one.text])
    )
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_real_harness_gives_prompts_and_checks_every_sample(tmp_path):
    """Needs the package registry. `lm_eval` goes into an environment of its own that also sees this one's packages."""
    python = Path(os.environ.get("WIDEN_LM_EVAL_PYTHON", tmp_path / "venv/bin/python"))
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
        (here,) = [path for path in sys.path if path.endswith("site-packages")]
        (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
        (site / "here.pth").write_text(f"{here}\n")
        install = [python, "-m", "pip", "install", "--quiet", "lm-eval>=0.4.13,<0.5"]
        done = subprocess.run(install, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    env = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
    }

    def call(*arguments):
        return subprocess.run(
            [python, "-W", "ignore", *arguments], capture_output=True, text=True, env=env, cwd=tmp_path
        )

    task = task_file(tmp_path)
    drawn = call("-c", DRAW.format(answers=ANSWERS), task, tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    done = call("-m", "widen", "score", "--lm-eval", task, tmp_path / "lm")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "lm" / "scores").glob("*.json")
    found = {one["metric"]: one for one in json.loads(file.read_text())["records"]}
    assert found["precision"]["value"] == pytest.approx(4 / 6)
    assert found["coverage"]["value"] == 1.0  # "3" and "so 3" are one right answer
    assert found["precision"]["task"] == "own_sums"
    made = call("-c", MODEL, ROOT / "tests/run", tmp_path / "tiny")
    assert made.returncode == 0, made.stderr
    flags = ["--num", "2", "--max-tokens", "3", "--device", "cpu", "--limit", "1", "--out", tmp_path / "runs"]
    done = call("-m", "widen", "sample", tmp_path / "tiny", "--lm-eval", task, *flags)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "runs").rglob("*.jsonl")
    assert "1 + 2 =" in file.read_text()
    assert call("-m", "widen", "score", "--lm-eval", task, file).returncode == 0
    refused = call("-m", "widen", "score", "--lm-eval", f"{task}:strict", tmp_path / "lm")
    assert "has no filter 'strict'; its filters: number" in refused.stderr
    task_file(tmp_path, kind="loglikelihood")
    refused = call("-m", "widen", "score", "--lm-eval", task, tmp_path / "lm")
    assert "its output_type is 'loglikelihood'" in refused.stderr
    assert refused.returncode == 2
