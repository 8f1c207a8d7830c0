"""The recipe of the paper's decoding table holds the paper's settings and numbers."""

from widen_recipes import decoding

# The table as printed: method, P, R.
PRINTED = {
    "t1": (0.848, 0.086),
    "t1_top_p0.1": (0.997, 0.001),
    "t1_top_p0.5": (0.996, 0.001),
    "t1_top_p0.8": (0.886, 0.033),
    "t1_top_p0.9": (0.805, 0.058),
    "t1_kl1_bos": (0.757, 0.061),
    "t1_kl3_bos": (0.800, 0.068),
    "t1_kl5_bos": (0.831, 0.069),
    "t1_kl10_bos": (0.844, 0.086),
}


def test_every_row_of_the_papers_table_is_there():
    rows = decoding.table()
    assert {
        r.settings.decoding.name: (r.published.values["precision"], r.published.values["recall"]) for r in rows
    } == PRINTED
    assert {r.published.where for r in rows} == {"tab:appendix-decoding"}
    assert all("without" in r.not_in_paper for r in rows)


def test_no_two_rows_share_a_file():
    names = [row.settings.name for row in decoding.table()]
    assert len(set(names)) == len(names)
    assert [row.settings.decoding.temperature for row in decoding.sweep()] == sorted(decoding.TEMPERATURES)
