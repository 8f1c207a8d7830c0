"""A loss object goes wherever a spec string goes: stored as module:Class(fields), read back from that, or refused with a sentence."""

import math
from dataclasses import dataclass

import pytest
from own_losses import Focal, Power

from widen.losses import CDiv, Product, TokenWeight, Warmup, parse, spec

OWN = [
    Focal(),
    Power(power=2.5),
    Power(power=-1.0, floor=0.1, cap=math.inf, tags=("a*b", "c")),
    Product(Power(power=2.0), CDiv(alpha=1.4)),
    Warmup(steps=3, then=Power(power=0.5, cap=7.0)),
]


@pytest.mark.parametrize("loss", OWN, ids=lambda loss: type(loss).__name__)
def test_a_loss_of_ones_own_is_read_back_from_its_spec(loss):
    again = parse(spec(loss))
    assert spec(again) == spec(loss)
    assert type(again) is type(loss)
    assert again == loss or isinstance(loss, Focal)


def test_the_spec_of_an_own_loss_names_its_module_its_class_and_the_fields_that_differ():
    assert spec(Focal()) == "own_losses:Focal()"
    assert spec(Power(power=2.5)) == "own_losses:Power(power=2.5)"
    assert spec(Warmup(steps=3, then=Focal())) == "nll:steps=3 then own_losses:Focal()"


def test_equal_losses_have_one_spec_whatever_they_were_given_as():
    assert spec("gold") == spec(CDiv(alpha=0.5)) == spec("cdiv:alpha=0.50")
    assert parse("widen.losses:CDiv(alpha=1.4)") == CDiv(alpha=1.4)
    assert spec("widen.losses:CDiv(alpha=1.4)") == spec("cdiv:alpha=1.4")


def test_what_could_not_be_read_back_is_refused_with_a_sentence():
    @dataclass(frozen=True)
    class Local(TokenWeight):
        power: float = 1.0

    class Loose(Focal):
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
        ("own_losses:Power(cap=0)", "cap=0 leaves no token any weight"),
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
