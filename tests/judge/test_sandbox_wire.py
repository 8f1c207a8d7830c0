"""Plain values survive the wire; hostile bytes become a refusal, never code."""

import collections
import datetime
import decimal
import fractions
import json
import math
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widen.judge.inside import wire

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**60)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
scalars |= (
    st.complex_numbers(allow_nan=False)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
hashable = scalars | st.tuples(scalars, scalars) | st.frozensets(scalars, max_size=3)
values = st.recursive(
    scalars | st.sets(hashable, max_size=3) | st.dictionaries(hashable, scalars, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


def refuse(*args):
    raise AssertionError(f"not plain: {args}")


def there_and_back(value):
    return wire.decode(json.loads(json.dumps(wire.encode(value, refuse))), refuse)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(values)
def test_a_plain_value_comes_back_with_its_type(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_a_subclass_is_not_plain_and_its_value_is_exact():
    point = collections.namedtuple("point", "x y")(1, 2)
    assert wire.encode(point, lambda value: "handle") == "handle"
    assert wire.base_value(point) == (1, 2)
    assert type(wire.base_value(point)) is tuple
    assert wire.base_value({1: 2}.keys()) == {1}


@pytest.mark.parametrize(
    "value",
    [
        collections.deque([1, 2], maxlen=3),
        collections.Counter("aab"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        range(3, 9, 2),
        bytearray(b"\x00\xff"),
        -0.0,
        float("inf"),
        10**5000,
        -(2**63),
        int,
        type(None),
        decimal.Decimal("1.50"),
        fractions.Fraction(1, 3),
        datetime.timedelta(days=1, microseconds=5),
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_odd_ones_come_back_too(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)
    assert isinstance(value, int) or repr(back) == repr(value)  # -0.0, the order of an OrderedDict, Decimal's zeros


def test_not_a_number_comes_back_as_one():
    assert math.isnan(there_and_back(float("nan")))


@pytest.mark.parametrize(
    "value", [np.arange(6).reshape(2, 3), np.array(["ab", "c"]), np.zeros((0, 2)), np.array([1 + 2j])]
)
def test_arrays_of_numbers_are_plain(value):
    back = there_and_back(value)
    np.testing.assert_array_equal(back, value)
    assert back.dtype == value.dtype


def test_an_array_scalar_stays_one():
    assert type(there_and_back(np.float32(1.5))) is np.float32


@pytest.mark.parametrize(
    "hostile",
    [
        {"t": 5},
        {"i": "zz"},
        {"i": None},
        {"d": [[[], 1]]},
        {"s": [[1]]},
        {"r": [0, 1, 0]},
        {"F": [1, 0]},
        {"D": "x"},
        {"F": []},
        {"q": []},
        {"q": [[1], "x"]},
        {"n": ["(1,", [1], "x", True]},
        {"n": ["(2,)i4", [1], "x", True]},
        {"n": ["i4,i4", [1], "x" * 8, True]},
        {"n": [["i4"], [1], "xxxx", True]},
        {"n": ["O", [1], "x", True]},
        {"n": ["<i8", [10**9], "", True]},
        {"n": 3},
        {"c": ["a", "b"]},
        {"b": "\u2603"},
        {"time": "never"},
        {"type": "eval"},
        {"type": []},
        {"t": [], "s": []},
        {},
    ],
)
def test_a_broken_value_is_refused(hostile):
    with pytest.raises(wire.WireError):
        wire.decode(hostile, lambda tag, body: None)


def test_a_value_that_is_nested_too_deeply_is_refused():
    data = 1
    for _ in range(3000):
        data = [data]
    with pytest.raises(wire.WireError):
        wire.decode(data, lambda tag, body: None)


def piped(raw: bytes) -> wire.Channel:
    reader, writer = os.pipe()
    os.write(writer, raw)
    os.close(writer)
    return wire.Channel(reader, -1)


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff", struct.pack(">I", 3) + b"{{{", struct.pack(">I", 50_000) + b"[" * 50_000]
)
def test_a_hostile_frame_is_refused(raw):
    channel = piped(raw)
    with pytest.raises(wire.WireError):
        channel.receive()
    os.close(channel.reader)


@pytest.mark.parametrize("raw", [b"", b"\x00", struct.pack(">I", 10) + b"123"])
def test_an_end_inside_a_frame_is_an_end(raw):
    channel = piped(raw)
    with pytest.raises(wire.Closed):
        channel.receive()
    os.close(channel.reader)


def test_frames_that_arrive_together_are_read_apart():
    frames = b"".join(struct.pack(">I", len(body)) + body for body in (b"[1]", b"[2]"))
    channel = piped(frames)
    assert [channel.receive(), channel.receive()] == [[1], [2]]
    os.close(channel.reader)


def test_a_message_too_long_to_be_received_is_not_sent():
    with pytest.raises(wire.WireError, match="over the limit"):
        wire.Channel(-1, -1).send("x" * wire.FRAME_LIMIT)
