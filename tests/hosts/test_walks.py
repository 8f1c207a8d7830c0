"""The model's ``train()`` and ``parameters()`` while a trainer of ours runs: what they do is what they always did, in fewer steps."""

import copy
import pickle

import pytest
import torch
from torch import nn
from trainer_runs import WAYS, tiny_model, train

from widen.hosts.transformers import Trainer
from widen.hosts.walks import short_walks


class Counted(nn.Linear):
    """Has a ``train`` of its own, which must be called whether or not a flag changes."""

    calls = 0

    def train(self, mode=True):
        self.calls += 1
        return super().train(mode)


@pytest.fixture
def model():
    model = tiny_model()
    with short_walks(model), short_walks(model):
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
    before = vars(model).keys()
    with short_walks(model):
        assert {"train", "parameters"} <= vars(model).keys()
    assert vars(model).keys() == before


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


class Hidden(nn.Module):
    """Has more parameters than it shows to ``nn.Module``."""

    def __init__(self):
        super().__init__()
        self.shown = nn.Linear(2, 2)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self  # and none of its children


def same(model):
    """Whether the parameters are those that ``nn.Module`` finds, in its order."""
    found, expected = list(model.parameters()), list(nn.Module.parameters(model))
    return len(found) == len(expected) and all(a is b for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_is_found_once_and_in_the_same_order(tied):
    model = tiny_model(tied=tied)
    model.extra = nn.ParameterList([torch.zeros(2), model.lm_head.weight])
    model.model.register_parameter("none", None)
    with short_walks(model):
        assert same(model)
        assert list(model.parameters(recurse=False)) == []
        model.model.layers[0].mlp.later = nn.Linear(2, 2)
        assert same(model)


def test_a_module_with_a_walk_of_its_own_keeps_it(model):
    model.model.layers[0].extra = Hidden()
    assert same(model)
    assert not any(p is model.model.layers[0].extra.shown.weight for p in model.parameters())


@pytest.mark.parametrize("where", ["the model", "a layer"])
def test_a_walk_that_a_module_was_given_is_kept(model, where):
    one = model if where == "the model" else model.model.layers[0]
    one.named_modules = lambda memo=None, prefix="", remove_duplicate=True: iter([(prefix, one)])
    assert same(model)
    assert len(list(model.parameters())) < len(list(tiny_model().parameters()))


def test_gradients_are_dropped_by_the_short_walk_too(model):
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    model.zero_grad()
    assert all(p.grad is None for p in nn.Module.parameters(model))


def test_an_adapter_around_the_model_is_walked_too():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny_model(), peft.LoraConfig(target_modules="all-linear"))
    with short_walks(model):
        assert "parameters" in vars(model)
        assert same(model)
