"""Both ends of the claimed range, in virtual environments of their own, and a compiled model; minutes, and the package registry."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOWEST = ["transformers==5.17.0", "trl==1.16.0", "accelerate==1.12.0", "peft==0.18.0", "datasets==4.7.0"]
NEWEST = ["transformers", "trl", "accelerate", "peft", "datasets"]
TOOLS = ["pytest", "pytest-timeout", "hypothesis", "beartype", "jaxtyping", "numpy", "scipy", "rich", "safetensors"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("packages", [LOWEST, NEWEST], ids=["lowest", "newest"])
def test_this_room_passes_at_both_ends_of_the_claimed_range(packages, tmp_path):
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, env=env)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", f"torch=={version('torch').split('+')[0]}", *packages, *TOOLS]
    done = subprocess.run(install, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", ROOT / "tests/hosts"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout[-8000:]


COMPILED = """
import trainer_runs as t
from widen.hosts.transformers import Trainer
for loss in ("cdiv:alpha=1.4", "truncr:drop=0.5,window=8"):
    plain, _ = t.train(Trainer, t.WAYS["1x4"], loss=loss)
    compiled, trainer = t.train(Trainer, t.WAYS["1x4"], loss=loss, changes={"torch_compile": True, "torch_compile_backend": "eager"})
    assert type(trainer.model_wrapped).__name__ == "OptimizedModule"
    assert t.apart(compiled.gradients, plain.gradients) < 1e-5
print("agreed")
"""


def test_a_compiled_model_has_the_same_gradients():
    """In a process of its own: the shape checks of the tests are not for the compiler."""
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, env=env)
    assert done.stdout.endswith("agreed\n"), done.stderr
