"""A run folder from a stranger: no link in it is written through, and nothing outside it is read."""

import shutil

import pytest

from widen.cli.__main__ import main
from widen.disk.inside import inside, tree_inside
from widen.judge.verdict import Verdict, VerdictFile
from widen.models import checkpoint
from widen.models.convert import save_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.report.load import load
from widen.report.run_report import write_report
from widen.run.experiment import Experiment, with_changes
from widen.run.finetune.model_files import resolved
from widen.run.folder import RunFolder
from widen.run.record import Record, write_records
from widen.run.sample_files import files_of
from widen.run.value import to_json
from widen.sample import Decoding, Sample, Settings
from widen.sample.engine import Identity
from widen.sample.prompts import Prompt
from widen.sample.writer import SamplesWriter
from widen.train.log import Log

SECRET = "the-content-of-another-file"
SHAPE = LlamaShape(layers=1, dim=8, heads=2, hidden=8)
SAMPLES = "samples/t=1.jsonl"


def write_samples(path):
    prompt, settings = Prompt(text="a"), Settings(decoding=Decoding.parse("t=1"))
    identity = Identity(engine="local", name="m", model={"weights": "0"}, details={})
    with SamplesWriter(path, settings=settings, identity=identity, prompts=[prompt]) as writer:
        writer.append([Sample(prompt=prompt.id, index=i, text=f"b{i}", finish="stop") for i in range(3)])


@pytest.fixture
def run(tmp_path):
    """A small run of the integer task with every kind of file."""
    experiment = with_changes(Experiment(name="run"), {"model.train.steps": "2"})
    folder = RunFolder(tmp_path / "runs" / "nll")
    folder.claim(to_json(experiment), {"torch": "2"})
    save_pretrained(TinyLlama(SHAPE), folder.checkpoint)
    log = Log(folder.log, step=0)
    log.write({"step": 0, "loss": 1.5})
    log.close()
    about = {"task": "k", "model": "m", "loss": "nll", "decoding": Decoding(), "seed": 0}
    values = {"precision": 0.5, "recall": 0.25}
    write_records(folder, "a", [Record(**about, metric=metric, value=value) for metric, value in values.items()])
    write_samples(folder.path / SAMPLES)
    return folder


@pytest.mark.parametrize("whole_folder", [False, True])
@pytest.mark.parametrize("name", ["config.json", "env.json", "log.jsonl", "scores/a.json", SAMPLES])
def test_a_link_that_leads_out_of_a_run_is_refused_and_its_content_reaches_no_page(run, tmp_path, name, whole_folder):
    there = tmp_path / "elsewhere" / name
    there.parent.mkdir(parents=True)
    place = run.path / name
    there.write_text(place.read_text().replace("{", f'{{"secret": "{SECRET}", ', 1))
    if whole_folder and "/" in name:
        shutil.rmtree(place.parent)
        place.parent.symlink_to(there.parent)
    else:
        place.unlink()
        place.symlink_to(there)
    with pytest.raises(ValueError, match=r"leads out of .*nll, to .*elsewhere") as error:
        write_report([run.path], tmp_path / "report.html", figures=False)
    assert SECRET not in str(error.value)
    assert not (tmp_path / "report.html").exists()


def test_a_link_within_a_run_and_a_run_that_is_a_link_are_read(run, tmp_path):
    (run.path / "scores" / "a.json").rename(run.path / "kept.json")
    (run.path / "scores" / "a.json").symlink_to(run.path / "kept.json")
    (tmp_path / "link").symlink_to(run.path)
    assert {record.value for record in load(tmp_path / "link").records} == {0.5, 0.25}


def test_a_pipe_in_a_run_is_refused_and_not_waited_for(run):
    import os

    (run.path / "env.json").unlink()
    os.mkfifo(run.path / "env.json")
    with pytest.raises(ValueError, match=r"env\.json is neither a regular file nor a folder"):
        load(run.path)
    with pytest.raises(ValueError, match=r"env\.json is neither"):
        run.read(run.path / "env.json")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("verb", ["score", "sample"])
def test_weights_behind_a_link_are_not_loaded(run, tmp_path, capsys, name, verb):
    place = run.path / "checkpoint" / name
    place.rename(tmp_path / name)
    place.symlink_to(tmp_path / name)
    assert main([verb, str(run.path)]) == 2
    assert "leads out of" in capsys.readouterr().err
    with pytest.raises(ValueError, match="leads out of"):
        resolved(str(run.path))


def test_a_link_in_a_checkpoint_to_resume_from_is_refused(tmp_path):
    import torch

    found = checkpoint.save(tmp_path / "resume", checkpoint.Checkpoint(3, {"weights": {"a": torch.ones(2)}}, {}))
    (found / "weights.safetensors").rename(tmp_path / "w")
    (found / "weights.safetensors").symlink_to(tmp_path / "w")
    with pytest.raises(ValueError, match=r"weights\.safetensors leads out of"):
        checkpoint.load(found)


def test_nothing_is_written_through_a_link(run, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text(SECRET)
    shutil.copytree(run.path, tmp_path / "other")
    for name in ("report.html", "scores/b.json", "samples/t=2.jsonl", "verdicts.jsonl"):
        (run.path / name).symlink_to(theirs)
    for write in (
        lambda: write_report([tmp_path / "other"], run.path / "report.html", figures=False),
        lambda: run.write(run.path / "scores" / "b.json", {}),
        lambda: write_samples(run.path / "samples" / "t=2.jsonl"),
        lambda: VerdictFile(run.path / "verdicts.jsonl", Verdict).__enter__(),
        lambda: list(files_of(run.path)),
    ):
        with pytest.raises(ValueError, match=r"symbolic link|leads out"):
            write()
    assert theirs.read_text() == SECRET


def test_paths_are_compared_by_their_parts_and_loops_end(tmp_path):
    for name in ("run", "run-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "a").symlink_to(tmp_path / "run-2")
    (tmp_path / "run" / "b").symlink_to(tmp_path / "run" / "b")
    with pytest.raises(ValueError, match="leads out"):
        inside(tmp_path / "run", tmp_path / "run" / "a")
    with pytest.raises(ValueError, match="leads out"):
        tree_inside(tmp_path / "run", tmp_path / "run")
    assert not inside(tmp_path / "run", tmp_path / "run" / "b").exists()
    with pytest.raises(ValueError, match="leads out"):
        inside(tmp_path / "run", tmp_path / "run" / ".." / "run-2")
