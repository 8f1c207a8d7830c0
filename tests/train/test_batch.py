"""What a target token is."""

import pytest
import torch

from widen.data.batch import Batch, pad
from widen.losses import Rows, parse
from widen.train.objective import Objective


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


def test_weights_multiply_the_loss_and_the_sum_is_divided_by_tokens():
    batch = pad([[9, 4, 7, 1], [9, 5]], prompt_lengths=[2, 1])
    weights = torch.tensor([[7.0, 7.0, 0.5, 2.0], [7.0, 3.0, 7.0, 7.0]])
    hidden, head = (
        torch.randn(2, 3, 5, dtype=torch.float64),
        torch.randn(10, 5, dtype=torch.float64, requires_grad=True),
    )
    logq = (hidden @ head.T).log_softmax(-1).gather(-1, batch.targets[..., None])[..., 0]
    for loss in ("gold", "dco:n=4"):
        loss, found = parse(loss), []
        w, _ = loss.apply(Rows(logq.detach()), batch.target_mask, loss.init())
        by_hand = -(weights[:, 1:] * w * logq).sum() / 3
        for made in (Batch(batch.tokens_BL, batch.mask_BL, weights), batch):
            out = Objective(loss).through_head(hidden.flatten(0, 1), head, made.sequences, num_tokens=3.0)
            found.append(torch.autograd.grad(out.loss, head)[0])
        torch.testing.assert_close(found[0], torch.autograd.grad(by_hand, head, retain_graph=True)[0])
        assert not torch.allclose(*found)


def test_weights_that_are_negative_or_not_finite_are_refused_with_their_row():
    batch = pad([[9, 4], [9, 5]], prompt_lengths=[1, 1])
    Batch(
        batch.tokens_BL, batch.mask_BL, torch.tensor([[-1.0, 1.0], [float("nan"), 1.0]])
    )  # not targets: nothing reads them
    for bad in (-1.0, float("inf")):
        with pytest.raises(ValueError, match=r"loss_weights is (-1|inf) in row 1 of the batch"):
            Batch(batch.tokens_BL, batch.mask_BL, torch.tensor([[1.0, 1.0], [1.0, bad]]))


def test_pad_refuses_unequal_lists():
    with pytest.raises(ValueError, match="prompt_lengths"):
        pad([[1, 2]], prompt_lengths=[])
