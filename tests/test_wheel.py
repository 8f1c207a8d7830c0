"""The built wheel in a clean virtual environment does what the source tree does: installs, and runs the demo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_runs_the_demo_in_a_clean_environment(tmp_path):
    """Needs the package registry; installs torch, so minutes."""
    # With the source tree on PYTHONPATH, pip would take widen for installed.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    quiet = {"check": True, "capture_output": True, "env": env}
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], **quiet)
    (wheel,) = tmp_path.glob("widen-*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], **quiet)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[report]"]
    subprocess.run(install, **quiet)
    done = subprocess.run(
        [tmp_path / "venv/bin/widen", "demo", "--out", tmp_path / "demo"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    assert "TruncR 0.5" in done.stdout
    assert (tmp_path / "demo/report.html").stat().st_size > 1_000_000
