"""Random numbers by address."""

import numpy as np
import pytest

from widen.sample.philox import key, philox, uniforms

# Known answers of the Random123 distribution for philox4x32-10.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "keys", "answer"), KNOWN)
def test_philox_gives_the_published_answers(counter, keys, answer):
    out = philox(np.array(counter, np.uint64)[:, None], np.array(keys, np.uint64)[:, None])
    assert out[:, 0].tolist() == answer


def test_a_number_depends_on_its_own_address_only():
    keys = np.array([key(0, p, t) for p in "abc" for t in (0.5, 1.0)], np.uint64)
    table = uniforms(keys, np.array([0, 1, 2, 3, 4, 2**40]), 7)
    for row, (k, index) in enumerate(zip(keys, [0, 1, 2, 3, 4, 2**40], strict=True)):
        for position in range(7):
            alone = uniforms(np.array([k], np.uint64), np.array([index]), position + 1)
            assert alone[0, position] == table[row, position]
    assert len(np.unique(table)) == table.size


def test_every_part_of_the_address_matters():
    keys = {key(s, p, t) for s in (0, 1) for p in ("a", "b", "a#1") for t in (0.7, 1.0)}
    assert len(keys) == 12
    assert key(1, "2a", 1.0) != key(12, "a", 1.0)


def test_uniforms_are_uniform_and_never_one():
    from scipy.stats import kstest

    u = uniforms(np.full(2000, key(3, "x", 1.0), np.uint64), np.arange(2000), 50).ravel()
    assert kstest(u, "uniform").pvalue > 1e-3
    assert u.max() < 1
    assert np.corrcoef(u[:-1], u[1:])[0, 1] == pytest.approx(0, abs=0.01)
    total = 1.0 + 2.0**-52
    assert (1 - 2.0**-52) * total < total  # the largest uniform still falls inside
