"""A field ``loss_weights`` of the training data multiplies the loss of its record in ``widen train``."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from spread_runs import assert_same_training, finish, start
from tiny_pretrained import make_tokenizer, tiny_training

from widen.run.finetune import Source
from widen.run.finetune.stage import fine_tune
from widen.run.folder import folder_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
RECORDS = [
    ("what is 1 + 2 ?", " 3.0"),
    ("what is 2 * 2 ?", " answer = 4.0"),
    ("a door", " opens and she walks in"),
    ("n0", " n1"),
]


def save(path, weights):
    lines = [
        {"prompt": prompt, "completion": completion} | ({} if w is None else {"loss_weights": w})
        for (prompt, completion), w in zip(RECORDS * (len(weights) // len(RECORDS)), weights, strict=True)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """One step on all records; plain SGD-like comparison is by the loss that the step logs and the model that it leaves."""
    folder = tmp_path_factory.mktemp("tiny")
    return folder, tiny_training(folder)


def trained(base, name, weights, **changes):
    """The logged loss of the one step, and the weights of the model after it."""
    from safetensors.torch import load_file

    place, config = base
    config = replace(config, train=Source(path=save(place / f"{name}.jsonl", weights)), **changes)
    folder = fine_tune(config, place / "runs", device="cpu")
    (line,) = [json.loads(line) for line in folder.log.read_text().splitlines()]
    return line, load_file(folder.checkpoint / "model.safetensors")


def test_weights_of_rows_and_tokens_multiply_the_loss_padded_packed_and_accumulated(base):
    tokenizer, generator = make_tokenizer(), torch.Generator().manual_seed(0)
    lengths = [len(tokenizer(text, add_special_tokens=False).input_ids) + 1 for _, text in RECORDS]
    lists = [torch.rand(n, generator=generator).tolist() for n in lengths]
    weights = [lists[0], 2.0, lists[2], 0.0]  # one number per row or one per token, in one file
    plain, _ = trained(base, "plain", [None] * 4)
    line, model = trained(base, "weighed", weights)
    each = [one if isinstance(one, list) else [one] * n for one, n in zip(weights, lengths, strict=True)]
    flat = [w for one in each for w in one]
    assert line["weight_mean"] == pytest.approx(sum(flat) / len(flat), rel=1e-5)  # divided by tokens, not by weights
    assert line["weight_max"] == pytest.approx(max(flat))
    assert line["nll"] == pytest.approx(plain["nll"], rel=1e-5)
    assert line["loss"] == pytest.approx(by_hand(base, each), rel=1e-4)
    for name, changes in {"packed": {"packing": True}, "accumulated": {"micro_batch": 1}}.items():
        other, same = trained(base, name, weights, **changes)
        assert other["loss"] == pytest.approx(line["loss"], rel=1e-4), name
        for key, value in model.items():
            torch.testing.assert_close(same[key], value, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "packing"), [("nll", False), ("truncr:drop=0.3,start=4", True)])
def test_widen_train_on_two_ranks_weighs_as_on_one(base, loss, packing, tmp_path):
    """Twelve records, three steps an epoch: each rank has half of a batch, and half of it at a time unless rows are packed."""
    lengths = [len(make_tokenizer()(text, add_special_tokens=False).input_ids) + 1 for _, text in RECORDS]
    weights = [0.25, 2.0, [0.5 * (at % 3) for at in range(lengths[2])], 0.0, 1.0, 0.0, 3.0, 0.5, 0.1, 1.5, 0.7, 4.0]
    source = Source(path=save(tmp_path / "weighed.jsonl", weights))
    config = replace(base[1], train=source, loss=loss, packing=packing, micro_batch=2 if packing else 1, epochs=2)
    port = "29633" if packing else "29632"
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port)
    finish(start(config, tmp_path / "two", (*launcher, "-m", "widen.cli"), "cpu"))
    two, one = folder_of(tmp_path / "two", config), fine_tune(config, tmp_path / "one", device="cpu")
    assert_same_training(two, one, 1e-4, 1e-3)
    found, wanted = ([json.loads(line) for line in one.log.read_text().splitlines()] for one in (two, one))
    for key in ("weight_mean", "weight_max"):
        assert [line[key] for line in found] == pytest.approx([line[key] for line in wanted], rel=1e-4), key
    assert len({round(line["weight_mean"], 3) for line in found}) > 1
    assert json.loads((two.path / "env.json").read_text())["processes"] == 2


@torch.no_grad()
def by_hand(base, each):
    """The weighted NLL in plain PyTorch."""
    from transformers import AutoModelForCausalLM

    model, tokenizer = AutoModelForCausalLM.from_pretrained(base[1].model), make_tokenizer()
    total, count = 0.0, 0
    for (prompt, completion), weights in zip(RECORDS, each, strict=True):
        before = tokenizer(prompt).input_ids
        after = [*tokenizer(completion, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        logp = model(torch.tensor([before + after])).logits[0].log_softmax(-1)[len(before) - 1 : -1]
        nll = -logp.gather(-1, torch.tensor(after)[:, None])[:, 0]
        total, count = total + float((nll * torch.tensor(weights)).sum()), count + len(after)
    return total / count


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1.0, -0.5, 1.0, 1.0], r"line 2: 'loss_weights' must be at least 0, got -0.5"),
        ([1.0, float("nan"), 1.0, 1.0], r"line 2: 'loss_weights' must be a finite number"),
        (
            [1.0, 1.0, [1.0, 2.0], 1.0],
            r"example 3 \('a door'\): 'loss_weights' has 2 numbers, and there are \d+ target tokens",
        ),
        ([1.0, 1.0, 1.0, None], r"example 4 has no 'loss_weights', and others have"),
    ],
)
def test_bad_weights_are_refused_with_their_record(base, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        trained(base, "bad", weights)
