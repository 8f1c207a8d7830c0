"""Position and length count target tokens of a sequence, whatever the row looks like; by a loop over the tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.data.targets import read_sequences

LENGTHS = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6)


def packed(sequences, marker, start=0):
    """One row of all sequences; ``sequences`` says of each token whether it is a target (the first never is)."""
    labels, positions, index, ends = [], [], [], [0]
    for number, targets in enumerate(sequences):
        labels += [-100 if place == 0 or not target else 5 + place for place, target in enumerate(targets)]
        positions += [start + place for place in range(len(targets))]
        index += [number] * len(targets)
        ends.append(ends[-1] + len(targets))
    marks = {
        "position_ids": torch.tensor([positions]),
        "seq_idx": torch.tensor([index], dtype=torch.int32),
        "cu_seq_lens_q": torch.tensor(ends, dtype=torch.int32),
    }
    return {"labels": torch.tensor([labels]), marker: marks[marker]}


def padded(sequences, left=False):
    width = max(map(len, sequences))
    rows = []
    for targets in sequences:
        row = [-100 if place == 0 or not target else 5 + place for place, target in enumerate(targets)]
        rows.append([-100] * (width - len(row)) + row if left else row + [-100] * (width - len(row)))
    return {"labels": torch.tensor(rows)}


def expected(sequences):
    """(token, l, L) of every target, in order."""
    found = []
    for targets in sequences:
        places = [place for place, target in enumerate(targets) if target and place > 0]
        found += [(5 + place, l, len(places)) for l, place in enumerate(places, start=1)]  # noqa: E741
    return found


def read(inputs):
    at = read_sequences(inputs)
    return at, list(zip(*(x[at.mask_N].tolist() for x in (at.target_N, at.position_N, at.length_N)), strict=True))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(sequences=LENGTHS)
def test_packed_and_padded_rows_tell_the_same(sequences):
    wanted = expected(sequences)
    for inputs in (
        packed(sequences, "position_ids"),
        packed(sequences, "position_ids", start=2),
        packed(sequences, "seq_idx"),
        packed(sequences, "cu_seq_lens_q"),
        padded(sequences),
        padded(sequences, left=True),
    ):
        at, found = read(inputs)
        assert found == wanted
        assert int(at.number) == len({tuple(s) for s in [(i, *t) for i, t in enumerate(sequences)] if any(s[2:])})


@settings(max_examples=15, deadline=None, derandomize=True)
@given(sequences=LENGTHS)
def test_one_sequence_a_row_and_back(sequences):
    at, wanted = read(packed(sequences, "position_ids"))
    x_N = torch.rand(len(at.target_N))
    x_SL, mask_SL = at.rows(x_N), at.row_mask
    assert mask_SL.sum(1).tolist() == [sum(t[1:]) for t in sequences if any(t[1:])]
    assert x_SL[mask_SL].tolist() == x_N[at.mask_N].tolist()
    assert at.places(x_SL).tolist() == torch.where(at.mask_N, x_N, 0.0).tolist()
    assert len(wanted) == int(mask_SL.sum())


def test_padding_behind_a_packed_row_belongs_to_nobody():
    """TRL pads with position 0, each token of which would begin a sequence."""
    inputs = {"labels": torch.tensor([[-100, 5, 6, -100, -100]]), "position_ids": torch.tensor([[0, 1, 2, 0, 0]])}
    at, found = read(inputs)
    assert found == [(5, 1, 2), (6, 2, 2)]
    assert at.rows(torch.ones(5)).shape == (1, 2)


def test_a_first_token_that_the_host_predicts_from_padding_belongs_to_its_own_sequence():
    inputs = {
        "labels": torch.tensor([[-100, -100, 5, 6], [7, 8, -100, 9]]),
        "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]),
        "position_ids": torch.tensor([[1, 1, 0, 1], [0, 1, 2, 3]]),
    }
    _, found = read(inputs)
    assert found == [(5, 1, 2), (6, 2, 2), (8, 1, 2), (9, 2, 2)]


def test_labels_that_are_shifted_already_are_taken_as_they_are():
    _, found = read({"shift_labels": torch.tensor([[5, 6, -100]]), "labels": torch.tensor([[9, 9, 9]])})
    assert found == [(5, 1, 2), (6, 2, 2)]


def test_a_batch_without_targets_gives_no_rows():
    at, found = read({"labels": torch.full((2, 3), -100)})
    assert found == []
    assert len(at.rows(torch.ones(6))) == 0
    assert at.places(torch.ones(0, 1)).tolist() == [0.0] * 6


def test_a_target_that_another_sequence_would_predict_is_refused():
    inputs = {"labels": torch.tensor([[-100, 5, 6, 7]]), "position_ids": torch.tensor([[0, 1, 0, 1]])}
    with pytest.raises(ValueError, match=r"row 0, column 2 begins a packed sequence.*Set its label to -100"):
        read_sequences(inputs)
    with pytest.raises(ValueError, match="the batch has no 'labels'"):
        read_sequences({"input_ids": torch.zeros(1, 2)})
