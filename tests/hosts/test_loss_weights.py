"""Weights that come with the data multiply any loss: one per row or one per token, padded, packed or accumulated, in both hosts."""

import pytest
import torch
from trainer_runs import WAYS, apart, pad, tiny_model, train, train_sft, weighed
from transformers import DataCollatorWithFlattening

from widen.hosts.collate import WithColumns
from widen.hosts.transformers import Trainer
from widen.losses import Rows, parse


def by_hand(loss, data):
    """Gradient of the first step in plain PyTorch: the loss of each token times its weight, over the number of targets."""
    model, weight, total, count = tiny_model(), parse(loss), 0.0, 0
    for row in data[:4]:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        logp = model(ids).logits[:, :-1].log_softmax(-1)
        logq, mask = logp.gather(-1, ids[:, 1:, None])[..., 0], labels[:, 1:] != -100
        w, _ = weight.apply(Rows(logq.detach()), mask, weight.init())
        value = logq if loss != "smooth:eps=0.1" else 0.9 * logq + 0.1 * logp.mean(-1)
        given = torch.as_tensor(row["loss_weights"])
        given = given.expand(len(row["input_ids"])) if given.dim() == 0 else given
        total = total - (given[1:] * w * value)[mask].sum()
        count += int(mask.sum())
    (total / count).backward()
    return [torch.cat([p.grad.flatten() for _, p in sorted(model.named_parameters())])]


@pytest.mark.parametrize(
    ("loss", "per_token"), [("cdiv:alpha=1.4", True), ("dco:n=4", False), ("smooth:eps=0.1", True)]
)
def test_weights_of_the_data_multiply_the_loss_however_it_is_cut(loss, per_token):
    from widen.hosts.trl import SFTTrainer

    data = weighed(per_token=per_token)
    whole = train(Trainer, WAYS["4x1"], loss=loss, data=data, collator=WithColumns(pad))[0].gradients
    assert apart(whole[:1], by_hand(loss, data)) < 1e-5
    accumulated = train(Trainer, WAYS["1x4"], loss=loss, data=data, collator=WithColumns(pad))[0].gradients
    packed = train(Trainer, WAYS["packed 2x2"], loss=loss, data=data)[
        0
    ].gradients  # a known collator is wrapped by the trainer
    assert apart(accumulated, whole) < 1e-5
    assert apart(packed, whole) < 1e-5
    for way in ("1x4", "packed 4x1"):
        assert apart(train_sft(SFTTrainer, WAYS[way], loss=loss, data=data)[0].gradients, whole) < 1e-5


@pytest.mark.parametrize(
    ("loss", "per_token", "max_length"),
    [("gem:beta=0.7", True, 30), ("asft:kl=0.3 * dco:n=4", False, 30), ("cdiv:alpha=1.4", False, 9)],
    ids=["tokens", "rows and a reference", "rows that are cut"],
)
def test_trls_packing_of_a_data_set_packs_its_columns_too(loss, per_token, max_length):
    """All rows in one step, as TRL packs in an order of its own."""
    from widen.hosts.trl import SFTTrainer

    data = weighed(per_token=per_token)
    for row in () if per_token else data[1::2]:  # short enough to share a pack
        row |= {"input_ids": row["input_ids"][-3:], "labels": [-100, *row["labels"][-2:]]}
    run = {"loss": loss, "data": data}
    changes = {"dataset_kwargs": None, "num_train_epochs": 2, "max_length": max_length}
    plain = train_sft(SFTTrainer, (8, 1, False), changes=changes, **run)[0]
    packed, trainer = train_sft(SFTTrainer, (8, 1, False), changes=changes | {"packing": True}, **run)
    assert len(trainer.train_dataset) < 8
    assert len(packed.gradients) == 2
    assert apart(packed.gradients, plain.gradients) < 1e-5


def test_what_would_lose_or_misplace_a_weight_is_refused():
    from widen.hosts.trl import SFTTrainer

    data = weighed(per_token=False)
    changes = {"packing": True, "max_length": 30, "dataset_kwargs": None}
    with pytest.raises(ValueError, match="the collator dropped it"):
        train(Trainer, WAYS["4x1"], loss="nll", data=data, collator=pad_tokens_only)
    with pytest.raises(
        ValueError, match=r"packing_strategy='wrapped'.* the column loss_weights is packed only with 'bfd'"
    ):
        train_sft(SFTTrainer, WAYS["4x1"], loss="nll", data=data, changes=changes | {"packing_strategy": "wrapped"})
    for count in (1, 29):  # no row was cut, so that a list that is too long is not one of a longer row
        other = [row | {"loss_weights": [1.0] * count} for row in data]
        with pytest.raises(ValueError, match=rf"loss_weights of a row has {count} entries for \d+ tokens"):
            train_sft(SFTTrainer, WAYS["4x1"], loss="nll", data=other, changes=changes)
    for bad in (-0.5, float("nan")):
        data[6]["loss_weights"] = bad  # in the second batch
        where = r"loss_weights is (-0\.5|nan) in {} of the batch; legal: finite.*\. It comes from row 6 of the dataset \(token"
        with pytest.raises(ValueError, match=where.format("row 2")):
            train(Trainer, WAYS["4x1"], loss="nll", data=data, collator=WithColumns(pad))
        for run, host in ((train, Trainer), (train_sft, SFTTrainer)):
            with pytest.raises(ValueError, match=where.format("sequence 2 of the 4 packed in row 0")):
                run(host, WAYS["packed 4x1"], loss="nll", data=data)


def pad_tokens_only(features):
    return pad([{"input_ids": row["input_ids"], "labels": row["labels"]} for row in features])


def test_columns_follow_their_tokens_through_either_padding_and_flattening():
    features = [
        {"input_ids": [5, 6], "labels": [5, 6], "loss_weights": 0.5},
        {"input_ids": [7, 8, 9], "labels": [7, 8, 9], "loss_weights": [0.0, 1.0, 2.0]},
    ]

    def left(made):
        batch = pad(made)
        return {key: x.flip(1) if key == "attention_mask" else left_aligned(x, made) for key, x in batch.items()}

    def left_aligned(x, made):
        return torch.stack([row.roll(x.shape[1] - len(one["input_ids"])) for row, one in zip(x, made, strict=True)])

    assert WithColumns(left)(features)["loss_weights"].tolist() == [[0.0, 0.5, 0.5], [0.0, 1.0, 2.0]]
    flat = WithColumns(DataCollatorWithFlattening())(features)
    assert flat["loss_weights"].tolist() == [[0.5, 0.5, 0.0, 1.0, 2.0]]
    with pytest.raises(ValueError, match=r"row 1 of the batch has 2 entries for 3 tokens"):
        WithColumns(pad)([features[0], features[1] | {"loss_weights": [1.0, 2.0]}])
    with pytest.raises(ValueError, match=r"row 1 of the batch has no loss_weights"):
        WithColumns(pad)([features[0], {"input_ids": [7], "labels": [7]}])
    for rows, columns in ((2, 3), (2, 2), (1, 4)):  # other tokens; cut, padded or joined
        with pytest.raises(ValueError, match="neither pads nor concatenates"):
            WithColumns(lambda made, shape=(rows, columns): {"input_ids": torch.zeros(shape)})(features)
