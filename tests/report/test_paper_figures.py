"""The static figures: every figure of the paper, drawn from mathematics or from rows, or said to be missing."""

import csv
import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from made_runs import make_run

from widen.report import static
from widen.report.lines import group
from widen.report.load import load
from widen.report.paper_figures import FIGURES, look, result_figures, theory_figures, write_figures
from widen.theory import ArtificialCase

EXACT = {"PR_examples", "examplePQ", "methods", "PRcurve1", "PRcurve2", "ineq"}
COLUMNS = [
    "recipe",
    "name",
    "loss",
    "b",
    "temperature",
    "seeds",
    "precision",
    "precision_half_width",
    "recall",
    "recall_half_width",
    "auc",
    "num_samples",
]
LOSSES = {
    "NLL": "nll",
    "Trunc 0.1": "nll:steps=3000 then trunc:drop=0.1,window=10000",
    "Trunc 0.25": "nll:steps=3000 then trunc:drop=0.25,window=10000",
    "TruncR 0.1": "nll:steps=3000 then truncr:drop=0.1,window=10000",
    "c-Div 0.5": "nll:steps=3000 then cdiv:alpha=0.5",
    "c-Div 2": "nll:steps=3000 then cdiv:alpha=2.0,cap=10000.0",
    "c-Div 1.5": "nll:steps=3000 then cdiv:alpha=1.5,cap=10000.0",
    "TaiLr 0.1": "nll:steps=3000 then tailr:gamma=0.1",
    "lambda-PR 0.5": "nll:steps=3000 then lambda_pr:lam=0.5,gamma=0.1",
}


def rows(recipe, names=LOSSES, levels=(0.2,)):
    for b in levels:
        for i, name in enumerate(names):
            for t in (0.5, 1.0, 2.0):
                yield [
                    recipe,
                    name,
                    LOSSES.get(name, "nll"),
                    b,
                    t,
                    5,
                    1 - 0.1 * t - 0.02 * i,
                    0.01,
                    0.3 + 0.1 * t + 0.02 * i,
                    "",
                    0.8,
                    20_000,
                ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results as the recipes write them: comment lines, then the table."""
    path = tmp_path_factory.mktemp("results")
    for recipe, table in {
        "mulmod:tsallis": rows("mulmod:tsallis", ["NLL", "c-Div 1.5", "c-Div 2"]),
        "mulmod:losses": rows("mulmod:losses"),
        "mulmod:temperature": rows("mulmod:temperature", ["NLL"], (0.05, 0.2, 0.5)),
        "writing_prompts": rows("writing_prompts"),
    }.items():
        with (path / f"{recipe.replace(':', '_')}.csv").open("w", newline="") as file:
            file.write("# command: widen run\n# made with: {}\n")
            csv.writer(file).writerows([COLUMNS, *table])
    with (path / "support.csv").open("w", newline="") as file:
        support = [["support_size", mass, q, 1 + 100 * q * mass] for mass in (0.9, 0.99) for q in (0.1, 0.5, 0.9)]
        csv.writer(file).writerows([["recipe", "mass", "quantile", "tokens"], *support])
    return path


@pytest.fixture(scope="module")
def drawn(folder):
    """Every figure that can be drawn, with its caption, not saved."""
    with look.styled():
        figures = {entry.name: (entry, entry.figure(folder)) for entry in FIGURES}
        for entry, figure in figures.values():
            if figure is not None:
                look.caption(figure, entry.caption)
    return figures


def words(figure):
    from matplotlib.text import Text

    return " ".join(" ".join(text.get_text() for text in figure.findobj(Text)).split())


def test_every_figure_of_the_paper_has_its_entry():
    labels = {
        "fig:PR_examples",
        "fig:examplePQ",
        "fig:methods",
        "fig:prcode",
        "fig:prmulmod",
        "fig:tsallis",
        "fig:WPPRCurves",
        "fig:mulmod_losses",
        "app:fig:PRcurve1",
        "app:fig:PRcurve2",
        "fig:ineq",
        "histo",
    }
    assert {entry.label for entry in FIGURES} == labels
    assert {entry.name for entry in FIGURES if not entry.recipe} == EXACT
    assert len({entry.name for entry in FIGURES}) == len(FIGURES)


def test_all_are_drawn_but_the_one_whose_results_are_not_there_and_that_is_said(drawn, folder, tmp_path):
    assert [name for name, (_, figure) in drawn.items() if figure is None] == ["prcode"]
    (one,) = write_figures(tmp_path, folder=folder, only=["prcode"])
    assert one.paths == ()
    assert one.missing == "needs the results of recipe `codecontests`, which are not there yet"


def test_each_holds_the_papers_claim_and_its_label(drawn):
    for name, (entry, figure) in drawn.items():
        if figure is not None:
            assert entry.caption in words(figure), name
            assert entry.label in entry.caption
            assert "The paper: “" in entry.caption


def test_figures_of_results_name_every_line(drawn):
    found = {name: words(figure) for name, (_, figure) in drawn.items() if figure is not None}
    assert all(name in found["tsallis"] for name in ("NLL", "c-Div 1.5", "c-Div 2"))
    assert all(f"b = {b}" in found["prmulmod"] for b in ("0.05", "0.2", "0.5"))
    assert all(name in found["mulmod_losses"] for name in ("Trunc", "TruncR", "GOLD", "c-Div", "TaiLr", "λ-PR", "NLL"))
    assert "TruncR 0.1" in found["WPPRCurves"]
    assert "mass 0.99" in found["support"]


@pytest.mark.slow
def test_all_are_saved_in_every_format(folder, tmp_path):
    done = write_figures(tmp_path, folder=folder)
    assert len(list(tmp_path.iterdir())) == 3 * (len(done) - 1)
    for one in done:
        for path in one.paths:
            if path.suffix == ".svg":
                assert one.entry.label in "".join(ET.parse(path).getroot().itertext())


def test_one_figure_comes_in_all_formats_and_twice_the_same(tmp_path, folder):
    first = write_figures(tmp_path / "a", folder=folder, only=["tsallis"])[0].paths
    second = write_figures(tmp_path / "b", folder=folder, only=["tsallis"], formats=["pdf", "svg"])[0].paths
    assert [path.suffix for path in first] == [".pdf", ".svg", ".png"]
    assert [path.read_bytes() for path in first[:2]] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"%PDF")
    assert first[2].read_bytes().startswith(b"\x89PNG")


def lines_of(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def test_exact_figures_lie_on_the_curves_of_theory():
    with look.styled():
        for drawn, case in (
            (theory_figures.PR_CURVE_1, ArtificialCase(vocab=100, support=50, rho=0.5, a=0.725, epsilon=0.15)),
            (theory_figures.PR_CURVE_2, ArtificialCase(vocab=100, support=10, rho=0.5, a=0.525, epsilon=0.05)),
        ):
            figure = theory_figures.three_temperatures(drawn)
            for ax, t in zip(figure.axes, (0.1, 1.0, 10.0), strict=True):
                assert set(lines_of(ax)) == {"t = 1", f"t = {t:g}"}
                for recall, precision in lines_of(ax)[f"t = {t:g}"]:
                    lam = precision / recall if recall else np.inf
                    assert precision == pytest.approx(case.precision(lam, t), abs=1e-9)
        for ratio, ax in zip((2, 10, 100), theory_figures.ineq().axes, strict=True):
            b, epsilon_0 = lines_of(ax)["ρ = 0.5"][40]
            assert epsilon_0 == pytest.approx(
                ArtificialCase(vocab=10 * ratio, support=10, rho=0.5, a=1 - b, epsilon=0.1).epsilon_0
            )


def test_the_first_example_is_more_precise_and_recalls_less():
    with look.styled():
        ax = theory_figures.pr_examples().axes[0]
    first, second = lines_of(ax)["Q1"], lines_of(ax)["Q2"]
    assert first[:, 1].max() > second[:, 1].max()
    assert np.interp(0.1, first[:, 1], first[:, 0]) < np.interp(0.1, second[:, 1], second[:, 0])


def test_a_measured_line_is_what_its_rows_say(folder):
    with look.styled():
        ax = result_figures.frontiers(result_figures.read(folder, "tsallis")).axes[0]
    expected = [(0.3 + 0.1 * t + 0.04, 1 - 0.1 * t - 0.04) for t in (0.5, 1.0, 2.0)]
    assert any(np.allclose(line.get_xydata(), expected) for line in ax.get_lines() if len(line.get_xydata()) == 3)


def test_rows_are_read_with_their_missing_values(folder):
    found = result_figures.read(folder, "losses")
    assert len(found) == len(LOSSES) * 3
    half = [found[0].values[metric].half_width for metric in ("precision", "recall")]
    assert (found[0].seeds, *half) == (5, 0.01, None)
    assert result_figures.read(folder, "no_such_recipe") == []


def test_a_cell_that_is_no_number_is_refused_by_name(tmp_path):
    (tmp_path / "x.csv").write_text("recipe,name,precision,recall\ntsallis,NLL,high,0.3\n")
    with pytest.raises(ValueError, match=r"x\.csv: column precision holds 'high'"):
        result_figures.read(tmp_path, "tsallis")


def test_unknown_names_formats_and_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no figure is called tsalis; figures: PR_examples"):
        write_figures(tmp_path, only=["tsalis"])
    with pytest.raises(ValueError, match="no format is called gif"):
        write_figures(tmp_path, formats=["gif"])
    with pytest.raises(FileNotFoundError, match="is not a folder of results"):
        write_figures(tmp_path, folder=tmp_path / "nowhere")


def test_without_results_the_exact_figures_are_drawn_alone(tmp_path):
    with look.styled():
        assert {entry.name for entry in FIGURES if entry.figure(None) is not None} == EXACT
    assert write_figures(tmp_path, only=["tsallis"])[0].missing.startswith("needs the results of recipe `tsallis`")


NASTY = [
    r"$\frac{1}{2$",
    "$x$ and $y$",
    "a $ sign",
    r"already \$ escaped $",
    "\ud800 half a pair",
    "\x00\x1b[31m control",
    "_hidden from legends",
    "two\nlines",
    "漢字 😀",
    "x" * 500,
    "",
]


def test_strangers_names_are_drawn_as_they_are_written(tmp_path):
    with look.styled():
        figure, (ax,) = look.panels(height=6)
        for name in NASTY:
            ax.plot([0.1, 1], [1, 2], label=look.shown(name))
        ax.set(xscale="log")  # its ticks are formulas, and stay so
        figure.legend()
        look.caption(figure, f"Frontiers ({NASTY[0]}, {NASTY[4]}).")
        (svg,) = look.save(figure, tmp_path / "a", ["svg"])
    text = "".join(ET.parse(svg).getroot().itertext())
    for name in NASTY:
        plain = name.replace("\ud800", "\ufffd").replace("\x00\x1b", "\ufffd\ufffd").replace("\n", " ")
        assert plain[:50] in text
    assert "mathdefault" not in text


def test_static_figures_of_a_report_survive_the_names_of_runs_and_scores(tmp_path):
    name = "$\\frac{1}{2$ \ud800" + "k" * 500
    make_run(tmp_path / "run", "NLL", 0)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["experiment"]["name"] = name
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    for scores in (tmp_path / "run" / "scores").iterdir():
        content = json.loads(scores.read_text())
        content["records"] = [record | {"task": name} for record in content["records"]]
        scores.write_text(json.dumps(content))
    assert len(static.write(group([load(tmp_path / "run")]), tmp_path / "figures", formats=["svg"])) == 4
