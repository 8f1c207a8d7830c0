"""Run folders are read with their scores, logs and samples; what cannot be read is named."""

import json
import math

import pytest
from made_runs import PROMPTS, STRANGE, TEMPERATURES, case, make_run, plain_run, point, score_file

from widen.report import load
from widen.report.lines import group, kinds_of
from widen.report.run_report import report
from widen.run.scoring.marks import write_marks
from widen.sample import Decoding, Sample


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
    ends = ("stop", "length", "length")
    drawn = [Sample(prompt="a", index=i, text=str(i), finish=end) for i, end in enumerate(ends)]
    rows = [header, *({"kind": "sample", **vars(one)} for one in drawn)]
    path = folder / "samples" / "t1.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_marks(path, [(drawn[0], True), (drawn[1], False)])
    (found,) = load.load(folder).samples
    assert (found.drawn, found.cut) == (3, 2)
    assert [one.note for one in found.samples] == ["right", "wrong, cut at max-tokens", "cut at max-tokens"]
