"""Values go to JSON and back, and what does not fit is refused with a name one can act on."""

import json
import math
from dataclasses import dataclass, field

import pytest

from widen.data import MulMod
from widen.run.folder import RunFolder
from widen.run.value import content_hash, from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = math.inf
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    notes: dict[str, str] = field(default_factory=dict)
    limit: float | None = None


def test_a_value_survives_the_way_through_json():
    value = Outer(name="x", inner=Inner(rate=1e-3, sizes=(4,)), notes={"a": "b"}, limit=2)
    assert from_json(Outer, json.loads(json.dumps(to_json(value)))) == value
    assert from_json(Outer, json.loads(json.dumps(to_json(Outer(name="y"))))) == Outer(name="y")
    assert from_json(MulMod, to_json(MulMod(seed=3))) == MulMod(seed=3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"nam": "x"}, "unknown key 'nam'; did you mean 'name'"),
        ({"name": "x", "inner": {"rat": 1}}, "unknown key 'inner.rat'; did you mean 'rate'"),
        ({}, "missing key 'name'"),
        ({"name": 3}, "name: expected str, got 3"),
        ({"name": "x", "inner": {"rate": "fast"}}, "inner.rate: expected a number, got 'fast'"),
        ({"name": "x", "inner": {"sizes": [1, "b"]}}, r"inner.sizes\[1\]: expected int"),
        ({"name": "x", "inner": 3}, "expected an object"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(data, message):
    with pytest.raises(ValueError, match=message):
        from_json(Outer, data)


def test_the_hash_changes_with_the_content_and_only_with_it():
    assert content_hash(MulMod()) == content_hash(MulMod(seed=0))
    assert content_hash(MulMod()) != content_hash(MulMod(seed=1))


def test_a_folder_that_belongs_to_another_experiment_is_refused_and_left_as_it_is(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim({"model": "gpt2", "name": "a"}, {})
    folder.claim({"model": "gpt2", "name": "b"}, {})
    before = folder.config.read_bytes()
    with pytest.raises(ValueError, match="holds another model"):
        folder.claim({"model": "olmo"}, {})
    assert folder.config.read_bytes() == before


def test_a_file_of_another_schema_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.config.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="schema 99"):
        folder.read(folder.config)
    folder.config.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        folder.read(folder.config)
    with pytest.raises(FileNotFoundError, match="is not there"):
        folder.read(tmp_path / "scores.json")
