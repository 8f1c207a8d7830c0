"""What the pages say of decodings on HumanEval is in the kept tables."""

from kept_tables import assert_shown, cells_of, gain_between, halves_of, rows_of, section_of

from widen.sample import Decoding
from widen_recipes.study.code import FAMILIES

PAGE = section_of("HumanEval")
ALONE = "HumanEval, temperature"


def test_every_decoding_has_a_line_and_families_have_as_many_as_the_page_says():
    rows = rows_of("code_small")
    for row in rows:
        line = f"| `{Decoding.parse(row['decoding']).in_words}` | {' | '.join(cells_of(row, 'pass@1', 'pass@5', 'pass@20'))} |"
        assert line in PAGE
    count = {family: sum(row["name"] == f"HumanEval, {family}" for row in rows) for family in FAMILIES}
    assert count.pop("top-p, then heat") == 2
    assert set(count.values()) == {3}


def test_no_family_differs_clearly_from_temperature_alone_and_the_table_is_the_kept_one():
    best, shares = halves_of("code_small", "pass@20"), (0, 0.8, 0.95)
    first = " | ".join(", ".join(cells_of(best[ALONE, share], "precision", "value")) for share in shares)
    assert f"| temperature alone: pass@1, pass@20 | {first} |" in PAGE
    for family in (one for one in FAMILIES if one != "temperature"):
        own = [best[f"HumanEval, {family}", share] for share in shares]
        assert f"| {family} | {' | '.join(map(gain_between, own))} |" in PAGE
        assert all(float(row["gain_low"]) < 0 < float(row["gain_high"]) for row in own if row["gain"])


def test_the_sentences_on_humaneval_are_those_of_the_kept_table():
    rows = {Decoding.parse(row["decoding"]).in_words: row for row in rows_of("code_small")}
    most = {k: max(rows, key=lambda one: float(rows[one][f"pass@{k}"])) for k in (1, 5, 20)}
    assert most == {1: "t=0.4", 5: "t=0.8", 20: "top_p=0.9 then t=1.2"}
    (safe,) = cells_of(rows["t=0.4"], "pass@1")
    mild, hot, cut = (cells_of(rows[spec], "pass@20", "pass@1") for spec in ("t=0.8", "t=1.2", "min_p=0.05 then t=1.2"))
    falls = f"pass@20 falls from {mild[0]} to {hot[0]}, and pass@1 from {mild[1]} to {hot[1]}."
    alone = max(float(row["pass@20"]) for row in rows.values() if row["name"] == ALONE)
    solved = [80 * float(rows[most[20]]["pass@20"]), 80 * alone]
    pages = {
        "docs/results/humaneval.md": [
            f"t = .4 has the highest pass@1, {safe}.",
            f"the best decoding of all solves {solved[0]:g}, and the best temperature alone solves {solved[1]:g}",
            f"{falls} With `min_p=0.05 then t=1.2`, they are {cut[0]} and {cut[1]}.",
        ],
        "docs/log.md": [f"pass@1 {safe} at t = .4"],
    }
    assert_shown(pages)
