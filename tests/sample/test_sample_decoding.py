"""A decoding method as a value: spec strings, orders, names."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.sample.decoding import FILTERS, ORDERS, Decoding, Settings

unit = st.floats(0.01, 0.99)
some = st.fixed_dictionaries(
    {"temperature": st.floats(0.01, 5)},
    optional={
        "top_k": st.integers(1, 100),
        "top_p": unit,
        "min_p": unit,
        "typical": unit,
        "epsilon": unit,
        "eta": unit,
        "top_n_sigma": st.floats(0.1, 5),
        "kl_sigma": st.one_of(st.floats(0.1, 10), st.just(math.inf)),
        "without": st.sampled_from(["bos", "field"]),
        "order": st.sampled_from(list(ORDERS)),
    },
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(some)
def test_a_spec_string_gives_the_value_back(values):
    decoding = Decoding(**values)
    assert Decoding.parse(decoding.spec) == decoding
    kept = Settings.from_json(Settings(decoding=decoding).to_json())
    assert kept.decoding == decoding
    assert Decoding.parse(decoding.in_words).name == decoding.name


@settings(max_examples=100, deadline=None, derandomize=True)
@given(some, some)
def test_names_are_equal_exactly_when_the_steps_are(one, other):
    a, b = Decoding(**one), Decoding(**other)
    law = [(d.steps, d.kl_sigma, d.without if d.kl_sigma is not None else None) for d in (a, b)]
    assert (a.name == b.name) == (law[0] == law[1])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("t=0.7,topp=0.9", "did you mean 'top_p'"),
        ("temprature=1", "did you mean 'temperature'"),
        ("t=0.7,t=0.8", "given twice"),
        ("top_k=2.5", "not a whole number"),
        ("top_k=0", "a whole number >= 1"),
        ("t=-1", ">= 0"),
        ("t=nan", ">= 0"),
        ("top_p=0", "above 0"),
        ("top_p=1.2", "at most 1"),
        ("kl_sigma=0", "inf is plain sampling"),
        ("t=0,top_p=0.9", "greedy and leaves nothing to top_p"),
        ("t=1,order=last", "'last' is no step"),
        ("t=1,top_p=0.9,top_k=3,order=temperature>top_p", "must name each of temperature, top_k, top_p once"),
        ("kl_sigma=1,without=nothing", "bos or field"),
        ("t", "not name=value"),
        ("min_p=0.1 then t=3,order=vllm", "'then' already gives the order"),
    ],
)
def test_a_bad_spec_is_refused_with_what_is_legal(spec, words):
    with pytest.raises(ValueError, match=words):
        Decoding.parse(spec)


def test_the_order_is_explicit_and_settable():
    spec = "t=0.5,top_k=3,top_p=0.9"
    assert [n for n, _ in Decoding.parse(spec).steps] == ["temperature", "top_k", "top_p"]
    assert [n for n, _ in Decoding.parse(spec + ",order=temperature_last").steps] == ["top_k", "top_p", "temperature"]
    explicit = Decoding.parse(spec + ",order=top_p>temperature>top_k")
    assert [n for n, _ in explicit.steps] == ["top_p", "temperature", "top_k"]
    assert all(set(order) == {"temperature", *FILTERS} for order in ORDERS.values())


def test_then_gives_the_order():
    assert Decoding.parse("min_p=0.1 then t=3") == Decoding.truncate_then_heat(min_p=0.1, temperature=3)
    assert Decoding.parse("t=3 then min_p=0.1") == Decoding.parse("t=3,min_p=0.1")
    assert Decoding.parse("top_p=0.9 then t=2 then top_k=3").order == "top_p>temperature>top_k"
    assert Decoding.parse("min_p=0.1 then top_k=3").steps == (("min_p", 0.1), ("top_k", 3))
    assert [n for n, _ in Decoding.parse("min_p=0.1 then kl_sigma=3").steps] == ["min_p", "temperature"]
    assert [n for n, _ in Decoding.parse("kl_sigma=3 then min_p=0.1").steps] == ["temperature", "min_p"]


def test_numbers_of_numpy_are_written_as_any_others():
    drawn = Decoding(temperature=np.float64(0.7), min_p=np.float64(0.25))
    assert drawn == Decoding(temperature=0.7, min_p=0.25)
    assert Decoding.parse(drawn.spec) == drawn
    assert Decoding(temperature=np.float64(2)).name == "t2"


def test_methods_that_draw_alike_share_a_file_and_others_do_not():
    def name(spec, **more):
        return Settings(decoding=Decoding.parse(spec), **more).name

    assert name("t=0.7") == name("t=0.7,order=temperature_last") == name("t=0.7,top_p=1")
    assert name("t=1,top_k=5") == name("t=1,top_k=5,order=temperature_last")  # at t = 1 nothing is tempered
    names = [name("t=0.7"), name("t=0.7", seed=1), name("t=0.7", max_tokens=8), name("t=0.7,top_k=5")]
    names += [
        name("t=0.7,top_k=5,order=temperature_last"),
        name("t=0.7,kl_sigma=2"),
        name("t=0.7,kl_sigma=2,without=field"),
    ]
    assert len(set(names)) == len(names)
    assert all("/" not in n and " " not in n for n in names)


def test_the_file_name_of_a_setting_never_changes():
    """Files on disk are found by it: a change orphans every sample drawn before."""
    assert Settings(decoding=Decoding.parse("t=0.7,top_p=0.9"), max_tokens=160, seed=3).name == "t0.7_top_p0.9-7d87511c"
