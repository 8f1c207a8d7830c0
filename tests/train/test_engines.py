"""Compiled pieces and CUDA graphs give the models of the plain engine.

In a process of its own: the shape checks that the test run puts around every function are nothing a compiler can look through.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def largest_difference(engine: str, steps: int) -> float:
    """Largest difference in any parameter of any model between this engine and float64 on the CPU."""
    code = f"""
import torch
from test_side_by_side import configurations
from widen.train.engine import Engine
from widen.train.side_by_side import SideBySide
made = configurations({steps})
plain, other = SideBySide(made, engine=Engine(dtype=torch.float64, workers=1)), SideBySide(made, engine={engine})
list(plain.advance()), list(other.advance())
print((other.flat_MP.double().cpu() - plain.flat_MP).abs().max().item())
"""
    path = f"{ROOT / 'src'}:{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout)


@pytest.mark.slow
def test_compiled_pieces_change_nothing():
    assert largest_difference("Engine(dtype=torch.float64, models_at_once=10, workers=1, compile=True)", 6) < 1e-10


GPU_ENGINES = [
    "Engine(device='cuda', dtype=torch.float64)",
    "Engine(device='cuda', dtype=torch.float64, graph=True)",
    "Engine(device='cuda', dtype=torch.float64, graph=True, compile=True)",
]


@pytest.mark.gpu
@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_on_a_gpu_the_models_are_those_of_the_cpu(engine):
    assert largest_difference(engine, 20) < 1e-9


@pytest.mark.gpu
@pytest.mark.parametrize("tf32", [False, True])
def test_in_float32_on_a_gpu_the_models_stay_close(tf32):
    engine = f"Engine(device='cuda', graph=True, compile=True, tf32={tf32})"
    assert largest_difference(engine, 20) < (2e-2 if tf32 else 1e-4)
