"""The samples file survives a kill at any byte, a full disk and a second writer; damage is refused."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from widen.sample import writer as writer_module
from widen.sample.decoding import Decoding, Settings
from widen.sample.engine import Identity, Sample
from widen.sample.prompts import Prompt
from widen.sample.samples_file import read_samples
from widen.sample.writer import SamplesWriter

SETTINGS = Settings(decoding=Decoding.parse("t=0.7,top_p=0.9"), max_tokens=8)
IDENTITY = Identity(engine="test", name="m", model={"weights": "1"}, notes=("a note",))
PROMPTS = [Prompt(text='Ça va?\n\t"x"', id="a"), Prompt(text="two", id="b", without="o")]
SAMPLES = [
    Sample("a", 0, "ligne\nune \u2028 é", "stop", 3, 2, -1.5, -0.25, (4, 1)),
    Sample("b", 0, "", "length", 1, 8, None, None, None),
    Sample("a", 1, "\ud800 lone surrogate", "length", 3, 8, -2.0, -1.0, (1,) * 8),
    Sample("b", 5, "z" * 30, "stop"),
]


def open_writer(path, *, settings=SETTINGS, identity=IDENTITY, prompts=PROMPTS):
    return SamplesWriter(path, settings=settings, identity=identity, prompts=prompts)


def write(path, samples=SAMPLES):
    with open_writer(path) as writer:
        for sample in samples:
            writer.append([sample])
    return path


def test_what_is_written_is_what_is_read(tmp_path):
    found = read_samples(write(tmp_path / "deep" / "s.jsonl"))
    assert found.samples == SAMPLES
    assert found.prompts == {p.id: p for p in PROMPTS}
    assert found.settings == SETTINGS
    assert (found.header["schema"], found.header["model"], found.header["notes"]) == (1, {"weights": "1"}, ["a note"])
    records = [json.loads(line) for line in (tmp_path / "deep" / "s.jsonl").read_bytes().splitlines()]
    sample = next(r for r in records if r["kind"] == "sample")
    assert {
        "prompt",
        "index",
        "text",
        "finish",
        "settings",
        "seed",
        "logq",
        "sampler",
        "prompt_tokens",
        "num_tokens",
    } <= set(sample)
    assert [r["id"] for r in records if r["kind"] == "prompt"] == ["a", "b"]  # each once


def test_cut_at_any_byte_it_resumes_without_losing_or_doubling_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(
        writer_module.os, "fsync", lambda fd: None
    )  # a thousand files: the disk itself is not what is tested
    whole = write(tmp_path / "whole.jsonl", SAMPLES[:3]).read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    path = tmp_path / "cut.jsonl"
    near = {end + offset for end in (0, *ends) for offset in range(-12, 13)}
    for cut in sorted({*range(0, len(whole) + 1, 9), *near} & {*range(len(whole) + 1)}):
        path.write_bytes(whole[:cut])
        with open_writer(path) as writer:
            assert writer.repaired == cut - max([0, *(e for e in ends if e <= cut)])
            writer.append(SAMPLES[:3])
        found = read_samples(path)
        assert sorted(found.samples, key=repr) == sorted(SAMPLES[:3], key=repr), cut
        assert found.prompts == {p.id: p for p in PROMPTS}
        assert found.torn == 0


def test_a_reader_of_a_torn_file_gets_what_is_whole_and_changes_nothing(tmp_path):
    path = write(tmp_path / "s.jsonl")
    path.write_bytes(path.read_bytes()[:-7])
    before = path.read_bytes()
    found = read_samples(path)
    assert found.samples == SAMPLES[:-1]
    assert found.torn > 0
    assert path.read_bytes() == before


def test_garbage_and_zeros_at_the_end_are_cut_off(tmp_path):
    for tail in (b"\0" * 4096, b"half a line\nand\nanother", b'{"kind":"sample","crc":"00000000"}\n'):
        path = write(tmp_path / "s.jsonl", SAMPLES[:2])
        path.write_bytes(path.read_bytes() + tail)
        with open_writer(path) as writer:
            assert writer.repaired == len(tail)
            writer.append(SAMPLES)
        found = read_samples(path)
        assert sorted(found.samples, key=repr) == sorted(SAMPLES, key=repr)
        assert found.torn == 0
        path.unlink()


def test_damage_in_the_middle_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "s.jsonl")
    data = bytearray(path.read_bytes())
    third = data.index(b"\n", data.index(b"\n") + 1) + 20
    data[third] ^= 1
    path.write_bytes(data)
    for open_it in (read_samples, open_writer):
        with pytest.raises(ValueError, match=r"line 3: damaged .* restore the file"):
            open_it(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("content", [b"hello", b"hello\n", b'{"kind":"sample"}\n', b"{}", b'{"kind":"other"'])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a samples file"):
        open_writer(path)
    assert path.read_bytes() == content


def test_other_settings_another_model_or_another_text_are_refused(tmp_path):
    path = write(tmp_path / "s.jsonl")
    with pytest.raises(ValueError, match="drawn with other settings"):
        open_writer(path, settings=Settings(decoding=Decoding.parse("t=0.7,top_p=0.9"), max_tokens=8, seed=1))
    with pytest.raises(ValueError, match="samples of another model"):
        open_writer(path, identity=Identity(engine="test", name="m", model={"weights": "2"}))
    with pytest.raises(ValueError, match="prompt 'a' had another text"):
        open_writer(path, prompts=[Prompt(text="other", id="a")])
    newer = path.read_bytes().replace(b'"schema":1', b'"schema":2', 1)
    body = newer[: newer.index(b',"crc"')] + b"}"
    import zlib

    path.write_bytes(b'%s,"crc":"%08x"}\n' % (body[:-1], zlib.crc32(body)))
    with pytest.raises(ValueError, match="has schema 2; this version of widen reads schema 1"):
        read_samples(path)


def test_a_second_writer_is_refused_while_the_first_is_open(tmp_path):
    path = tmp_path / "s.jsonl"
    with open_writer(path) as writer:
        with pytest.raises(ValueError, match="being written by another process"):
            open_writer(path)
        assert writer.append(SAMPLES) == 4
    with open_writer(path) as writer:
        assert writer.append(SAMPLES) == 0  # nothing is doubled
        assert writer.count == 4


@pytest.mark.parametrize("at", [0, 1, 40])
def test_a_full_disk_ends_with_a_sentence_and_a_whole_file(tmp_path, monkeypatch, at):
    path = write(tmp_path / "s.jsonl", SAMPLES[:2])
    before = path.read_bytes()
    real = os.pwrite

    def full(fd, data, offset):
        if at and offset == len(before):
            return real(fd, data[:at], offset)  # some of it still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_writer(path) as writer:
        monkeypatch.setattr(writer_module.os, "pwrite", full)
        with pytest.raises(OSError, match="no room left to write; the 2 samples in the file are whole"):
            writer.append(SAMPLES)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert writer.append(SAMPLES) == 2  # room was made
    assert sorted(read_samples(path).samples, key=repr) == sorted(SAMPLES, key=repr)


def test_a_real_limit_of_the_system_leaves_a_whole_file(tmp_path):
    """RLIMIT_FSIZE: the kernel itself writes a part and refuses the rest."""
    code = f"""
import resource, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_samples_file import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
with open_writer(Path({str(tmp_path / "s.jsonl")!r})) as writer:
    for i in range(100):
        try:
            writer.append([Sample("a", i, "x" * 50, "stop")])
        except OSError as error:
            print(writer.count, error)
            break
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count = int(done.stdout.split()[0])
    assert 0 < count < 20
    assert f"the {count} samples in the file are whole" in done.stdout
    found = read_samples(tmp_path / "s.jsonl")
    assert (len(found), found.torn) == (count, 0)
