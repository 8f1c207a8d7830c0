"""Attention while decoding: the Triton kernel, in a process of its own under Triton's interpreter, which is chosen at import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def test_the_decoding_kernel_is_right_under_tritons_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sample/attention_interpreted.py"],
        cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_on_a_gpu_the_decoding_kernel_errs_no_more_than_torchs_attention(dtype):
    from attention_interpreted import halves_err_no_more_than_torchs

    halves_err_no_more_than_torchs(dtype, "cuda")
