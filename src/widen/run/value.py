"""Frozen dataclasses to JSON and back. Infinity is written as the string "inf", a decoding as its spec, tuples as lists."""

from __future__ import annotations

import hashlib
import json
import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from widen.sample.decoding import Decoding

T = TypeVar("T")
NEWER = {"newer": True}
"""Metadata of a dataclass field that came later: JSON leaves it out at its default, so that hashes of older values stay."""
Reader = Callable[[Any], Any]


def to_json(value: Any) -> Any:
    """JSON data of a value made of dataclasses, tuples, dicts, numbers, strings and None.

    >>> from widen.data import MulMod
    >>> to_json(MulMod(seed=3))["seed"]
    3
    """
    if isinstance(value, Decoding):
        return value.spec
    if is_dataclass(value) and not isinstance(value, type):
        shown = (f for f in fields(value) if not (f.metadata.get("newer") and getattr(value, f.name) == f.default))
        return {f.name: to_json(getattr(value, f.name)) for f in shown}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON form")


def from_json(kind: type[T], data: Any, *, where: str = "", readers: Mapping[str, Reader] | None = None) -> T:
    """The dataclass ``kind`` from JSON data; missing keys take their defaults, unknown keys are refused.

    ``readers`` read fields whose type is not enough, such as a union of dataclasses.

    >>> from widen.data import MulMod
    >>> from_json(MulMod, {"sed": 3})
    Traceback (most recent call last):
    ...
    ValueError: unknown key 'sed'; did you mean 'seed'? Keys: modulus, low, high, under_representation, num_samples, seed, distinct
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where or kind.__name__}: expected an object with the keys of {kind.__name__}, got {data!r}")
    hints, known, special = get_type_hints(kind), {f.name: f for f in fields(kind)}, readers or {}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ValueError(f"unknown key {_at(where, key)!r}{hint} Keys: {', '.join(known)}")
    for name, f in known.items():
        if name not in data and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"missing key {_at(where, name)!r} of {kind.__name__}")
    read = {key: special.get(key) or partial(_build, hints[key], where=_at(where, key)) for key in data}
    return kind(**{key: read[key](item) for key, item in data.items()})


def _build(hint: Any, data: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        kinds = [arg for arg in args if arg is not type(None)]
        lists = [arg for arg in kinds if get_origin(arg) is tuple] if isinstance(data, list) else []
        return _build((lists or kinds)[0], data, where)
    if hint is Decoding:
        return Decoding.parse(_expect(str, data, where))
    if is_dataclass(hint):
        return from_json(hint, data, where=where)  # type: ignore[arg-type]
    if origin is tuple:
        return tuple(_build(args[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, data, where)))
    if origin is dict:
        return {key: _build(args[1], item, _at(where, key)) for key, item in _expect(dict, data, where).items()}
    if hint is float:
        if isinstance(data, bool) or (not isinstance(data, (int, float)) and data not in ("inf", "-inf", "nan")):
            raise ValueError(f"{where}: expected a number, got {data!r}")
        return float(data)
    return _expect(hint, data, where) if isinstance(hint, type) and hint is not Any else data


def _expect(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ValueError(f"{where}: expected {kind.__name__}, got {data!r}")
    return data


def _at(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def read_config(path: str | Path) -> Any:
    """The content of a config file, JSON or (.yaml, .yml) YAML."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"config file {path} is not there") from None
    if Path(path).suffix in (".yaml", ".yml"):
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("YAML configs need PyYAML: pip install pyyaml") from None

        class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML is not typed
            """YAML 1.1, which takes 1e-3 for a word, with the numbers of YAML 1.2."""

        number = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
        Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
        try:
            return yaml.load(text, Loader=Loader)
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def content_hash(*parts: Any) -> str:
    """Sixteen hex digits of the values' content."""
    text = json.dumps([to_json(part) for part in parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def set_key(data: dict[str, Any], dotted: str, text: str) -> None:
    """Set one dotted key of a config's JSON. The value is JSON or a plain word; a null on the way becomes an object.

    >>> data = {"lora": None}
    >>> set_key(data, "lora.rank", "8")
    >>> data
    {'lora': {'rank': 8}}
    """
    *path, last = dotted.split(".")
    at: Any = data
    for step in path:
        if at.get(step) is None:
            at[step] = {}
        at = at[step]
        if not isinstance(at, dict):
            raise ValueError(f"unknown key {dotted!r}: {step!r} is a plain value and has no keys")
    try:
        at[last] = json.loads(text)
    except json.JSONDecodeError:
        at[last] = text


def file_name(text: str) -> str:
    """Text as part of a file name: everything but letters, digits, dots, dashes and equals signs becomes an underscore."""
    return "".join(c if c.isalnum() or c in ".=-" else "_" for c in text)
