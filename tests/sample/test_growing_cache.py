"""The cache with spare rows and positions holds what the cache of transformers holds, and copies less."""

import copy

import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicLayer

from widen.sample.engines.cached_model import SPARE_POSITIONS, GrowingLayer
from widen.sample.shared_prefixes import FEW, _branches


def pair(rows):
    """The same keys and values in a layer of transformers and in ours."""
    theirs = DynamicLayer()
    theirs.update(torch.randn(rows, 2, 5, 3), torch.randn(rows, 2, 5, 3))
    return theirs, GrowingLayer(copy.deepcopy(theirs))


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_the_keys_and_values_of_transformers_own_layer_after_any_steps(seed):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    theirs, ours = pair(3)
    for _ in range(SPARE_POSITIONS + 20):
        rows = len(theirs.keys)
        move = rng.choice(["stay", "split", "drop"], p=[0.8, 0.15, 0.05])
        if move == "split":
            replaced = torch.from_numpy(rng.choice(rows, min(2, rows), replace=False))
            target = torch.cat([replaced, torch.tensor([rows, rows + 1])])
            source = torch.from_numpy(rng.integers(rows, size=len(target)))
            parent = torch.arange(rows + 2)
            parent[target] = source
            theirs.reorder_cache(parent)
            ours.replace_rows(target, source, rows=rows + 2)
        elif move == "drop":
            kept = torch.from_numpy(rng.integers(rows, size=max(1, rows // 2)))
            theirs.reorder_cache(kept)
            ours.reorder_cache(kept)
        new = torch.randn(2, len(theirs.keys), 2, 1, 3)
        for mine, other in zip(ours.update(*new), theirs.update(*new), strict=True):
            assert torch.equal(mine, other)
        assert ours.get_seq_length() == theirs.get_seq_length()


def test_a_token_and_a_split_row_leave_the_other_rows_where_they_are():
    _, ours = pair(8)
    ours.reorder_cache(torch.arange(8))
    place = ours.keys.data_ptr()
    ours.update(torch.randn(8, 2, 1, 3), torch.randn(8, 2, 1, 3))
    ours.replace_rows(torch.tensor([8, 9]), torch.tensor([0, 3]), rows=10)
    ours.update(torch.randn(10, 2, 1, 3), torch.randn(10, 2, 1, 3))
    assert ours.keys.data_ptr() == place


def test_a_copy_of_a_layer_goes_on_alone():
    _, ours = pair(2)
    ours.update(torch.zeros(2, 2, 1, 3), torch.zeros(2, 2, 1, 3))
    other = copy.deepcopy(ours)
    other.update(torch.ones(2, 2, 1, 3), torch.ones(2, 2, 1, 3))
    assert torch.equal(ours.update(*torch.full((2, 2, 2, 1, 3), 2.0))[0][:, :, -1], torch.full((2, 2, 3), 2.0))
    assert torch.equal(other.keys[:, :, -1], torch.ones(2, 2, 3))


@pytest.mark.parametrize("seed", range(20))
def test_each_distinct_continuation_has_one_row_and_few_rows_are_empty(seed):
    rng = np.random.default_rng(seed)
    rows, samples = int(rng.integers(1, 30)), int(rng.integers(1, 60))
    row_B, token_B = (torch.from_numpy(rng.integers(n, size=samples)) for n in (rows, 4))
    parent_U, token_U, new_B = _branches(row_B, token_B, rows=rows, vocab=4)
    parent_U = torch.arange(rows) if parent_U is None else parent_U
    assert torch.equal(parent_U[new_B], row_B)
    assert torch.equal(token_U[new_B], token_B)
    distinct = len(set(zip(row_B.tolist(), token_B.tolist(), strict=True)))
    assert len(set(new_B.tolist())) == distinct >= (1 - FEW) * len(token_U)
