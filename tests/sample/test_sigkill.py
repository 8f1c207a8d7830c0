"""kill -9, for real, at random moments: every sample comes once, and is what an undisturbed run draws."""

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from endless_engine import NUM, PROMPTS, SETTINGS, MadeUp

from widen.sample.fill import collect, difference
from widen.sample.samples_file import read_samples

SCRIPT = Path(__file__).parent / "endless_engine.py"


def test_killed_again_and_again_it_ends_with_every_sample_once(tmp_path):
    rng = random.Random(0)
    killed = 0
    for _ in range(200):
        process = subprocess.Popen([sys.executable, SCRIPT, tmp_path / "killed"], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        if killed < 3:
            time.sleep(rng.random() * 0.012)
            process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        if process.wait() == -signal.SIGKILL:
            killed += 1
        elif killed >= 3:
            assert rest == "done\n"
            break
        else:  # it was too quick to be killed: start over
            for path in (tmp_path / "killed").glob("*.jsonl"):
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    assert killed >= 3
    whole = collect(MadeUp(), PROMPTS, SETTINGS, num=NUM, folder=tmp_path / "whole")
    for path in whole:
        found = read_samples(tmp_path / "killed" / path.name)
        assert len(found) == len({(s.prompt, s.index) for s in found}) == NUM * len(PROMPTS)
        assert difference(path, tmp_path / "killed" / path.name) == (NUM * len(PROMPTS), 0)


def test_more_samples_are_added_to_the_same_files(tmp_path):
    collect(MadeUp(), PROMPTS, SETTINGS[:1], num=8, folder=tmp_path)
    seen = []
    (path,) = collect(MadeUp(), PROMPTS, SETTINGS[:1], num=16, folder=tmp_path, progress=seen.append)
    assert len(read_samples(path)) == 16 * len(PROMPTS)
    assert (seen[0], seen[-1]) == ((40, 80), (80, 80))
    before = path.read_bytes()
    collect(MadeUp(), PROMPTS, SETTINGS[:1], num=16, folder=tmp_path)
    assert path.read_bytes() == before


def test_the_samples_that_differ_between_two_files_are_counted(tmp_path):
    class Other(MadeUp):
        def sample(self, setting, prompt, index):
            found = super().sample(setting, prompt, index)
            return found if index % 4 else replace(found, text=found.text[1:])

    (one,) = collect(MadeUp(), PROMPTS, SETTINGS[:1], num=16, folder=tmp_path / "a")
    (other,) = collect(Other(), PROMPTS, SETTINGS[:1], num=8, folder=tmp_path / "b")
    found = difference(one, other)
    assert found == (8 * len(PROMPTS), 2 * len(PROMPTS))
