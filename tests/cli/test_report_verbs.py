"""The verbs that draw: report, explore, figures."""

import json

import pytest

from widen.cli.__main__ import _call
from widen.run.folder import RunFolder
from widen.run.record import Record, write_records
from widen.sample import Decoding


def call(capsys, *arguments):
    status = _call(arguments[0], list(arguments[1:]))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "runs" / "nll-seed0"
    (folder / "scores").mkdir(parents=True)
    experiment = {"name": "NLL", "model": {"loss": "nll", "seed": 0, "data": {"seed": 0}, "model": {}}}
    (folder / "config.json").write_text(json.dumps({"schema": 1, "experiment": experiment}))
    about = {"task": "mulmod", "model": "m", "loss": "nll", "seed": 0, "detail": {"score": {"kind": "exact"}}}
    values = [(t, metric, v) for t in (0.5, 1.0) for metric, v in (("precision", 1 - t / 4), ("recall", t / 4))]
    records = [Record(**about, decoding=Decoding(temperature=t), metric=metric, value=v) for t, metric, v in values]
    write_records(RunFolder(folder), "exact-1", records)
    return folder


def test_report_of_a_star_leaves_out_what_is_no_run_and_says_so(capsys, run):
    (run.parent / "losses.csv").write_text("a\n")
    (run.parent / "prompts").mkdir()
    everything = sorted(map(str, run.parent.iterdir()))
    status, out, _ = call(capsys, "report", *everything, "--no-figures")
    assert status == 0
    assert "left out, no run in it:" in out
    assert "losses.csv" in out
    assert "prompts" in out
    assert call(capsys, "report", str(run.parent / "prompts"))[0] == 2


def test_report_leaves_the_page_in_the_run_and_the_figures_beside_it(capsys, run):
    status, out, _ = call(capsys, "report", str(run))
    assert status == 0
    assert f"page: {run / 'report.html'}" in out
    assert sorted(path.name for path in (run / "figures").iterdir()) == [
        f"frontier-mulmod__exact.{kind}" for kind in ("pdf", "png", "svg")
    ]


def test_report_of_a_folder_of_runs_takes_a_file_and_a_title(capsys, run, tmp_path):
    status, _, _ = call(
        capsys, "report", str(run.parent), "--out", str(tmp_path / "page.html"), "--title", "Mine <b>", "--no-figures"
    )
    assert status == 0
    assert "<h1>Mine &lt;b&gt;</h1>" in (tmp_path / "page.html").read_text()
    assert not (tmp_path / "figures").exists()


def test_report_refuses_a_folder_without_runs_in_one_sentence(capsys, tmp_path):
    status, _, err = call(capsys, "report", str(tmp_path))
    assert status == 2
    assert err.count("\n") == 1
    assert "holds no run" in err


def test_explore_leaves_one_page(capsys, tmp_path):
    status, out, _ = call(capsys, "explore", "--out", str(tmp_path / "x.html"))
    assert status == 0
    assert "x.html" in out
    assert 'data-panel="artificial"' in (tmp_path / "x.html").read_text()


def test_figures_draws_what_it_can_and_names_what_it_lacks(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "results").mkdir()
    status, out, _ = call(
        capsys,
        "figures",
        "--out",
        str(tmp_path / "out"),
        "--only",
        "ineq",
        "tsallis",
        "--formats",
        "svg",
        "--results",
        str(tmp_path / "results"),
    )
    assert status == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ineq.svg"]
    assert "needs the results of recipe `tsallis`" in out


def test_figures_refuses_an_unknown_name_with_the_list(capsys, tmp_path):
    status, _, err = call(capsys, "figures", "--out", str(tmp_path), "--only", "tsalis")
    assert status == 2
    assert "no figure is called tsalis; figures: PR_examples" in err
