"""Every recipe on texts at tiny size, end to end; the paper's numbers in them; the figures drawn from the tables that they leave."""

import gc
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from widen.cli.__main__ import main
from widen.report.load import find_runs, load
from widen.report.paper_figures import write_figures
from widen.run import recipe, runner
from widen.run.against_nll import matched_temperature
from widen.run.experiment import Experiment, experiment_from
from widen.run.finetune import FineTune
from widen.run.runner import run as run_texts
from widen.run.score_settings import KnnScore, ProgramScore, SupportScore
from widen.run.value import to_json
from widen.sample import Decoding
from widen_recipes import alpaca, codecontests, mathqa, mathqa_gain, sparsity, writing_prompts

SPECS = [
    spec
    for spec in recipe.summaries("widen_recipes")
    if spec.partition(":")[0] in ("alpaca", "codecontests", "mathqa", "mathqa_gain", "sparsity", "writing_prompts")
]
PROGRAMS = [spec for spec in SPECS if "mathqa" in spec or "codecontests" in spec]
PARTS_OF_OTHERS = {"mathqa:five_models", "mathqa:tradeoff_precision", "sparsity:support_size"}
"""Their experiments are also those of other recipes, which run."""
RUN = [
    pytest.param(spec, marks=pytest.mark.sandbox) if spec in PROGRAMS else spec
    for spec in SPECS
    if spec not in PARTS_OF_OTHERS
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One folder for all: recipes share the models they have in common."""
    gc.freeze()  # trainers collect garbage twice each: what the other tests left lying about would be looked at every time
    yield tmp_path_factory.mktemp("runs")
    gc.unfreeze()


def tiny(spec):
    module, _, function = spec.partition(":")
    return recipe.find("widen_recipes", f"{module}:tiny:{function}")


@pytest.mark.parametrize("spec", RUN)
def test_the_recipe_runs_at_tiny_size(spec, root):
    experiments = tiny(spec)
    rows = run_texts(spec, experiments, root, command="a test")
    assert {row.name for row in rows} == {one.name for one in experiments}
    for row in rows:
        assert all(0 <= mean.value <= 1 for name, mean in row.values.items() if name != "density")
    text = (root / f"{spec.replace(':', '_')}.csv").read_text()
    assert text.startswith("# command: a test\n# made with: {'python'")
    assert text.count(f"\n{spec},") >= len(rows)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("spec", "figure"),
    [
        ("writing_prompts:writing_prompts", "WPPRCurves"),
        ("codecontests:codecontests", "prcode"),
        ("sparsity:support_size", "support"),
    ],
)
def test_the_figure_is_drawn_from_the_table_that_the_recipe_leaves(spec, figure, root, tmp_path):
    run_texts(spec, tiny(spec), root, command="a test")
    (done,) = write_figures(tmp_path, folder=root, only=[figure], formats=["svg"])
    assert done.missing == ""
    drawn = done.paths[0].read_text()
    names = {
        "WPPRCurves": ("TruncR 0.25", "c-Div 1.4"),
        "prcode": ("Llama3.1-8B Instruct", "Llama3.1-70B Instruct"),
        "support": ("mass 0.9", "mass 0.99"),
    }
    for name in names[figure]:
        assert f">{name}<" in drawn


def test_a_page_can_be_made_of_the_runs(root):
    run_texts("x", tiny("writing_prompts:decoding"), root, command="a test")
    runs = [load(path) for path in find_runs([root])]
    records = [r for run in runs for r in run.records if r.kind == "writing_prompts, knn"]
    assert {r.decoding.spec for r in records} >= {"t=1", "t=1,top_p=0.1"}
    assert all(run.samples for run in runs if any(r.decoding for r in run.records))


@pytest.mark.parametrize("spec", SPECS)
def test_every_recipe_says_what_the_paper_prints_and_what_it_leaves_open_and_goes_through_json(spec):
    for one in recipe.find("widen_recipes", spec):
        assert isinstance(one, Experiment)
        assert one.not_in_paper
        assert all(published.where for published in one.published)
        assert one.published
        decodings = {setting.decoding.spec for setting in one.settings}
        assert {p.decoding for p in one.published if p.values} <= decodings | {"t=1"}
        assert experiment_from(json.loads(json.dumps(to_json(one)))) == one


def printed(experiments):
    """What the paper prints, in percent, by name and task and model."""
    found = {}
    for one in experiments:
        for published in one.published:
            key = (one.name, one.prompts.task, one.base, published.decoding)
            found[key] = tuple(round(100 * published.values[name], 6) for name in ("precision", "recall"))
    return found


def test_table_pr_wp_carries_the_papers_numbers():
    rows = {one.name: one.published[0].values for one in writing_prompts.table()}
    assert {name: [100 * v["precision"], 100 * v["recall"], v["mauve"]] for name, v in rows.items()} == {
        name: pytest.approx(values)
        for name, values in {
            "NLL": [81.4, 8.9, 0.104],
            "Trunc 0.25": [85.5, 8.9, 0.074],
            "TruncR 0.25": [85.5, 9.3, 0.073],
            "GOLD": [99.3, 0.2, 0.005],
            "c-Div 1.4": [54.2, 11.9, 0.068],
            "TaiLr 1e-5": [83.9, 9.3, 0.087],
            "lambda-PR 0.1, 1e-5": [81.3, 12.6, 0.096],
        }.items()
    }


def test_table_pr_wp_mathqa_carries_the_papers_numbers():
    olmo, llama, small = "OLMo-1B-hf", "Llama-3.1-8B", "Llama-3.2-3B"
    wp, mq = "writing_prompts", "mathqa_python"
    assert printed(mathqa.five_models()) == {
        ("NLL", wp, olmo, "t=1"): (81.4, 8.9),
        ("TruncR 0.25", wp, olmo, "t=1"): (85.5, 9.3),
        ("c-Div 1.4", wp, olmo, "t=1"): (54.2, 11.9),
        ("lambda-PR 0.1, 1e-5", wp, olmo, "t=1"): (81.3, 12.6),
        ("NLL", wp, llama, "t=0.5"): (83.3, 4.4),
        ("c-Div 1.4", wp, llama, "t=0.5"): (82.2, 12.6),
        ("lambda-PR 0.5, 1e-7", wp, llama, "t=0.5"): (57.1, 26.9),
        ("NLL", wp, small, "t=1"): (77.4, 8.1),
        ("c-Div 1.3", wp, small, "t=1"): (72.5, 17.5),
        ("lambda-PR 0.9, 1e-5", wp, small, "t=1"): (59.9, 19.0),
        ("NLL", mq, olmo, "t=1"): (42.0, 36.6),
        ("TruncR 0.1", mq, olmo, "t=1"): (29.8, 43.3),
        ("c-Div 1.4", mq, olmo, "t=1"): (30.1, 46.1),
        ("lambda-PR 0.1, 1e-7", mq, olmo, "t=1"): (6.4, 48.1),
        ("NLL", mq, llama, "t=0.5"): (8.8, 39.0),
        ("c-Div 1.4", mq, llama, "t=0.5"): (8.2, 43.4),
        ("lambda-PR 0.1, 1e-5", mq, llama, "t=0.5"): (8.3, 42.1),
    }


def test_table_pr_tradeoff_carries_the_papers_numbers_and_nll_is_sampled_where_it_matches_cdiv():
    olmo, llama, mq = "OLMo-1B-hf", "Llama-3.1-8B", "mathqa_python"
    assert printed(mathqa.tradeoff_recall()) == {
        ("NLL", mq, olmo, "t=1.6"): (20, 47),
        ("c-Div 1.4", mq, olmo, "t=1"): (21, 50),
        ("NLL", mq, llama, "t=1"): (6.7, 49),
        ("c-Div 1.4", mq, llama, "t=0.8"): (8.7, 49),
    }
    assert printed(mathqa.tradeoff_precision()) == {
        ("NLL", mq, llama, "t=1.6"): (10, 10),
        ("c-Div 1.4", mq, llama, "t=1"): (10, 14),
    }
    for experiments in (mathqa.tradeoff_recall(), writing_prompts.writing_prompts(), mathqa_gain.gain()):
        nll, cdiv = (next(one for one in experiments if one.name == name) for name in ("NLL", "c-Div 1.4"))
        at = {setting.decoding.temperature for setting in nll.settings}
        assert {matched_temperature(cdiv.loss, setting.decoding.temperature) for setting in cdiv.settings} <= at


def test_the_sparsity_table_and_the_decoding_table_carry_the_papers_numbers():
    shares = [[100 * share for share in one.published[0].values.values()] for one in sparsity.table()]
    assert shares == [pytest.approx([0.03, 0.08, 8.08]), pytest.approx([3.86, 7.80, 24.9])]
    first = writing_prompts.decoding()[0]
    assert [p.decoding for p in first.published] == list(first.decoding)
    assert {p.where for p in first.published} == {"tab:appendix-decoding"}
    assert "without" in first.not_in_paper
    assert {
        Decoding.parse(p.decoding).name: (100 * p.values["precision"], 100 * p.values["recall"])
        for p in first.published
    } == {
        "t1": pytest.approx((84.8, 8.6)),
        "t1_top_p0.1": pytest.approx((99.7, 0.1)),
        "t1_top_p0.5": pytest.approx((99.6, 0.1)),
        "t1_top_p0.8": pytest.approx((88.6, 3.3)),
        "t1_top_p0.9": pytest.approx((80.5, 5.8)),
        "t1_kl1_bos": pytest.approx((75.7, 6.1)),
        "t1_kl3_bos": pytest.approx((80.0, 6.8)),
        "t1_kl5_bos": pytest.approx((83.1, 6.9)),
        "t1_kl10_bos": pytest.approx((84.4, 8.6)),
    }


def test_models_are_trained_the_papers_way():
    for one in [*writing_prompts.table(), *writing_prompts.llama3b(), *alpaca.stories(), *mathqa.olmo1b()]:
        model = one.model
        assert (model.lr, model.schedule, model.warmup_steps) == (1e-6, "constant_with_warmup", 1000)
        assert (model.batch_size, model.epochs, model.lora) == (8, 3, None)
        if model.loss == "nll":
            assert model.after is None
        else:
            assert (model.after.loss, model.after.epochs, model.after.seed) == ("nll", 1, 0)
    assert {one.model.after.key for one in writing_prompts.table() if one.model.after} == {
        one.model.after.key for one in writing_prompts.table() if one.model.after and one.seed == 0
    }


def test_scores_are_the_papers():
    knn, programs = writing_prompts.table()[0].score, mathqa.olmo1b()[0].score
    assert knn == KnnScore(embedder="gpt2-large", samples=2000, k=4, mauve=True)
    assert isinstance(programs, ProgramScore)
    assert programs.ks == (1, 10, 100)
    assert isinstance(sparsity.table()[0].score, SupportScore)
    temperatures = [s.decoding.temperature for s in codecontests.codecontests()[0].settings]
    assert (min(temperatures), max(temperatures)) == (0.2, 2.0)
    temperatures = [s.decoding.temperature for s in writing_prompts.writing_prompts()[-1].settings]
    assert (min(temperatures), max(temperatures)) == (0.1, 1.8)


def test_figure_and_table_sample_the_same_models():
    table, figure = (
        {one.model.key for one in make()} for make in (writing_prompts.table, writing_prompts.writing_prompts)
    )
    assert table == figure
    nll = {one.model.key for one in writing_prompts.table() if one.name == "NLL"}
    assert {one.model.key for one in writing_prompts.decoding()} == nll


def test_rlef_models_take_part_when_they_are_named(monkeypatch):
    monkeypatch.delenv("WIDEN_RLEF_8B", raising=False)
    monkeypatch.delenv("WIDEN_RLEF_70B", raising=False)
    assert [one.name for one in codecontests.codecontests()] == ["Llama3.1-8B Instruct", "Llama3.1-70B Instruct"]
    monkeypatch.setenv("WIDEN_RLEF_8B", "my/rlef")
    assert [one.model for one in codecontests.codecontests() if "RLEF" in one.name] == ["my/rlef"]


def test_gain_starts_every_loss_and_seed_from_one_nll_model(monkeypatch):
    monkeypatch.setenv("WIDEN_SMOLLM2", "smol/")
    monkeypatch.setenv("WIDEN_MATHQA_GAIN", "data")
    experiments = mathqa_gain.gain()
    assert len(experiments) == 9
    (start,) = {one.model.after for one in experiments}
    assert (start.model, start.train.path, start.epochs) == ("smol", "data/gain_train.jsonl", 2)
    assert len({one.model.key for one in experiments}) == 9
    assert {one.prompts.path for one in experiments} == {"data/gain_test.jsonl"}
    assert sum(len(one.decoding) for one in experiments) == 27


def test_gain_without_its_paths_says_what_to_set(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("WIDEN_SMOLLM2", raising=False)
    monkeypatch.setenv("WIDEN_MATHQA_GAIN", str(tmp_path))
    assert main(["run", "mathqa_gain:gain", "--out", str(tmp_path / "runs")]) == 2
    assert "from WIDEN_SMOLLM2: set it to a path" in capsys.readouterr().err


@pytest.mark.slow
def test_train_and_sample_run_where_rich_datasets_trl_and_plotly_are_missing_and_score_prints_the_table(
    tmp_path, capsys
):
    """As on a machine that has the GPU and little else; the second half is another process, without the checkpoint."""
    one = tiny("alpaca:stories")[1]
    assert isinstance(one.model, FineTune)
    (tmp_path / "mine.json").write_text(json.dumps(to_json(replace(one, model=replace(one.model, after=None)))))
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['rich', 'datasets', 'trl', 'gguf', 'plotly', 'matplotlib']));"
        "from widen.cli.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["run", str(tmp_path / "mine.json"), "--out", str(tmp_path / "runs"), "--stages"]
    done = subprocess.run([sys.executable, "-c", code, *arguments, "train,sample"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--stages score" in done.stdout.splitlines()[-1]
    for weights in (tmp_path / "runs").glob("*/checkpoint/model.safetensors"):
        weights.unlink()
    assert main([*arguments, "score"]) == 0
    out = capsys.readouterr().out
    assert "c-Div 1.4" in out
    assert "[0.822]" in out  # what the paper prints
    assert (tmp_path / "runs" / "mine.csv").exists()


def test_a_second_run_of_a_tiny_recipe_makes_nothing_again(root, monkeypatch):
    rows = run_texts("x", tiny("alpaca:stories"), root, command="a test")
    for name in ("sample", "score_neighbours", "fine_tune"):
        monkeypatch.setattr(runner, name, lambda *a, **k: pytest.fail("it was made again"))
    assert run_texts("x", tiny("alpaca:stories"), root, command="a test") == rows
