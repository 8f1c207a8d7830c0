"""A loss object goes wherever a spec string goes: stored as module:Class(fields), read back from that, or refused with a sentence."""

import math
from dataclasses import dataclass

import pytest
import torch
from own_losses import Power, Rare, Softer, Unsure

from widen.losses import CDiv, Focal, Product, Rows, SequenceWeight, TokenWeight, Warmup, parse, spec, weighted_nll

OWN = [
    Unsure(),
    Power(power=2.5),
    Power(power=-1.0, floor=0.1, cap=math.inf, tags=("a*b", "c")),
    Product(Power(power=2.0), CDiv(alpha=1.4)),
    Warmup(steps=3, then=Power(power=0.5, cap=7.0)),
    Rare(share=0.25),
]


@pytest.mark.parametrize("loss", OWN, ids=lambda loss: type(loss).__name__)
def test_a_loss_of_ones_own_is_read_back_from_its_spec(loss):
    again = parse(spec(loss))
    assert spec(again) == spec(loss)
    assert type(again) is type(loss)
    assert again == loss or isinstance(loss, Unsure)


def test_the_spec_of_an_own_loss_names_its_module_its_class_and_the_fields_that_differ():
    assert spec(Unsure()) == "own_losses:Unsure()"
    assert spec(Power(power=2.5)) == "own_losses:Power(power=2.5)"
    assert spec(Warmup(steps=3, then=Unsure())) == "nll:steps=3 then own_losses:Unsure()"


def test_equal_losses_have_one_spec_whatever_they_were_given_as():
    assert spec("gold") == spec(CDiv(alpha=0.5)) == spec("cdiv:alpha=0.50")
    assert parse("widen.losses:CDiv(alpha=1.4)") == CDiv(alpha=1.4)
    assert spec("widen.losses:CDiv(alpha=1.4)") == spec("cdiv:alpha=1.4")


def test_what_could_not_be_read_back_is_refused_with_a_sentence():
    @dataclass(frozen=True)
    class Local(TokenWeight):
        power: float = 1.0

    class Loose(Unsure):
        def __init__(self):
            self.power = 2

    Main = type("Main", (TokenWeight,), {"__module__": "__main__"})
    Loose.__qualname__, Loose.__module__ = "Loose", "own_losses"
    for loss, words in (
        (Local(), "move the class to the top level of a module"),
        (Main(), "__main__:Main cannot be stored"),
        (Loose(), "make it a frozen dataclass"),
        (Power(extra=[1, object]), r"own_losses:Power.extra=.* a field must be a number"),
    ):
        with pytest.raises(ValueError, match=words):
            spec(loss)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nowhere:Loss()", "cannot import Loss from nowhere"),
        ("own_losses:Nothing()", "cannot import Nothing from own_losses"),
        ("own_losses:Power(2.0)", "write the fields as name=value"),
        ("own_losses:Power(pow=2.0)", "unexpected keyword argument 'pow'"),
        ("own_losses:Power(cap=0)", r"cap=0 is out of range; legal: 0 < cap <= inf \(0 leaves no token any weight\)"),
        ("pathlib:Path()", "Path is not a loss"),
    ],
)
def test_a_wrong_class_spec_is_refused_with_its_reason(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_a_spec_calls_nothing_but_a_loss(tmp_path):
    """A config may come from a stranger."""
    for text in (f"subprocess:Popen(args=['touch', '{tmp_path}/made'])", f"pathlib:Path.mkdir(self='{tmp_path}/made')"):
        with pytest.raises(ValueError, match="is not a loss"):
            parse(text)
    assert list(tmp_path.iterdir()) == []


def test_a_sequence_weight_has_the_gradient_of_a_loss_of_the_whole_sequence():
    torch.manual_seed(0)
    logq = (torch.rand(3, 4, dtype=torch.float64) * 0.9 + 0.05).log().requires_grad_()
    mask = torch.tensor([[True] * 4, [True, True, False, False], [False, True, True, False]])
    loss, _ = weighted_nll(logq, mask, Rare(share=0.7), (), num_tokens=8)
    (grad,) = torch.autograd.grad(loss, logq)
    whole = torch.where(mask, logq, 0).sum(1)
    (expected,) = torch.autograd.grad((-whole - 0.7 * whole.exp()).sum() / 8, logq)
    torch.testing.assert_close(grad, expected)
    with pytest.raises(TypeError, match="Rare weighs whole sequences, not tokens"):
        Rare().weigh(Rows(logq.detach()))
    with pytest.raises(TypeError, match="must define weigh_sequences"):
        SequenceWeight().apply(Rows(logq.detach()), mask, ())


def test_the_detached_weight_of_the_example_is_not_focal_loss():
    logq = torch.tensor([[0.5, 0.2]], dtype=torch.float64).log().requires_grad_()
    mask = torch.ones(1, 2, dtype=torch.bool)
    (focal,) = torch.autograd.grad((-((1 - logq.exp()) ** 2) * logq).sum(), logq)

    class Unsure(TokenWeight):
        def weigh(self, rows):
            return (-torch.expm1(rows.logq)) ** 2

    grads = [
        torch.autograd.grad(weighted_nll(logq, mask, one, (), num_tokens=1)[0], logq)[0]
        for one in (Focal(gamma=2), Unsure())
    ]
    torch.testing.assert_close(grads[0], focal)
    assert (grads[1] - focal).abs().min() > 0.1


def test_a_subclass_of_a_loss_prints_as_itself_and_not_as_its_parent():
    assert str(Softer(drop=0.1)).startswith("Softer(")
    assert spec(Softer(drop=0.1, share=0.25)) == "own_losses:Softer(drop=0.1, share=0.25)"
