"""Grids of decodings: what is in the default one, how lists of specs are read, and what the order of the steps does."""

import numpy as np
import pytest

from widen.sample import Decoding, decoding_grid, parse_decodings
from widen.theory import decoded_log


def test_the_default_grid_has_four_families_and_no_two_decodings_that_draw_alike():
    grid = decoding_grid()
    assert len({one.name for one in grid}) == len(grid) == 77
    families = {tuple(name for name, _ in one.steps) for one in grid}
    wanted = {("min_p", "temperature"), ("temperature", "min_p"), ("top_p", "temperature"), ("temperature",)}
    assert wanted <= families
    assert families - wanted == {(), ("min_p",), ("top_p",)}  # t = 1 is not a step


def test_a_grid_keeps_one_of_two_decodings_that_draw_alike():
    grid = decoding_grid(temperatures=[1.0], min_p=[0.1], heats=[1.0], min_p_after=[0.1], heats_before=[1.0], top_p=[])
    assert [one.name for one in grid] == ["t1", "t1_min_p0.1"]


def test_every_decoding_of_the_grid_has_an_exact_score():
    q = np.log([0.5, 0.3, 0.15, 0.05])
    for one in decoding_grid():
        assert np.exp(decoded_log(q, one.exact_steps)).sum() == pytest.approx(1.0)


def test_heat_after_truncation_never_brings_a_dropped_token_back_and_heat_before_it_does():
    q = np.log([0.5, 0.3, 0.15, 0.04, 0.01])
    kept = {}
    for name, one in {
        "last": Decoding.truncate_then_heat(min_p=0.2, temperature=10),
        "first": Decoding(min_p=0.2, temperature=10),
    }.items():
        kept[name] = int(np.isfinite(decoded_log(q, one.exact_steps)).sum())
    assert kept == {"last": 3, "first": 5}


def test_a_list_of_specs_names_the_grid_by_its_word_and_refuses_two_that_draw_alike():
    found = parse_decodings(["t=9", "grid"])
    assert found == (Decoding(temperature=9.0), *decoding_grid())
    with pytest.raises(ValueError, match=r"'t=1' and 't=1,top_p=1' draw alike"):
        parse_decodings(["t=1", "t=1,top_p=1"])
    with pytest.raises(ValueError, match="draw alike"):
        parse_decodings(["grid", "t=1"])
