"""Versions of other packages: what is refused with which sentence, and, slowly, the real packages and interpreters."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import widen.needs as needs

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def found(monkeypatch, **versions):
    """Let these packages have these versions; None is not installed."""

    def answer(name):
        if name in versions and versions[name] is None:
            raise PackageNotFoundError(name)
        return versions.get(name) or version(name)

    monkeypatch.setattr(needs, "version", answer)


@pytest.mark.parametrize(
    ("module", "package", "old", "command"),
    [
        ("widen.hosts.transformers", "transformers", "4.56.2", "transformers>=4.57"),
        ("widen.hosts.trl", "transformers", "4.57.6", "transformers>=5.17"),
        ("widen.hosts.trl", "trl", "0.29.1", "trl>=1.16,<2"),
        ("widen.hosts.trl", "trl", "2.0.0", "trl>=1.16,<2"),
    ],
)
def test_another_version_is_refused_at_import_with_found_version_range_and_command(
    monkeypatch, module, package, old, command
):
    found(monkeypatch, **{package: old})
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(
        ImportError, match=re.escape(f"{module} needs {command}; found {package} {old}: pip install '{command}'")
    ):
        __import__(module)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch):
    found(monkeypatch, trl=None)
    assert (
        needs.fault("widen.hosts.trl")
        == "widen.hosts.trl needs trl>=1.16,<2, which is not installed: pip install 'widen[trl]'"
    )


def test_fine_tuning_with_old_transformers_is_one_sentence(monkeypatch, tmp_path):
    from widen.run.finetune.model_files import load_tokenizer

    found(monkeypatch, transformers="4.57.6")
    with pytest.raises(ImportError, match=r"widen train needs transformers>=5.17; found transformers 4.57.6"):
        load_tokenizer(str(tmp_path))


def test_the_extras_of_the_package_state_the_same_ranges():
    extras = PROJECT["optional-dependencies"]
    for part, wanted in needs.NEEDS.items():
        for need in wanted:
            stated = [one.replace("_", "-") for one in extras[need.extra]]
            lowest = need.range.replace("_", "-")
            assert lowest in stated or (part, need.package) in {
                ("widen.hosts.trl", "transformers"),
                ("widen train", "transformers"),
            }, (part, lowest)
    assert "transformers>=5.17" in extras["trl"]


def test_the_page_on_installation_explains_every_extra():
    page = (ROOT / "docs/start/install.md").read_text()
    assert [extra for extra in PROJECT["optional-dependencies"] if f"\n| `{extra}` | " not in page] == []


def test_the_project_names_its_authors_its_paper_and_every_tested_python():
    assert PROJECT["authors"]
    assert all(address.startswith("https://") for address in PROJECT["urls"].values())
    stated = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert stated == {"3.11", *OTHERS}
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in stated


# ---- slow: the registry, and minutes

OTHERS = ("3.12", "3.13")
CORE = ["pytest", "pytest-timeout", "hypothesis", "beartype", "jaxtyping", "numpy", "scipy", "rich", "safetensors"]
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def environment(folder, *packages, python=sys.executable):
    """A virtual environment with these packages and our torch."""
    subprocess.run([python, "-m", "venv", folder], check=True, env=CLEAN)
    torch = f"torch=={version('torch').split('+')[0]}"
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet", torch, *packages]
    done = subprocess.run(install, capture_output=True, text=True, env=CLEAN)
    assert done.returncode == 0, done.stderr
    return folder / "bin/python"


def call(python, *arguments):
    env = CLEAN | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run([python, *arguments], capture_output=True, text=True, cwd=ROOT, env=env)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_transformers_4_57_trains_with_the_same_gradients_and_resumes(tmp_path):
    """Left out: tests that also train with TRL, bfloat16 (this version leaves it on for the whole process), the host's rounded log."""
    python = environment(tmp_path / "venv", "transformers==4.57.*", "accelerate", "peft", "datasets", *CORE)
    rooms = [
        ROOT / f"tests/hosts/{name}.py" for name in ("test_same_gradients", "test_loss_state", "test_log_and_guard")
    ]
    left_out = (
        "trl",
        "sft",
        "both_trainers",
        "bfloat16",
        "hosts_own_loss",
        "mean_one",
        "figures_are_those",
        "a_nan_that_the_loss",
    )
    chosen = " and ".join(f"not {name}" for name in left_out)
    done = call(python, "-m", "pytest", "-p", "no:cacheprovider", "-k", chosen, *rooms)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "widen train needs transformers>=5.17" in " ".join(call(python, "-m", "widen", "env").stdout.split())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_trl_0_29_is_refused_with_a_sentence(tmp_path):
    python = environment(tmp_path / "venv", "trl==0.29.*", *CORE)
    done = call(python, "-c", "import widen.hosts.trl")
    assert done.stderr.splitlines()[-1].startswith("ImportError: widen.hosts.trl needs ")
    assert "KeyError" not in done.stderr


def interpreter(number):
    """A Python of this version that starts: on the path, of pyenv, or of uv. A shim of pyenv is on the path and may not start."""
    places = [shutil.which(f"python{number}"), *Path.home().glob(f".pyenv/versions/{number}.*/bin/python")]
    places += Path.home().glob(f".local/share/uv/python/cpython-{number}.*/bin/python{number}")
    starts = (
        str(place) for place in places if place and subprocess.run([place, "-V"], capture_output=True).returncode == 0
    )
    return next(starts, None)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", OTHERS)
def test_losses_theory_and_trainers_pass_on_the_other_pythons_that_are_here(number, tmp_path):
    if (other := interpreter(number)) is None:
        pytest.skip(f"no Python {number} here: uv python install {number}")
    python = environment(
        tmp_path / "venv", "transformers", "trl<2", "accelerate", "peft", "datasets", *CORE, python=other
    )
    rooms = [ROOT / "tests" / room for room in ("losses", "theory", "hosts")]
    done = call(python, "-m", "pytest", "-p", "no:cacheprovider", *rooms)
    assert done.returncode == 0, done.stdout[-8000:]
