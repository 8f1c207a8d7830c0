"""`widen score REFERENCE RUN`: from samples of a model to a point on the page of its run."""

import json

import pytest

from widen.cli.__main__ import main
from widen.run.folder import RunFolder
from widen.run.record import all_records
from widen.sample import Decoding, Identity, Prompt, Sample, SamplesWriter, Settings
from widen_recipes import tiny_texts

WORDS = [f"the {a} {b} sat on the {c}" for a in ("red", "old", "big") for b in ("cat", "dog") for c in ("mat", "bed")]


def call(capsys, *arguments):
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def write_samples(path, texts, decoding):
    settings = Settings(decoding=Decoding.parse(decoding), max_tokens=8, seed=0)
    prompt = Prompt(text="the", id="0")
    identity = Identity(engine="local", name="by hand", model={"weights": "none"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with SamplesWriter(path, settings=settings, identity=identity, prompts=[prompt]) as writer:
        writer.append(
            Sample(prompt=prompt.id, index=i, text=text, finish="length" if i == 0 else "stop", num_tokens=7, logq=-1.0)
            for i, text in enumerate(texts)
        )


@pytest.fixture
def place(tmp_path):
    """A file of texts and a fine-tuned run with samples at two temperatures."""
    (tmp_path / "human.txt").write_text("\n".join(WORDS) + "\n")
    run = tmp_path / "runs" / "lm-nll"
    run.mkdir(parents=True)
    experiment = {"name": "lm, nll", "model": {"loss": "nll", "seed": 0, "model": "lm", "train": {"path": "x"}}}
    (run / "config.json").write_text(json.dumps({"schema": 1, "experiment": experiment}))
    write_samples(run / "samples" / "t0.5-x.jsonl", WORDS[:1] * 6, "t=0.5")
    write_samples(run / "samples" / "t1-x.jsonl", WORDS, "t=1")
    return tmp_path


def test_samples_of_a_run_are_scored_against_texts_and_shown_on_its_page(capsys, place):
    run, embedder = place / "runs" / "lm-nll", tiny_texts.folder() / "model"
    status, out, _ = call(
        capsys, "score", place / "human.txt", run, "--embedder", embedder, "--metrics", "knn", "distinct"
    )
    assert status == 0
    found = {(r.decoding.temperature, r.metric): r for r in all_records(RunFolder(run))}
    assert {t for t, _ in found} == {0.5, 1.0}
    assert found[1.0, "precision"].value == found[1.0, "recall"].value == 1.0
    assert found[0.5, "recall"].value < 1
    assert found[0.5, "precision"].low <= found[0.5, "precision"].value
    assert (found[1.0, "recall"].model, found[1.0, "recall"].loss, found[1.0, "recall"].seed) == ("lm", "nll", 0)
    assert found[1.0, "recall"].n == 12
    assert "distinct-4" in out
    assert "1 of 12 samples were cut at max-tokens" in " ".join(out.split())
    assert found[1.0, "precision"].detail["cut"] == 1
    status, _, _ = call(capsys, "report", place / "runs", "--no-figures")
    page = (place / "runs" / "report.html").read_text()
    assert status == 0
    assert "texts against human.txt, knn" in page
    assert "No run has a score" not in page


def test_samples_of_a_model_that_was_not_trained_here_have_a_page_too(capsys, place):
    write_samples(place / "runs" / "plain" / "samples" / "t1-x.jsonl", WORDS, "t=1")
    embedder = tiny_texts.folder() / "model"
    arguments = ["--embedder", embedder, "--metrics", "knn"]
    assert call(capsys, "score", place / "human.txt", place / "runs" / "plain", *arguments)[0] == 0
    assert call(capsys, "report", place / "runs" / "plain", "--no-figures")[0] == 0
    page = (place / "runs" / "plain" / "report.html").read_text()
    assert "as it came" in page
    assert "texts against human.txt" in page


def test_one_file_of_samples_is_read_as_texts_wherever_it_lies(capsys, place):
    write_samples(place / "loose.jsonl", WORDS, "t=1")
    status, _, _ = call(capsys, "score", place / "human.txt", place / "loose.jsonl", "--metrics", "distinct")
    assert status == 0
    assert json.loads((place / "loose.jsonl.scores.json").read_text())["n_generated"] == 12


def test_scores_of_samples_go_where_they_are_sent(capsys, place):
    """In the form of any other texts, and not into the run."""
    run, out = place / "runs" / "lm-nll", place / "mine.json"
    arguments = [place / "human.txt", run / "samples" / "t1-x.jsonl", "--metrics", "distinct", "--json", out]
    assert call(capsys, "score", *arguments)[0] == 0
    assert json.loads(out.read_text())["n_generated"] == 12
    assert not (run / "scores").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--json", "one.json"], "--json names one file, and 2 sets of texts are scored"),
        (["--samples", "some"], "--samples some: a number of texts, or 'all'"),
        (["--metrics", "knn", "--k", "6"], "6 texts, and k-NN scores need more than k = 6"),
        (["--samples", "13"], "ask for fewer, or for all there are (--samples all"),
    ],
)
def test_what_cannot_be_scored_is_said(capsys, place, more, message):
    status, _, err = call(
        capsys, "score", place / "human.txt", place / "runs" / "lm-nll", "--metrics", "distinct", *more
    )
    assert status == 2
    assert message in err.replace("\n", " ")


def test_a_run_without_samples_says_how_to_draw_some(capsys, place):
    (place / "empty").mkdir()
    (place / "empty" / "config.json").write_text("{}")
    _, _, err = call(capsys, "score", place / "human.txt", place / "empty")
    assert "holds no samples yet: `widen sample" in err


def test_a_folder_of_runs_stands_for_its_runs_that_have_samples(capsys, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (place / "runs" / "empty").mkdir()
    (place / "runs" / "empty" / "config.json").write_text("{}")
    status, out, _ = call(capsys, "score", place / "human.txt", place / "runs", "--metrics", "distinct")
    assert status == 0
    assert "left out, no samples yet" in out
    assert "lm-nll, t1-x.jsonl against human.txt" in out


def test_a_metric_that_one_text_cannot_have_is_named(capsys, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (place / "one.txt").write_text("the red cat sat on the old mat\n")
    _, out, _ = call(capsys, "score", place / "human.txt", place / "one.txt", "--metrics", "distinct", "self_bleu")
    assert "self-BLEU is left out" in out
    assert "look at the intervals" not in out


def test_an_embedder_that_is_not_there_is_named_with_the_way_out(capsys, place):
    _, _, err = call(
        capsys, "score", place / "human.txt", place / "human.txt", "--embedder", place / "nowhere", "--metrics", "knn"
    )
    assert f"the embedder '{place / 'nowhere'}' cannot be loaded (there is no folder of that name here)" in err
    assert "--metrics distinct self_bleu" in err
