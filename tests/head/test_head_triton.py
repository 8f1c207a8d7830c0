"""The Triton kernels run in every test run, in another process under Triton's interpreter, which is chosen at import."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_kernels_are_right_under_tritons_interpreter():
    files = ["tests/head/interpreted.py", "tests/head/interpreted_exp.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
