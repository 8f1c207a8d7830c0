"""From run folders to what the page shows: seeds become lines, c-Div meets NLL at alpha t, samples fit their budget, warnings are said."""

import base64
import gzip
import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import MODELS, PROMPTS, STRANGE, TEMPERATURES, case, make_run, record, score_file

from widen.report import load, matched, warn
from widen.report import sample_panel as samples
from widen.report.lines import baseline, group, kinds_of
from widen.report.pr_curve_plots import shared_decodings
from widen.report.run_data import RunData, SampleCell
from widen.report.run_data import SampleText as Sample
from widen.report.run_report import report
from widen.report.training_curves import _thinned, training
from widen.run.against_nll import Mean, cdiv_order, mean_of
from widen.run.record import Record
from widen.sample import Decoding


@pytest.fixture(scope="module")
def runs(run_folders):
    return [load.load(path) for path in load.find_runs([run_folders])]


@pytest.fixture(scope="module")
def lines(runs):
    return {line.name: line for line in group(runs)}


def plain_run(name="NLL", *, loss="nll", seed=0, points=(), cells=(), log=(), env=None, folder="run", **model):
    experiment = {"name": name, "model": {"loss": loss, "seed": seed, "data": {"seed": seed}, "model": {}, **model}}
    records = [replace(r, loss=loss, seed=seed) for records in points for r in records]
    return RunData(name=folder, experiment=experiment, env=env or {}, log=log, records=records, samples=cells)


def point(decoding, precision=0.9, recall=0.5, *, ceiling=None, n=None):
    """The two records of a point; a number is a temperature."""
    spec = decoding if isinstance(decoding, str) else f"t={decoding}"
    about = {"task": "mulmod", "model": "m", "loss": "nll", "decoding": Decoding.parse(spec), "seed": 0}
    detail = {"score": {"kind": "exact"}}
    return [
        Record(**about, metric="precision", value=precision, detail=detail),
        Record(**about, metric="recall", value=recall, n=n, detail=detail | ({"ceiling": ceiling} if ceiling else {})),
    ]


# --- reading


def test_runs_are_found_below_a_folder_once_and_checkpoints_are_not_runs(tmp_path):
    make_run(tmp_path / "a" / "one", "NLL", 0)
    (tmp_path / "a" / "one" / "checkpoint").mkdir()
    (tmp_path / "a" / "one" / "checkpoint" / "config.json").write_text("{}")
    found = load.find_runs([tmp_path, tmp_path / "a", tmp_path / "a" / "one"])
    assert [path.name for path in found] == ["one"]


def test_a_folder_without_runs_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        load.find_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        load.find_runs([tmp_path / "nowhere"])


def test_a_run_is_read_with_its_scores_log_and_samples(runs):
    run = next(run for run in runs if run.name == "NLL-seed0")
    assert (run.loss, run.seed, len(run.log)) == ("nll", 0, 120)
    exact = [r for r in run.records if r.kind == "mulmod, exact" and r.metric == "precision"]
    assert {r.decoding.temperature for r in exact} >= set(TEMPERATURES)
    assert exact[0].value == pytest.approx(
        float(case("NLL", 0).precision(math.inf, exact[0].decoding.temperature)), abs=1e-12
    )
    (knn,) = (r for r in run.records if r.kind == "stories, knn" and r.metric == "recall")
    assert (knn.decoding, knn.value, knn.low, knn.high) == (Decoding(), 0.3, 0.2, 0.4)
    assert [(cell.label, cell.drawn) for cell in run.samples] == [("t=0.5", 60), ("t=1", 60)]
    assert [sample.text for sample in run.samples[0].samples[: len(STRANGE)]] == list(STRANGE)
    assert run.samples[0].samples[2].prompt == PROMPTS[2]


def test_a_torn_line_is_left_out_and_said_and_a_broken_config_is_refused(tmp_path):
    folder = make_run(tmp_path / "run", "NLL", 0)
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 600, "lo')
    run = load.load(folder)
    assert len(run.log) == 120
    assert run.notes == ["run/log.jsonl: line 121 is not JSON and is left out"]
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        load.load(folder)


def test_two_exact_scores_of_one_run_keep_apart(tmp_path):
    folder = make_run(tmp_path / "run", "NLL", 0)
    other = json.loads((folder / "scores" / "exact-0123.json").read_text())["records"]
    for one in other:
        one["detail"]["score"]["num_samples"] = 500
    (folder / "scores" / "exact-4567.json").write_text(score_file(other))
    kinds = kinds_of(group([load.load(folder)]))
    assert kinds == ["mulmod, exact (num_samples=20000)", "mulmod, exact (num_samples=500)", "stories, knn"]


def test_scores_of_an_earlier_version_are_refused_with_what_to_do(tmp_path):
    folder = make_run(tmp_path / "run", "NLL", 0)
    (folder / "scores" / "old.json").write_text('{"schema": 1, "kind": "exact", "points": []}')
    with pytest.raises(ValueError, match=r"old\.json has schema 1; .* remove .*old\.json and score again"):
        load.load(folder)


def test_every_decoding_of_a_temperature_is_a_point_of_its_own():
    """Three decodings at t = 1: three points, and none of them is averaged with another as if it were a seed."""
    decodings = {"t=1": (0.9, 0.5), "t=1,top_p=0.9": (0.95, 0.4), "t=1,min_p=0.1,order=temperature_last": (0.97, 0.3)}
    points = [point(spec, *values) for spec, values in decodings.items()]
    (line,) = group([plain_run(points=points, seed=0)])
    assert {p.decoding.spec: (p.precision.value, p.recall.value) for p in line.points} == decodings
    both = group([plain_run(points=points, seed=seed, folder=f"run{seed}") for seed in (0, 1)])[0]
    assert [(p.precision.count, p.precision.value) for p in both.points] == [
        (2, pytest.approx(decodings[p.decoding.spec][0])) for p in both.points
    ]
    html = report([plain_run(points=points)]).html()
    assert all(
        f'<td class="text long">{spec}</td>' in html or f'<td class="text">{spec}</td>' in html for spec in decodings
    )


def test_half_a_surrogate_pair_as_the_samples_file_writes_it_is_read(tmp_path):
    folder = make_run(tmp_path / "run", "NLL", 0)
    line = json.dumps({"kind": "sample", "prompt": "", "text": "\ud800"}, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    (folder / "samples" / "t1-x.jsonl").write_bytes(line + b"\n")
    assert load.load(folder).samples[0].samples[0].text == "\ud800"


def test_samples_say_whether_they_are_right_and_how_many_were_cut(tmp_path):
    folder = make_run(tmp_path / "run", "NLL", 0, samples=())
    header = {"kind": "header", "schema": 1, "settings": {"decoding": "t=1"}}
    drawn = [
        {"kind": "sample", "prompt": "a", "text": "1", "finish": "stop", "right": True},
        {"kind": "sample", "prompt": "a", "text": "2", "finish": "length", "right": False},
        {"kind": "sample", "prompt": "b", "text": "3", "finish": "length"},
        {"kind": "sample", "prompt": "c", "text": "4"},
        {"kind": "sample", "prompt": "d", "text": "5"},
    ]
    (folder / "samples" / "t1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (header, *drawn)))
    counts = {"b": [9, 0], "c": [9, 9], "d": [9, 4]}
    score = record("NLL", 0, "precision", 0.5, task="mathqa", detail={"counts": counts})
    (folder / "scores" / "programs.json").write_text(score_file([score]))
    (found,) = load.load(folder).samples
    assert (found.drawn, found.cut) == (5, 2)
    assert [sample.note for sample in found.samples] == [
        "right",
        "wrong, cut at max-tokens",
        "wrong, cut at max-tokens",
        "right",
        "4 of 9 answers to this prompt are right",
    ]


# --- seeds


QUANTILES = {2: 12.706204736432095, 3: 4.302652729911275, 5: 2.7764451051977987, 10: 2.2621571627409915}


@pytest.mark.parametrize("count", QUANTILES)
def test_the_interval_over_seeds_is_students(count):
    values = np.random.default_rng(count).random(count).tolist()
    found = mean_of([point(1.0, value)[0] for value in values])
    spread = math.sqrt(sum((x - sum(values) / count) ** 2 for x in values) / (count - 1))
    assert found.value == pytest.approx(sum(values) / count, abs=1e-12)
    assert found.half_width == pytest.approx(QUANTILES[count] * spread / math.sqrt(count), rel=1e-9)


def test_runs_of_one_name_are_seeds_of_one_line(lines):
    assert {name: len(line.runs) for name, line in lines.items()} == {
        "NLL": 3,
        "TruncR 0.1": 3,
        "c-Div 1.4": 3,
        "lambda-PR 0.1": 1,
    }
    at_one = next(p for p in lines["c-Div 1.4"].points if p.kind == "mulmod, exact" and p.temperature == 1.0)
    values = [float(case("c-Div 1.4", seed).precision(math.inf, 1.0)) for seed in range(3)]
    assert at_one.precision.value == pytest.approx(np.mean(values), abs=1e-12)
    assert at_one.precision.count == 3
    single = next(p for p in lines["lambda-PR 0.1"].points if p.kind == "mulmod, exact")
    assert single.precision.half_width is None


def test_one_name_for_two_settings_is_told_apart_by_what_differs():
    rare, common = (plain_run(seed=s, data={"under_representation": b, "seed": s}) for s, b in ((0, 0.1), (1, 0.3)))
    assert [line.name for line in group([rare, common])] == [
        "NLL (under_representation=0.1)",
        "NLL (under_representation=0.3)",
    ]


def test_a_model_and_the_start_that_it_grew_from_are_told_apart_by_the_start():
    start = {"model": "smollm2", "epochs": 2.0, "batch_size": 64}
    grown = plain_run("nll", folder="grown", **start, after=start | {"loss": "nll", "after": None})
    names = [line.name for line in group([plain_run("nll", folder="start", **start, after=None), grown])]
    assert names == ["nll (from the start)", "nll (after nll)"]


def test_nll_comes_first_so_that_its_colour_is_the_same_on_every_page_and_static_figure():
    lines = group([plain_run("c-Div", loss="cdiv:alpha=2.0"), plain_run()])
    assert [(line.name, line.style) for line in lines] == [("NLL", 0), ("c-Div", 1)]


def test_the_papers_points_stand_beside_ours(lines):
    (published,) = lines["c-Div 1.4"].published
    assert (published.precision, published.recall) == (0.542, 0.619)
    assert lines["NLL"].published == []


# --- matched temperatures


@pytest.mark.parametrize(
    ("loss", "alpha"),
    [
        ("cdiv:alpha=1.4,cap=10000.0", 1.4),
        ("nll:steps=3000 then cdiv:alpha=2.0", 2.0),
        ("cdiv:cap=9,alpha=0.5", 0.5),
        ("gold", 0.5),
        ("nll", None),
        ("tailr:gamma=0.1 * cdiv:alpha=2", None),
    ],
)
def test_the_order_of_c_div_is_read_from_its_spec(loss, alpha):
    assert cdiv_order(loss) == alpha


def test_c_div_at_t_is_paired_with_nll_at_alpha_t(lines):
    nll = baseline(lines["c-Div 1.4"], list(lines.values()))
    assert nll.name == "NLL"
    found = matched.matches(lines["c-Div 1.4"], nll, kind="mulmod, exact")
    assert [point.temperature for point, _, _ in found] == list(TEMPERATURES)
    for point, at, match in found:
        assert at == pytest.approx(1.4 * point.temperature)
        assert match.source == "scored"
        truth = np.mean([float(case("NLL", seed).precision(math.inf, at)) for seed in range(3)])
        assert match.precision.value == pytest.approx(truth, abs=1e-9)


def test_between_scored_temperatures_nll_is_interpolated_in_log_t_and_beyond_them_it_is_named_as_not_scored():
    nll = group([plain_run(points=[point(1.0, 0.9, 0.4), point(4.0, 0.5, 0.6)])])[0]
    cdiv = group([plain_run("c-Div", loss="cdiv:alpha=2.0", points=[point(1.0), point(3.0)])])[0]
    (_, _, inside), (_, at, beyond) = matched.matches(cdiv, nll, kind="mulmod, exact")
    assert (inside.precision.value, inside.recall.value) == pytest.approx(
        (0.7, 0.5)
    )  # 2 lies half way from 1 to 4 in log t
    assert (inside.source, at, beyond) == ("interpolated", 6.0, None)
    (section,) = matched.matched_temperatures([nll, cdiv])
    assert [(row[2], row[-1]) for row in section.parts[1].rows] == [(2.0, "interpolated"), (6.0, "not scored")]


def test_there_is_no_baseline_on_other_data():
    cdiv = group([plain_run("c-Div", loss="cdiv:alpha=2.0", data={"b": 0.1})])[0]
    nll = group([plain_run(data={"b": 0.3})])[0]
    assert baseline(cdiv, [cdiv, nll]) is None


def test_a_fine_tuned_model_is_compared_with_nll_of_the_same_training_and_not_with_its_own_start():
    def run(name, loss, *, after, points):
        model = {"loss": loss, "seed": 0, "model": "lm", "train": {"path": "x"}, "epochs": 1, "after": after}
        records = [r for two in points for r in two]
        return RunData(name=name, experiment={"name": name, "model": model}, records=records)

    start = {"loss": "nll", "epochs": 3}
    lines = group(
        [
            run("start", "nll", after=None, points=[point(1.4)]),
            run("c-Div", "cdiv:alpha=1.4", after=start, points=[point(1.0)]),
            run("NLL", "nll", after=start, points=[point(1.4)]),
        ]
    )
    cdiv = next(line for line in lines if line.name == "c-Div")
    assert baseline(cdiv, lines).name == "NLL"
    assert baseline(cdiv, [line for line in lines if line.name != "NLL"]) is None


def test_the_baseline_is_the_nll_line_that_was_trained_alike():
    def run(name, loss, clip):
        return RunData(
            name=name, experiment={"name": name, "model": {"loss": loss, "data": {}, "model": {}, "clip": clip}}
        )

    lines = group([run("NLL", "nll", None), run("NLL, clipped", "nll", 1.0), run("c-Div", "cdiv:alpha=2.0", 1.0)])
    assert baseline(lines[2], lines).name == "NLL, clipped"
    assert baseline(lines[2], [lines[0], lines[2]]) is None


def test_the_slider_has_the_temperatures_that_most_lines_share(lines):
    assert [d.temperature for d in shared_decodings(list(lines.values()))] == list(TEMPERATURES)


# --- warnings


def words_of(found):
    return "\n".join(one for said in found.values() for one in said)


def test_every_trap_in_the_runs_is_said(runs):
    said = words_of(warn.warnings(group(runs)))
    assert "Single runs, without an interval over seeds: lambda-PR 0.1." in said
    assert "different versions: torch 2.12.0 and 2.13.0" in said
    assert "delta is 3e-05 for 8 target tokens" in said


def test_duplicates_ceilings_repeats_starvation_and_lost_losses_are_said():
    cells = [SampleCell(label="t=0.1", temperature=0.1, drawn=1000, distinct=3, samples=(), cut=600)]
    log = [
        {"step": 7, "loss": math.nan},
        {"step": 8, "loss": 1.0, "weight_zero_share": 0.999, "warning": "only 0.1 % count"},
    ]
    run = plain_run(points=[point(1.0, recall=0.899, ceiling=0.9, n=500)], cells=cells, log=log)
    other = plain_run("other", seed=1, points=[point(1.0, ceiling=0.9, n=20_000)])
    kept, said = warn.without_duplicates([run, plain_run(folder="again"), other])
    assert (len(kept), said) == (2, ["again is the same model and seed as run: counted once."])
    text = words_of(warn.warnings(group(kept)))
    for words in (
        "at its ceiling of 0.900",
        "only 3 of 1000 samples are different",
        "max-tokens cut 600 of 1000 samples",
        "the loss was nan at step 7",
        "99.90% of the target tokens",
        "different numbers of samples (500, 20000)",
    ):
        assert words in text
    assert "ceiling" not in words_of(warn.warnings(group([other])))


# --- training


def test_thinning_a_log_keeps_every_spike():
    rows = [{"step": float(i), "loss": 1.0 + (i in (137, 2222)) * 9} for i in range(5000)]
    kept = _thinned(rows, 200)
    assert len(kept) <= 200
    assert {row["step"] for row in kept if row["loss"] > 5} == {137, 2222}


def test_every_logged_number_has_a_figure_with_one_line_a_run(lines):
    (section,) = training(list(lines.values()))
    (choice,) = section.parts
    assert list(choice.figures)[:3] == ["loss", "nll", "grad_norm"]
    assert {"weight_mean", "weight_max", "weight_ess", "weight_zero_share"} <= set(choice.figures)
    assert len(choice.figures["nll"].figure["data"]) == 10


# --- samples


def opened(section):
    """What the page would see: one list of cells a run."""
    return [json.loads(gzip.decompress(base64.b64decode(blob))) for blob in section.parts[0].blobs.values()]


def test_the_panel_opens_on_a_decoding_of_every_model_that_it_shows():
    def drawn(name, loss, *temperatures):
        cells = [
            SampleCell(label=f"t={t:g}", temperature=t, drawn=1, distinct=1, samples=[Sample("p", "x")])
            for t in temperatures
        ]
        return plain_run(name, loss=loss, cells=cells, folder=name)

    lines = group([drawn("NLL", "nll", 0.56, 0.98), drawn("c-Div", "cdiv:alpha=1.4", 0.4, 0.7)])
    data = samples.samples(lines)[0].parts[0].data
    assert [data["labels"][i] for i in data["chosen_labels"]] == ["t=0.7", "t=0.98"]


def test_packed_samples_come_back_as_they_were(lines):
    (packed,) = samples.samples(list(lines.values()))
    run = opened(packed)[[r["label"] for r in packed.parts[0].data["runs"]].index("NLL, seed 0")]
    texts = {text for _, text, *_ in run[0]}
    assert set(STRANGE) <= texts
    assert set(packed.parts[0].data["prompts"]) == set(PROMPTS)
    assert "480 of 480 samples are kept" in packed.text[1]


def cell(prompts, each, length=20, label="t=1"):
    held = [Sample(f"prompt {i % prompts}", f"{i} " + "w" * length) for i in range(prompts * each)]
    return SampleCell(label=label, temperature=1.0, drawn=len(held), distinct=len(held), samples=held)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(prompts=st.integers(1, 40), each=st.integers(1, 40), keep=st.integers(1, 80))
def test_kept_samples_are_as_many_as_asked_and_go_prompt_by_prompt(prompts, each, keep):
    one = cell(prompts, each)
    order = {f"prompt {i}": i for i in range(prompts)}
    kept = samples.chosen(one, order, keep)
    assert len(kept) == len(set(kept)) == min(keep, prompts * each)
    counts = [sum(s.prompt == p for s in kept) for p in order]
    assert all(b <= a for a, b in pairwise(counts))
    assert max(counts) - min(counts) <= samples.TOGETHER or keep >= prompts * each


def test_at_least_fifty_a_cell_stay_within_any_budget_and_the_rest_is_said():
    rng = np.random.default_rng(0)
    noise = ["".join(map(chr, rng.integers(33, 126, 3000))) for _ in range(90)]
    held = [Sample("p", text) for text in noise]
    cells = [SampleCell(label="t=1", temperature=1.0, drawn=2000, distinct=2000, samples=held)]
    (packed,) = samples.samples(group([plain_run(cells=cells)]), budget=40_000)
    (run,) = opened(packed)
    assert len(run[0]) == samples.FEWEST
    assert sum(map(len, packed.parts[0].blobs.values())) <= 40_000
    assert all(whole == 3000 for *_, whole in run[0])
    assert "50 of 2,000 samples are kept" in packed.text[1]
    assert "are cut, and say so" in packed.text[1]


# --- the page as a whole


def test_the_page_opens_with_a_verdict_that_says_what_the_scores_mean(report_page):
    html = report_page.read_text()
    first = html[html.index("<section") : html.index("</section>")]
    assert '<h2 id="verdict-title">Verdict</h2>' in first
    assert "Most recall with precision at least 0.90" in first
    assert "Precision is the probability that a sample is right" in first


def test_there_is_no_winner_where_every_score_is_zero():
    nothing = [
        plain_run(name, loss=loss, points=[point(1.0, 0.0, 0.0)]) for name, loss in (("a", "nll"), ("b", "gold"))
    ]
    assert report(nothing).sections[0].text[0].startswith("No winner: every model has recall 0")


def test_a_page_of_a_run_without_anything_says_what_is_missing():
    html = report([plain_run()]).html()
    for words in (
        "No run has a score",
        "No run has a training log",
        "No run has samples",
        "without an interval over seeds",
    ):
        assert words.lower() in html.lower()


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="no runs to report on"):
        report([])


def test_every_model_of_the_fixture_has_its_own_setting():
    assert len({loss for loss, *_ in MODELS.values()}) == len(MODELS)


def test_error_bars_of_the_static_figure_end_at_0_and_1():
    from widen.report.paper_figures.look import _arms

    means = [Mean(value=value, half_width=bar) for value, bar in ((0.02, 0.1), (0.5, 0.1), (0.97, 0.1), (1.0, None))]
    np.testing.assert_allclose(_arms(means), [[0.02, 0.1, 0.1, 0.0], [0.1, 0.1, 0.03, 0.0]])
    assert _arms(means[3:]) is None
