"""JSON as frozen dataclasses, strictly, both ways. Owns: the reader and the writer. Needs: nothing. Never: files, defaults.

Every key must be there and none more: what we wrote ourselves and reads differently is damaged, or of another version.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
from collections import Counter
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

TYPE_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}  # in messages


class JsonMismatch(ValueError):
    """The text is not what the dataclass says. The caller names the file and the way out."""


def write_json(value: Any) -> str:
    """`value` (a dataclass) as indented JSON with a line end; NaN and infinities raise ValueError."""
    return json.dumps(dataclasses.asdict(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(text: str, cls: type[T]) -> T:
    """`text` as an instance of the dataclass `cls`. JsonMismatch, with the path of the key, where it does not fit."""
    value: T = read_value(parse_json(text), cls, "")
    return value


def parse_json(text: str) -> Any:
    """Plain values of `text`. JsonMismatch where it is not JSON, has a key twice, or holds NaN or an infinity."""
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise JsonMismatch("nested too deeply") from error
    except json.JSONDecodeError as error:
        raise JsonMismatch(f"line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:  # also a whole number of more than 4,300 digits
        raise JsonMismatch(str(error)) from error


def read_value(value: Any, kind: Any, key: str) -> Any:
    """A plain value as `kind`: str, int, float, bool, Literal, X | None, tuple, dict[str, X] or a dataclass."""
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(value, kind, key)
    if origin is Literal:
        return _literal(value, get_args(kind), key)
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(kind) if each is not type(None)]
        assert len(inner) == 1, f"{key}: of the unions only X | None is read"
        return None if value is None else read_value(value, inner[0], key)
    if origin is tuple:
        return _tuple(value, get_args(kind), key)
    if origin is dict:
        if not isinstance(value, dict):
            raise _mismatch(key, "keys and values", value)
        return {name: read_value(item, get_args(kind)[1], _join(key, name)) for name, item in value.items()}
    return _scalar(value, kind, key)


def _dataclass(value: Any, cls: Any, key: str) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(key, "keys and values", value)
    kinds = _field_kinds(cls)
    unknown = [name for name in value if name not in kinds]
    if unknown:
        raise JsonMismatch(f"unknown key {_join(key, unknown[0])!r}")
    missing = [name for name in kinds if name not in value]
    if missing:
        raise JsonMismatch(f"missing key {_join(key, missing[0])!r}")
    try:
        return cls(**{name: read_value(value[name], kind, _join(key, name)) for name, kind in kinds.items()})
    except JsonMismatch:
        raise
    except ValueError as error:  # from __post_init__
        raise JsonMismatch(f"{key}: {error}" if key else str(error)) from error


@functools.cache  # a manifest has hundreds of tensors, and evaluating annotations takes longer than reading them
def _field_kinds(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _literal(value: Any, allowed: tuple[Any, ...], key: str) -> Any:
    for each in allowed:
        if type(each) is type(value) and each == value:
            return each
    raise JsonMismatch(f"{key}: {_short(value)} is none of {', '.join(str(each) for each in allowed)}")


def _tuple(value: Any, kinds: tuple[Any, ...], key: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _mismatch(key, "a list", value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise JsonMismatch(f"{key}: expected {len(kinds)} items, found {len(value)}")
    return tuple(read_value(item, kind, f"{key}[{i}]") for i, (item, kind) in enumerate(zip(value, kinds, strict=True)))


def _scalar(value: Any, kind: Any, key: str) -> Any:
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        value = float(value)
    if type(value) is not kind:
        raise _mismatch(key, TYPE_WORDS[kind], value)
    if kind is float and not math.isfinite(value):  # 1e999 is valid JSON and reads as infinity
        raise JsonMismatch(f"{key}: not a finite number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise JsonMismatch(f"key {twice!r} stands there twice")
    return result


def _refuse_constant(word: str) -> Any:
    raise JsonMismatch(f"{word} is not a number")


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _mismatch(key: str, expected: str, value: Any) -> JsonMismatch:
    return JsonMismatch(f"{key or 'the file'}: expected {expected}, found {_short(value)}")


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:  # writing nests deeper than reading
        return "something nested deeply"
    return text if len(text) <= 40 else text[:37] + "..."
