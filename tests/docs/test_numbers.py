"""Numbers in the log and in the benchmarks are those of the kept tables."""

import csv
import re
from pathlib import Path

import pytest

import widen_recipes
from widen.run.table import read_csv
from widen.sample import Decoding

ROOT = Path(__file__).parents[2]
RESULTS = Path(widen_recipes.__file__).parent / "results"
LOG = (ROOT / "docs" / "log.md").read_text(encoding="utf-8").replace("**", "")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def three_digits(value):
    return f"{value:.3f}".replace("0.", ".")


def best_recalls(recipe):
    """Of each training at the three levels, as the pages write them: temperature alone | any decoding."""
    lines = (RESULTS / f"mulmod_{recipe}_best.csv").read_text(encoding="utf-8").splitlines()
    found = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        found.setdefault(row["name"], {}).setdefault(row["family"], []).append(three_digits(float(row["recall"])))
    shown = {name: [" / ".join(family) for family in families.values()] for name, families in found.items()}
    return {name: " | ".join(cells) for name, cells in shown.items()}


@pytest.mark.parametrize(("recipe", "trainings"), [("joint", 6), ("rivals", 10)])
def test_a_table_of_best_recalls_in_the_log_is_the_kept_one(recipe, trainings):
    found = best_recalls(recipe)
    assert len(found) == trainings
    for name, cells in found.items():
        assert f"| {name} | {cells} |" in LOG


@pytest.mark.parametrize("name", ["gem", "tofu", "focal", "smooth", "entropy", "eaft", "dco"])
def test_the_page_of_a_rival_shows_its_best_recalls_beside_those_of_nll(name):
    page, found = (ROOT / "docs/reference/rivals" / f"{name}.md").read_text(encoding="utf-8"), best_recalls("rivals")
    assert f"| `{name}` | {found[f'{name}, norm 1']} |\n| `nll` | {found['NLL, norm 1']} |" in page


def test_the_log_compares_precisions_of_rivals_as_the_kept_table_does():
    rows = {(row.name, row.decoding): row for row in read_csv(RESULTS / "mulmod_rivals.csv")}
    log = " ".join(LOG.split())

    def precision(name, decoding="t=1", *, interval=False):
        value = rows[f"{name}, norm 1", decoding].values["precision"]
        text = three_digits(value.value)
        return f"{text} ± {three_digits(value.half_width)}" if interval else text

    def recall(name, decoding):
        return three_digits(rows[f"{name}, norm 1", decoding].recall)

    flat = [precision(name) for name in ("focal", "tofu", "smooth", "NLL", "eaft")]
    for text in (
        "precision {}, {} and {} at t = 1; NLL {}), and min-p takes it away. EAFT has precision {}".format(*flat),
        f"under heat: {precision('eaft', 't=2')} at t = 2, NLL {precision('NLL', 't=2')}",
        f"it has precision {precision('gem', 't=0.7', interval=True)} and recall {recall('gem', 't=0.7')}; "
        f"NLL has {precision('NLL', interval=True)} and {recall('NLL', 't=1')}",
        f'the precision of "each once" is {precision("NLL, each once", "t=0.1")}, and that of NLL is {precision("NLL", "t=0.1")}',
    ):
        assert text in log


def test_the_page_on_decodings_shows_the_kept_recalls_of_nll():
    lines = (RESULTS / "mulmod_rivals_best.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    alone, joint = (row for row in rows if (row["name"], float(row["level"])) == ("NLL, norm 1", 0.9))
    page = " ".join((ROOT / "docs/how_to/decoding.md").read_text(encoding="utf-8").split())
    first, second = (Decoding.parse(row["decoding"]).in_words for row in (alone, joint))
    recalls = [three_digits(float(row["recall"])) for row in (alone, joint)]
    assert f"The best temperature alone (`{first}`) has recall {recalls[0]}. `{second}` has recall {recalls[1]}" in page


def test_the_matched_temperatures_of_the_log_are_the_kept_ones():
    rows = {(row.name, round(row.temperature, 4)): row for row in read_csv(RESULTS / "mulmod_tsallis_stable.csv")}
    for alpha, t in ((1.75, 1), (2, 1), (1.5, 0.5)):
        mine, theirs = rows[f"c-Div {alpha:g}, norm 1", t], rows["NLL, norm 1", alpha * t]
        first, second = ("/".join(map(three_digits, (one.precision, one.recall))) for one in (mine, theirs))
        shown = f"| α = {alpha:g} at t = {f'{t:g}'.removeprefix('0')}: {first} | t = {f'{alpha * t:g}'.removeprefix('0')}: {second}"
        assert shown in LOG


@pytest.mark.parametrize("table", ["plain", "peers"])
def test_the_tables_of_heads_are_those_of_the_result_file(table):
    text = (ROOT / "benchmarks" / "results" / "head_nvidia-h200.md").read_text(encoding="utf-8")
    columns = {
        "plain": ("roof", "widen c-Div", "widen linear_logprob", "Liger NLL"),
        "peers": ("widen c-Div", "eager c-Div", "compiled c-Div", "CCE NLL"),
    }[table]
    first = {"plain": r"[\d.]+ ms", "peers": r"[\d.]+x \("}[table]
    shown = re.findall(rf"^\| ((?:Llama|OLMo|SmolLM2)[^|]+) \| ({first}.*) \|$", BENCHMARKS, flags=re.M)
    assert len(shown) == {"plain": 6, "peers": 3}[table]
    for head, cells in shown:
        title = f"\n## {'peers, ' if table == 'peers' else ''}{head}\n"
        section = text.split(title)[1].split("\n## ")[0]
        for name, cell in zip(columns, cells.split(" | "), strict=True):
            ms, ratio, megabytes = re.search(
                rf"^\| {re.escape(name)} \| ([\d.]+) \| ([\d.]+) .*\| ([\d.]*)\s*\|$", section, flags=re.M
            ).groups()
            if name == "roof":
                assert float(cell.removesuffix(" ms")) == pytest.approx(float(ms), abs=0.0501)
                continue
            assert float(re.match(r"([\d.]+)x", cell)[1]) == pytest.approx(float(ratio), abs=0.00501)
            if memory := re.search(r"\(([\d.]+) (GB|MB)\)", cell):
                value = float(megabytes) / (1000 if memory[2] == "GB" else 1)
                assert float(memory[1]) == pytest.approx(value, abs=0.0501 if memory[2] == "GB" else 0.51)


def ratio_in(file, head, name):
    """A row's time over the three products, in a result file of `bench_head_losses.py`."""
    text = (ROOT / "benchmarks" / "results" / f"{file}_nvidia-h200.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {head}\n")[1].split("\n## ")[0]
    return float(re.search(rf"^\| {re.escape(name)} \| [\d.]+ \| ([\d.]+) ", section, flags=re.M)[1])


LOGITS, EXPONENTIALS = "head_losses", "head_losses_exponentials"


def test_the_table_of_exponentials_is_that_of_the_result_files_and_says_which_goals_are_met():
    shown = re.findall(
        r"^\| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| (logits|exponentials) \| ([\d.]+) \| (yes|no) \|$",
        BENCHMARKS,
        flags=re.M,
    )
    assert len(shown) == 4
    for head, logits, exponentials, taken, goal, met in shown:
        found = {"logits": float(logits), "exponentials": float(exponentials)}
        assert found["logits"] == ratio_in(LOGITS, head, "cdiv:alpha=1.4")
        assert found["exponentials"] == ratio_in(EXPONENTIALS, head, "cdiv:alpha=1.4")
        assert met == ("yes" if found[taken] <= float(goal) else "no")


def test_the_table_of_losses_is_that_of_the_file_of_what_the_head_takes():
    rows = (
        "cdiv:alpha=1.4",
        "eaft",
        "gem:beta=0.7",
        "tofu:gamma=3,beta=0.8",
        "smooth:eps=0.1",
        "entropy:bonus=0.01",
        "Trunc, 50 %",
    )
    shown = re.findall(r"^\| ([^|]+) \| ((?:[\d.]+ \| ){6}[\d.]+) \|$", BENCHMARKS, flags=re.M)
    assert len(shown) == 4
    for head, cells in shown:
        file = LOGITS if head.startswith("OLMo") else EXPONENTIALS
        for name, cell in zip(rows, cells.split(" | "), strict=True):
            assert float(cell) == pytest.approx(ratio_in(file, head, name) / ratio_in(file, head, "nll"), abs=0.00501)


def test_every_result_file_and_command_of_the_benchmarks_exists():
    for name in set(re.findall(r"`(\w[\w-]+\.md)`", BENCHMARKS)):
        assert (ROOT / "benchmarks" / "results" / name).is_file(), name
    for name in set(re.findall(r"python (benchmarks/\w+\.py)", BENCHMARKS)):
        assert (ROOT / name).is_file(), name
