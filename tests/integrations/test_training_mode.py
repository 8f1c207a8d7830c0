"""The model's ``train()`` after a trainer of ours has it: what it sets is what it always set, and what is set already is not written."""

import copy
import pickle

import pytest
import torch
from torch import nn
from trainer_runs import WAYS, tiny_model, train

from widen.integrations.training_mode import looking_before_train
from widen.integrations.transformers import Trainer


class Counted(nn.Linear):
    """Has a ``train`` of its own, which must be called whether or not a flag changes."""

    calls = 0

    def train(self, mode=True):
        self.calls += 1
        return super().train(mode)


@pytest.fixture
def model():
    model = tiny_model()
    with looking_before_train(model), looking_before_train(model):
        yield model.train()


def written(model, monkeypatch):
    """How many flags ``train()`` writes."""
    count = 0
    plain = nn.Module.__setattr__

    def counting(self, name, value):
        nonlocal count
        count += name == "training"
        plain(self, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "__setattr__", counting)
        assert model.train() is model
    return count


def test_train_writes_nothing_where_every_module_is_in_training(model, monkeypatch):
    assert written(model, monkeypatch) == 0
    assert all(module.training for module in model.modules())


def test_a_single_module_in_evaluation_is_put_back(model, monkeypatch):
    model.model.layers[-1].mlp.eval()
    assert written(model, monkeypatch) == len(list(model.modules()))
    assert all(module.training for module in model.modules())


def test_a_module_with_a_train_of_its_own_is_asked_each_time(model):
    model.model.layers[0].extra = Counted(2, 2)
    model.train()
    model.train()
    assert model.model.layers[0].extra.calls == 2


def test_a_module_that_was_given_a_train_of_its_own_is_asked_too(model):
    calls = []
    model.model.layers[0].mlp.train = lambda mode: calls.append(mode)
    model.train()
    model.train()
    assert calls == [True, True]


def test_afterwards_the_model_is_as_it_was():
    model = tiny_model()
    with looking_before_train(model):
        assert "train" in vars(model)
    assert "train" not in vars(model)


def test_a_model_that_is_pickled_meanwhile_can_be_loaded(model):
    again = pickle.loads(pickle.dumps(model))
    assert not any(module.training for module in again.eval().modules())
    assert all(module.training for module in model.modules())


def test_a_trainer_leaves_no_train_of_its_own_behind(tmp_path):
    _, trainer = train(Trainer, WAYS["4x1"], loss="nll")
    assert "train" not in vars(trainer.model)
    torch.save(trainer.model, tmp_path / "whole.pt")
    again = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert again.state_dict().keys() == trainer.model.state_dict().keys()


def test_evaluation_and_back_reach_every_module(model):
    assert not any(module.training for module in model.eval().modules())
    assert all(module.training for module in model.train().modules())
    assert not any(module.training for module in model.train(False).modules())


def test_a_wrapper_around_the_model_sets_it_too(model):
    wrapper = nn.Sequential(model).eval()
    assert not any(module.training for module in model.modules())
    wrapper.train()
    assert all(module.training for module in model.modules())


def test_a_copy_of_the_model_sets_itself_and_not_the_first(model):
    other = copy.deepcopy(model).eval()
    assert not any(module.training for module in other.modules())
    assert all(module.training for module in model.modules())
