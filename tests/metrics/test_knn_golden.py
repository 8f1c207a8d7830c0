"""Every golden case has its exact counts: both boundaries, k = 3, 4, 5, any block size, any order of the points."""

import subprocess
import sys
from pathlib import Path

import golden_knn
import numpy as np
import pytest
import torch

from widen.metrics import KnnReference, knn_search

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


@pytest.mark.parametrize("name", ["gauss_d16", "lattice_ties", "dup_radius0", "collapsed_fake"])
def test_counts_do_not_depend_on_the_size_of_a_block(name, monkeypatch):
    monkeypatch.setattr(knn_search, "CPU_BLOCK", 7000)  # several blocks, the last one shorter
    check(name)


@pytest.mark.parametrize("name", ["lattice_ties", "neardup_offset", "rogue_dim", "dup_radius0"])
def test_counts_do_not_depend_on_the_order_of_the_points(name):
    reference, generated = golden_knn.case(name)
    rng = np.random.default_rng(0)
    shuffled = KnnReference(rng.permutation(reference), ks=(4,)).scores(rng.permutation(generated))[0]
    assert counts(shuffled, 4) == pytest.approx(golden_knn.EXPECTED[name]["4"]["closed"], abs=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_counts_are_the_same_on_a_gpu(name):
    check(name, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("allow", ["legacy", "new"])
def test_counts_are_the_same_on_a_gpu_where_the_caller_allows_tf32(allow):
    """In a process of its own: torch refuses to read one kind of switch after the other was used."""
    switch = (
        "torch.set_float32_matmul_precision('high')"
        if allow == "legacy"
        else "torch.backends.cuda.matmul.fp32_precision = 'tf32'"
    )
    code = f"import sys, torch; sys.path.insert(0, {str(Path(__file__).parent)!r}); {switch}; import test_knn_golden; "
    subprocess.run([sys.executable, "-c", code + "test_knn_golden.check('gauss_d1280', device='cuda')"], check=True)


@pytest.mark.gpu
def test_a_gpu_and_a_cpu_give_the_same_radii_to_the_bit():
    reference, _ = golden_knn.case("gauss_d1280")
    on_cpu, on_gpu = KnnReference(reference), KnnReference(reference, device="cuda")
    assert torch.equal(on_cpu.squared_radii, on_gpu.squared_radii.cpu())
