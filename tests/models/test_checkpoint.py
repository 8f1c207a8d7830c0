"""Checkpoints: whole or absent, and read back to the bit."""

import json

import pytest
import torch

from widen.losses import Rows, parse
from widen.models import checkpoint
from widen.models.checkpoint import Checkpoint


def make(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    return Checkpoint(
        step, {"weights": {"a": torch.randn(3, generator=generator), "b": torch.tensor(step)}}, {"lr": 0.1}
    )


def test_what_is_saved_is_loaded_to_the_bit(tmp_path):
    checkpoint.save(tmp_path, make(7))
    found = checkpoint.load(checkpoint.latest(tmp_path))
    assert found.step == 7
    assert found.numbers == {"lr": 0.1}
    assert torch.equal(found.groups["weights"]["a"], make(7).groups["weights"]["a"])


def test_the_newest_replaces_the_older_ones(tmp_path):
    for step in (5, 10, 15):
        checkpoint.save(tmp_path, make(step))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000015"]


def test_half_a_checkpoint_is_not_seen(tmp_path):
    checkpoint.save(tmp_path, make(5))
    broken = tmp_path / ".step-000000010.0123456789abcdef.part"
    broken.mkdir()
    (broken / "weights.safetensors").write_bytes(b"torn")
    assert checkpoint.latest(tmp_path).name == "step-000000005"
    checkpoint.save(tmp_path, make(10))  # and is no obstacle either
    assert checkpoint.load(checkpoint.latest(tmp_path)).step == 10
    assert not broken.exists()


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.latest(tmp_path / "nothing") is None


def test_another_schema_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, make(1))
    content = json.loads((path / "checkpoint.json").read_text()) | {"schema": 99}
    (path / "checkpoint.json").write_text(json.dumps(content))
    (path / "checksums.json").unlink()
    with pytest.raises(ValueError, match="schema 99"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "loss", ["nll", "truncr:drop=0.2,window=8", "trunc:drop=0.5,window=4 * cdiv:alpha=1.4", "nll:steps=3 then truncr:drop=0.1,window=8"]
)  # fmt: skip
def test_the_state_of_every_loss_survives(tmp_path, loss):
    weight = parse(loss)
    state = weight.init()
    for seed in range(4):
        logq = -torch.rand(6, 3, generator=torch.Generator().manual_seed(seed))
        _, state = weight.apply(Rows(logq), torch.ones_like(logq, dtype=torch.bool), state)
        state = weight.observe(weight.seen(state), state)
    checkpoint.save(tmp_path, Checkpoint(4, {"loss": checkpoint.state_tensors(state)}, {}))
    tensors = checkpoint.load(checkpoint.latest(tmp_path)).groups["loss"]
    again = checkpoint.state_from(weight.init(), tensors)
    assert type(again) is type(state)
    logq = -torch.rand(6, 3, generator=torch.Generator().manual_seed(9))
    mask = torch.ones_like(logq, dtype=torch.bool)
    assert torch.equal(weight.apply(Rows(logq), mask, again)[0], weight.apply(Rows(logq), mask, state)[0])
    assert str(weight.now(again)) == str(weight.now(state))


def test_random_numbers_go_on_where_they_were():
    saved = checkpoint.random_state()
    first = torch.rand(3)
    checkpoint.restore_random_state(saved)
    assert torch.equal(torch.rand(3), first)
