"""The command line, verb by verb, its errors included."""

import json
import re
import subprocess
import sys

import pytest

from widen.cli.__main__ import VERBS, main
from widen.cli.show import bars


def call(capsys, *arguments):
    status = main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_widen_alone_prints_the_verbs_and_where_to_start(capsys):
    status, out, _ = call(capsys)
    assert status == 0
    assert all(f"  {verb}" in out for verb in VERBS)
    assert "widen demo" in out


def test_a_misspelt_verb_is_refused_with_the_nearest(capsys):
    status, _, err = call(capsys, "curv")
    assert status == 2
    assert "did you mean 'curve'?" in err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_teaches_by_its_help(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: widen {verb}" in out
    assert len(out) > 150
    assert [line for line in out.splitlines() if len(line) > 100] == []  # the width of the page of verbs


def test_no_help_waits_for_torch_to_load():
    code = """
import contextlib, sys
from widen.cli.__main__ import VERBS, main
from widen.cli.show import bars
for verb in VERBS:
    with contextlib.suppress(SystemExit):
        main([verb, "--help"])
    assert "torch" not in sys.modules, verb
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


ON_A_DEVICE = {
    "demo": "",
    "run": "mulmod:tiny:losses",
    "advise": "--model m --data d.jsonl --wish recall --budget 1m",
    "train": "--loss nll --steps 1",
    "grow": "m --prompts p.jsonl",
    "sample": "m",
    "score": "runs",
}
"""The verbs that take --device, each with a call that would make something."""


def test_every_verb_refuses_a_gpu_that_is_not_there_before_it_makes_anything(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for verb in VERBS:
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        assert ("--device" in capsys.readouterr().out) == (verb in ON_A_DEVICE), verb
    for verb, words in ON_A_DEVICE.items():
        status, _, err = call(capsys, verb, *words.split(), "--device", "cuda")
        assert (status, err) == (2, f"widen {verb}: device='cuda': torch finds no GPU here\n")
        assert list(tmp_path.iterdir()) == [], verb


def test_a_config_for_a_gpu_is_printed_without_one(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    status, out, _ = call(capsys, "train", "--model", "m", "--data", "d.jsonl", "--device", "cuda", "--print")
    assert (status, json.loads(out)["precision"]) == (0, "bf16")


def test_no_number_of_a_progress_bar_is_cut_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with bars() as progress:
        progress("train model, nll:steps=3 then cdiv:alpha=1.4,cap=10.0, seed 2", 1680, 3360)
    out = capsys.readouterr().out
    assert "cdiv:alpha=1.4,cap=10.0" in out
    assert "1680/3360 -:--:--" in out


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "widen.cli", "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("widen ")


def test_curve_prints_the_papers_artificial_case(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = call(capsys, "curve", "--temperatures", "1")
    assert status == 0
    assert "t_0 = 1.167" in out
    assert "0.850" in out  # precision at infinity is 1 - epsilon


@pytest.mark.parametrize("epsilon", ["0.99", "0"])
def test_curve_names_no_peak_where_recall_never_falls(capsys, monkeypatch, epsilon):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = call(capsys, "curve", "--epsilon", epsilon)
    assert "rises with every temperature" in out
    assert "t_0" not in out


def test_curve_says_that_recall_is_1_everywhere_if_q_is_p(capsys):
    _, out, _ = call(capsys, "curve", "--a", "0.5", "--epsilon", "0")
    assert "lambda_min is 1 at every temperature, because Q is P." in out


def test_eighty_columns_hold_every_number_of_a_curve(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call(capsys, "curve")
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_mass_that_a_model_has_elsewhere_is_said_and_the_numbers_can_be_had_as_json(capsys, tmp_path):
    (tmp_path / "p.json").write_text("[0.5, 0.5]")
    (tmp_path / "q.json").write_text("[0.5, 0.4]")
    paths = [str(tmp_path / name) for name in ("p.json", "q.json", "curve.json")]
    _, out, _ = call(capsys, "curve", "--p", paths[0], "--q", paths[1], "--json", paths[2])
    assert "q.json sums to 0.9" in out
    (curve,) = json.loads((tmp_path / "curve.json").read_text()).values()
    assert len(curve["lambda"]) == len(curve["precision"]) == len(curve["recall"])
    assert curve["precision"][-1] == pytest.approx(0.9)
    assert curve["recall"][0] == pytest.approx(1.0)


def test_curve_reads_two_distributions_and_leaves_a_page(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "p.json").write_text("[0.5, 0.3, 0.2, 0.0]")
    (tmp_path / "q.json").write_text("[0.25, 0.25, 0.25, 0.25]")
    page = tmp_path / "page.html"
    status, out, _ = call(
        capsys, "curve", "--p", str(tmp_path / "p.json"), "--q", str(tmp_path / "q.json"), "--html", str(page)
    )
    assert status == 0
    assert "0.704" in out  # the area
    assert page.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON list"),
        ('["a"]', "not a JSON list"),
        ("[-1, 2]", "-1"),
        ("[0.5]", "shape"),
        ("[0.9, 0.9, 0, 0]", "sum"),
    ],
)
def test_curve_refuses_what_is_no_distribution(capsys, tmp_path, content, message):
    (tmp_path / "p.json").write_text("[0.5, 0.3, 0.2, 0.0]")
    (tmp_path / "q.json").write_text(content)
    status, _, err = call(capsys, "curve", "--p", str(tmp_path / "p.json"), "--q", str(tmp_path / "q.json"))
    assert status == 2
    assert message in err


def test_curve_refuses_one_distribution_without_the_other(capsys, tmp_path):
    status, _, err = call(capsys, "curve", "--p", str(tmp_path / "p.json"))
    assert status == 2
    assert "--p and --q go together" in err


def test_a_missing_file_is_one_sentence(capsys, tmp_path):
    status, _, err = call(capsys, "curve", "--p", str(tmp_path / "p.json"), "--q", str(tmp_path / "q.json"))
    assert status == 2
    assert "p.json" in err
    assert "Traceback" not in err


def test_env_prints_json_without_a_path_or_a_host_name(capsys):
    import os
    import socket

    status, out, _ = call(capsys, "env", "--json")
    assert status == 0
    assert json.loads(out)["packages"]["torch"]
    assert os.getcwd() not in out
    assert socket.gethostname() not in out


def test_env_says_no_where_the_import_would_fail_and_names_the_version_the_range_and_the_command(capsys, monkeypatch):
    """TRL 0.29 is there and imports; widen's trainer on it does not."""
    import widen.cli.env as module
    import widen.needs as needs

    monkeypatch.setenv("COLUMNS", "240")
    real, imported = needs.version, module.import_module
    monkeypatch.setattr(needs, "version", lambda name: "0.29.1" if name == "trl" else real(name))
    monkeypatch.setattr(module, "import_module", lambda name: imported(name) if name == "widen.hosts.trl" else None)
    monkeypatch.delitem(sys.modules, "widen.hosts.trl", raising=False)
    _, out, _ = call(capsys, "env")
    (line,) = [line for line in out.splitlines() if "TRL" in line]
    assert re.search(r"no .*widen.hosts.trl needs trl>=1.16,<2; found trl 0.29.1: pip install 'trl>=1.16,<2'", line)
    (line,) = [line for line in out.splitlines() if "widen train" in line]
    assert "yes" in line
