"""Support size and sparsity against hand-made conditionals, and through a model as its conditionals say."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from widen.metrics import sparsity, sparsity_of_model, support_sizes

SAMPLES = [
    [[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]],
    [[0.34, 0.33, 0.33], [1.0, 0.0, 0.0]],
    [[0.6, 0.4, 0.0], [0.25, 0.5, 0.25]],
]
GOLDEN = {  # mass -> largest size of each sample, geometric mean
    0.5: ([1, 2, 1], 1.2599210498948732),
    0.8: ([2, 3, 3], 2.6207413942088964),
    0.9: ([3, 3, 3], 3.0),
    0.99: ([3, 3, 3], 3.0),
}


def test_known_values():
    found = sparsity(SAMPLES, masses=tuple(GOLDEN))
    for row, (largest, mean) in enumerate(GOLDEN.values()):
        assert [int(sizes[row].max()) for sizes in found.sizes] == largest
        assert found.support[row] == pytest.approx(mean, rel=1e-14)
        assert found.sparsity[row] == pytest.approx(mean / 3, rel=1e-14)


def test_the_token_that_crosses_the_mass_is_counted_and_one_that_reaches_it_is_enough():
    assert support_sizes([[0.5, 0.4, 0.1]], masses=(0.5, 0.51, 0.9)).tolist() == [[1], [2], [2]]


def test_a_sum_that_stops_an_ulp_short_of_the_mass_has_reached_it():
    tenth = [[0.1] * 10]
    assert sum(tenth[0][:8]) < 0.8
    assert support_sizes(tenth, masses=(0.8,)).tolist() == [[8]]


def test_ties_at_the_border_count_as_few_as_will_do():
    assert support_sizes([[0.25, 0.25, 0.25, 0.25]], masses=(0.5, 0.6)).tolist() == [[2], [3]]


def test_a_running_sum_over_a_large_vocabulary_keeps_its_digits():
    """In float32 the sum of 200,000 equal probabilities reaches .99 some hundred tokens off."""
    flat = torch.full((1, 200_000), 1 / 200_000, dtype=torch.float32)
    assert abs(int(support_sizes(flat, masses=(0.99,))[0, 0]) - 198_000) <= 1


def test_sizes_grow_with_the_mass():
    p = np.random.default_rng(0).dirichlet(np.full(50, 0.2), size=30)
    sizes = support_sizes(p, masses=(0.5, 0.9, 0.95, 0.99))
    assert (np.diff(sizes, axis=0) >= 0).all()
    assert sizes.min() >= 1


class Model(torch.nn.Module):
    """Logits that depend on the token before, as a table."""

    def __init__(self, vocab=7):
        super().__init__()
        self.table = torch.nn.Parameter(3 * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(0)))

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.table[input_ids])


def test_a_model_is_scored_by_its_conditionals_of_the_targets():
    model = Model()
    sequences, prompts = [[0, 1, 2, 3], [4, 5, 6]], [2, 1]
    found = sparsity_of_model(model, sequences, prompt_lengths=prompts)
    table = model.table.detach().double().softmax(1).numpy()
    by_hand = sparsity([table[[1, 2]], table[[4, 5]]])  # the token at l is predicted from the one at l - 1
    assert (found.support, found.sparsity, found.intervals) == (by_hand.support, by_hand.sparsity, by_hand.intervals)
    assert [sizes.shape for sizes in found.sizes] == [(3, 2), (3, 2)]


def test_progress_is_told():
    told = []
    sparsity_of_model(Model(), [[0, 1], [1, 2]], progress=lambda *what: told.append(what))
    assert told == [("sparsity", 1, 2), ("sparsity", 2, 2)]


def test_quantiles_by_position_count_the_samples_that_reach_it():
    one, other = np.eye(4)[[0, 0]], np.full((3, 4), 0.25)
    quantiles = sparsity([one, other], masses=(0.9,)).by_position((0.0, 0.5, 1.0))
    assert quantiles.shape == (1, 3, 3)
    assert quantiles[0].T.tolist() == [[1.0, 2.5, 4.0], [1.0, 2.5, 4.0], [4.0, 4.0, 4.0]]


def test_the_sizes_of_the_figure_go_to_json():
    again = json.loads(json.dumps(sparsity(SAMPLES).to_json(), allow_nan=False))
    assert again["sizes"][0] == [[3, 1], [3, 2], [3, 3]]
    assert again["vocabulary"] == 3


REFUSED = [
    ("shape", [[[0.5, 0.5]]], {}),
    ("sum to 1", [[0.5, 0.4]], {}),
    ("non-negative", [[1.5, -0.5]], {}),
    ("masses must lie strictly between", [[0.5, 0.5]], {"masses": (1.0,)}),
    ("masses must lie strictly between", [[0.5, 0.5]], {"masses": ()}),
]


@pytest.mark.parametrize(("message", "p", "options"), REFUSED)
def test_what_is_no_conditional_is_refused(message, p, options):
    with pytest.raises(ValueError, match=message):
        support_sizes(p, **options)


def test_samples_share_one_vocabulary():
    with pytest.raises(ValueError, match=r"one vocabulary, got widths \[2, 3\]"):
        sparsity([[[0.5, 0.5]], [[0.5, 0.25, 0.25]]])
    with pytest.raises(ValueError, match="at least one sample"):
        sparsity([])


@pytest.mark.parametrize(
    ("sequences", "prompts"), [([[0]], None), ([[0, 1]], [2]), ([[0, 1]], [0]), ([], None), ([[0, 1]], [1, 1])]
)
def test_a_sequence_needs_a_prompt_and_a_target(sequences, prompts):
    with pytest.raises(ValueError, match=r"must have a target|at least one"):
        sparsity_of_model(Model(), sequences, prompt_lengths=prompts)
