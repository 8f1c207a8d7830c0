"""One process per folder, with real processes."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from widen.cli.__main__ import main
from widen.disk.lock import hold
from widen.models.convert import save_pretrained
from widen.models.tiny_llama import LlamaShape, TinyLlama
from widen.run.experiment import Experiment, with_changes
from widen.run.folder import RunFolder
from widen.run.value import to_json
from widen.train.log import Log

HOLDER = "import sys; from widen.disk.lock import hold\nwith hold(sys.argv[1]): print(flush=True); sys.stdin.read()"


@contextmanager
def another_process(folder):
    """A process that holds ``folder`` until the block ends or it is killed."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def test_the_second_process_is_refused_with_a_sentence_that_names_the_first(tmp_path):
    with another_process(tmp_path) as other, pytest.raises(ValueError) as error, hold(tmp_path):
        pass
    text = str(error.value)
    assert text.startswith(f"{tmp_path} is in use by process {other.pid} (-c {tmp_path}), started 20")
    assert text.endswith("wait until it has finished, or stop it")
    with hold(tmp_path):
        pass


def test_a_killed_process_leaves_no_stale_lock(tmp_path):
    with another_process(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == other.pid
        with hold(tmp_path):
            assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / ".lock").read_text() == ""


def test_a_process_may_hold_a_folder_several_times(tmp_path):
    with hold(tmp_path):
        with hold(tmp_path):
            pass
        done = subprocess.run(
            [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.DEVNULL, capture_output=True
        )
        assert f"in use by process {os.getpid()}".encode() in done.stderr
    with another_process(tmp_path):
        pass


def test_a_run_folder_that_is_a_link_has_one_lock_with_its_target(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with another_process(tmp_path / "run"), pytest.raises(ValueError, match="in use"), hold(tmp_path / "link"):
        pass


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_is_no_regular_file_is_refused(tmp_path, kind):
    place = tmp_path / "run" / ".lock"
    place.parent.mkdir()
    {"link": lambda: place.symlink_to(tmp_path / "theirs"), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[
        kind
    ]()
    with pytest.raises((ValueError, IsADirectoryError), match="lock"), hold(place.parent):
        pass
    assert not (tmp_path / "theirs").exists()


def test_what_a_stranger_wrote_into_a_lock_does_not_reach_the_terminal(tmp_path):
    with another_process(tmp_path):
        about = {"pid": 1, "host": "h", "command": "\x1b[2J" + "x" * 999, "started": "now"}
        (tmp_path / ".lock").write_text(json.dumps(about))
        with pytest.raises(ValueError) as error, hold(tmp_path):
            pass
        assert "\x1b" not in str(error.value)
        assert len(str(error.value)) < 400 + len(str(tmp_path))
        (tmp_path / ".lock").write_text("[]")
        with pytest.raises(ValueError, match="in use by another process"), hold(tmp_path):
            pass


def test_two_logs_in_one_folder_are_refused_across_processes_and_the_first_is_unharmed(tmp_path):
    with another_process(tmp_path) as other:
        (tmp_path / "log.jsonl").write_text('{"step": 0}\n')
        with pytest.raises(ValueError, match=f"process {other.pid}"):
            Log(tmp_path / "log.jsonl", step=0)
        assert (tmp_path / "log.jsonl").read_text() == '{"step": 0}\n'
    Log(tmp_path / "log.jsonl", step=1).close()
    with another_process(tmp_path):
        pass  # a closed log holds nothing


@pytest.fixture
def run(tmp_path):
    """A small run of the integer task, where `widen train --steps 2` would put it."""
    experiment = with_changes(Experiment(name="run"), {"model.train.steps": "2"})
    folder = RunFolder(tmp_path / "runs" / experiment.folder_name)
    folder.write(folder.config, {"experiment": to_json(experiment)})
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "mulmod:tiny:losses", "--out", "{root}"],
        ["demo", "--out", "{root}"],
        ["train", "--out", "{root}", "--steps", "2"],
        ["score", "{run}"],
        ["sample", "{run}", "--num", "2"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_verb_that_writes_into_a_run_is_refused_while_another_process_does(arguments, run, capsys):
    if arguments[0] == "sample":
        save_pretrained(TinyLlama(LlamaShape(layers=1, dim=8, heads=2, hidden=8)), run.checkpoint)
    root = run.path.parent
    with another_process(root if arguments[0] in ("run", "demo") else run.path) as other:
        assert main([argument.format(root=root, run=run.path) for argument in arguments]) == 2
    assert f"in use by process {other.pid} " in capsys.readouterr().err
