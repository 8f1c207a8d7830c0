"""Files and folders are written completely or not at all, and never through a link."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from widen.disk.atomic import write_bytes, write_json, write_text
from widen.disk.atomic_folder import write_folder

ROOT = Path(__file__).parent.parent.parent


def test_what_is_written_is_read(tmp_path):
    assert write_bytes(tmp_path / "new" / "a", b"\0\1").read_bytes() == b"\0\1"
    assert write_text(tmp_path / "b", "é").read_bytes() == "é".encode()
    assert json.loads(write_json(tmp_path / "c", {"x": [1, None]}).read_text()) == {"x": [1, None]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "c", "new"]


def test_a_name_as_long_as_the_system_allows_is_written(tmp_path):
    assert write_text(tmp_path / ("x" * 255), "a").read_text() == "a"
    assert write_text(tmp_path / ("é" * 127), "a").read_text() == "a"


def test_a_link_at_the_target_is_refused_and_its_target_is_unchanged(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "report.html").symlink_to(theirs)
    with pytest.raises(ValueError, match=r"report\.html is a symbolic link to .*theirs; widen does not write through"):
        write_text(tmp_path / "report.html", "ours")
    assert theirs.read_text() == "theirs"


def test_a_dangling_link_is_refused_too(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="symbolic link"):
        write_text(tmp_path / "a", "ours")
    assert not (tmp_path / "nowhere").exists()


def test_a_link_under_the_old_temporary_name_is_left_alone(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in ("report.html.part", ".report.html.part"):
        (tmp_path / name).symlink_to(theirs)
    write_text(tmp_path / "report.html", "ours")
    assert (theirs.read_text(), (tmp_path / "report.html").read_text()) == ("theirs", "ours")


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_not_a_regular_file_is_not_replaced(tmp_path, kind):
    place = tmp_path / "a"
    place.mkdir() if kind == "folder" else os.mkfifo(place)
    with pytest.raises(ValueError, match="exists and is not a regular file"):
        write_text(place, "ours")


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path, monkeypatch):
    write_text(tmp_path / "a", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_writers_at_the_same_moment_leave_one_whole_file(tmp_path):
    texts = [str(number) * 10_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=(tmp_path / "a", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_text() in texts
    assert len(list(tmp_path.iterdir())) == 1


def test_files_and_folders_have_the_permissions_that_the_user_asked_for(tmp_path):
    code = """
import os, sys
from widen.disk.atomic import write_text
from widen.disk.atomic_folder import write_folder
os.umask(0o027)
write_text("a", "x")
write_folder("b", lambda folder: write_text(folder / "c", "x"))
print(*(oct(os.stat(name).st_mode & 0o777) for name in ("a", "b")))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0o640", "0o750"]


def test_a_folder_is_replaced_in_one_move_and_leftovers_of_a_kill_go(tmp_path):
    left = tmp_path / ".model.0123456789abcdef.part"
    left.mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    write_folder(tmp_path / "model", lambda folder: write_text(folder / "new", "x"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checksums.json", "model", "new"]


def test_a_folder_that_fails_to_fill_leaves_the_old_one(tmp_path):
    write_folder(tmp_path / "model", lambda folder: write_text(folder / "old", "x"))

    def fill(folder):
        write_text(folder / "new", "x")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        write_folder(tmp_path / "model", fill)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["checksums.json", "model", "old"]


def test_a_folder_that_fails_to_fill_leaves_no_new_parents(tmp_path):
    (tmp_path / "there").mkdir()

    def fill(folder):
        raise RuntimeError("out of memory")

    for place in ("there/model", "new/deep/model"):
        with pytest.raises(RuntimeError, match="out of memory"):
            write_folder(tmp_path / place, fill)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_folder_is_not_written_through_a_link(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "theirs")
    with pytest.raises(ValueError, match="symbolic link"):
        write_folder(tmp_path / "model", lambda folder: write_text(folder / "new", "x"))
    assert list((tmp_path / "theirs").iterdir()) == []


def test_no_module_writes_files_by_hand():
    """The sandbox imports nothing of widen, and the samples file appends under its own lock."""
    pattern = re.compile(r"\.write_text\(|\.write_bytes\(|os\.replace\(|\.part\"|open\([^)]*[\"'][wx]b?[\"']")
    found = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*.py")
        if "judge" not in path.parts and "disk" not in path.parts
        for line in path.read_text().splitlines()
        if pattern.search(line) and ">>>" not in line
    }
    assert found == set()
