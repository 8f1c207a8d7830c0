"""Every golden case comes out to the last count: both boundaries, k = 3, 4, 5, every way to multiply, however the work is cut."""

import golden_knn
import numpy as np
import pytest
import torch

from widen.metrics import knn_screen
from widen.metrics.knn_reference import KnnReference

CASES = sorted(golden_knn.EXPECTED)


def counts(scores, k: int) -> list[float]:
    n, m = scores.settings.n_reference, scores.settings.n_generated
    return [scores.precision * m, scores.recall * n, scores.density * k * m, scores.coverage * n]


def check(name: str, **options) -> None:
    reference, generated = golden_knn.case(name)
    for boundary in ("closed", "open"):
        ks = [int(k) for k in golden_knn.EXPECTED[name]]
        for k, scores in zip(
            ks, KnnReference(reference, ks=ks, boundary=boundary, **options).scores(generated), strict=True
        ):
            expected = golden_knn.EXPECTED[name][str(k)]
            assert counts(scores, k) == pytest.approx(expected[boundary], abs=1e-6), (boundary, k)
            found = scores.diagnostics
            assert found.zero_radii_reference + found.zero_radii_generated == expected["zero_radii"]


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_float64(name):
    check(name)


@pytest.mark.parametrize("name", CASES)
def test_counts_do_not_depend_on_how_the_screen_multiplies(name):
    check(name, product="bf16x3")


@pytest.mark.parametrize("name", [c for c in CASES if "1280" not in c])
def test_counts_do_not_depend_on_the_tiles(name, monkeypatch):
    monkeypatch.setattr(knn_screen, "CPU_TILE", 24)  # divides none of the sets: several tiles and a ragged last one
    check(name)


@pytest.mark.parametrize("name", CASES)
def test_counts_do_not_depend_on_where_the_norms_are_added(name, monkeypatch):
    """As on a GPU: the norms are columns of the operands."""
    monkeypatch.setattr(knn_screen, "norms_ride", lambda rows, product: True)
    check(name)


@pytest.mark.parametrize("name", ["lattice_ties", "neardup_offset", "rogue_dim", "dup_radius0"])
def test_counts_do_not_depend_on_the_order_of_the_points(name):
    reference, generated = golden_knn.case(name)
    rng = np.random.default_rng(0)
    shuffled = KnnReference(rng.permutation(reference), ks=(4,)).scores(rng.permutation(generated))[0]
    assert counts(shuffled, 4) == pytest.approx(golden_knn.EXPECTED[name]["4"]["closed"], abs=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("product", ["float32", "bf16x3"])
@pytest.mark.parametrize("name", CASES)
def test_counts_are_the_same_on_a_gpu(name, product):
    check(name, device="cuda", product=product)


@pytest.mark.gpu
def test_a_gpu_and_a_cpu_give_the_same_radii_to_the_bit():
    reference, _ = golden_knn.case("gauss_d1280")
    on_cpu, on_gpu = KnnReference(reference), KnnReference(reference, device="cuda")
    assert torch.equal(on_cpu.radii.squared, on_gpu.radii.squared.cpu())
