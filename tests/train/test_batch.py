"""What a target token is."""

import pytest
import torch

from widen.data.batch import Batch, pad


def test_inputs_and_targets_are_the_row_shifted_by_one():
    batch = pad([[9, 4, 7, 1], [9, 5]], prompt_lengths=[2, 1], pad_id=3)
    assert batch.inputs.tolist() == [[9, 4, 7], [9, 5, 3]]
    assert batch.targets.tolist() == [[4, 7, 1], [5, 3, 3]]
    assert batch.target_mask.tolist() == [[False, True, True], [True, False, False]]
    assert batch.num_tokens == 3
    assert batch.rows(slice(1, 2)).num_tokens == 1


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        (torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 2, dtype=torch.bool), "must agree"),
        (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool), "at least 2"),
        (torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.bool), "column 0"),
    ],
)
def test_what_cannot_be_a_batch_is_refused(tokens, mask, message):
    with pytest.raises((ValueError, TypeError), match=message if tokens.shape == mask.shape else None):
        Batch(tokens, mask)


def test_pad_refuses_unequal_lists():
    with pytest.raises(ValueError, match="prompt_lengths"):
        pad([[1, 2]], prompt_lengths=[])
