"""The head under DDP and FSDP2, in two real processes on the CPU."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_two_ranks_get_the_gradient_of_the_whole_batch(tmp_path):
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("ranks.py"))]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [out for out, _ in outputs] == ["agreed\n"] * 2, "\n".join(err for _, err in outputs)
