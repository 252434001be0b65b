"""The JSON files of a model folder. Owns: their limits, the flat form of config.json. Needs: jsons, keys. Never: what a key
means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edge.errors import SourceError
from edge.jsons import JsonMismatch, parse_json
from engines.sources.gguf_header import Value
from engines.sources.keys import Keys

CONFIG = "config.json"
LARGEST_BYTES = 16 << 20  # an index of 100,000 tensors has 10 MB
MAX_DEPTH = 8  # a configuration nests to 3
FETCH_AGAIN = "Fetch the file again"


def read_object(path: Path, at_most: int = LARGEST_BYTES) -> dict[str, Any]:
    """The keys of a JSON file. SourceError where it is missing, too large, or holds anything else."""
    try:
        size = path.stat().st_size
        if size > at_most:
            raise SourceError(f"{path}: has {size:,} bytes, over {at_most:,}. {FETCH_AGAIN}")
        value = parse_json(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror}). Check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: byte {error.start:,} is not UTF-8. {FETCH_AGAIN}") from error
    except JsonMismatch as error:
        raise SourceError(f"{path}: {error}. {FETCH_AGAIN}") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path}: does not hold keys and values. {FETCH_AGAIN}")
    return value


def read_object_or_empty(path: Path) -> dict[str, Any]:
    """The keys of a file that a folder may lack."""
    return read_object(path) if path.is_file() else {}


def flat_keys(path: Path, values: dict[str, Any]) -> Keys:
    """The keys of config.json by dotted names ("rope_scaling.factor"), those that are null apart. Lists are arrays of numbers
    or tuples of texts; what is neither stands as its JSON text, which no typed read takes."""
    found: dict[str, Value] = {}
    nulls: list[str] = []

    def add(prefix: str, nested: dict[str, Any], depth: int) -> None:
        for key, value in nested.items():
            name = prefix + key
            if not name.isprintable() or len(name) > 255 or depth > MAX_DEPTH:
                raise SourceError(f"{path}: key {name[:60]!a}: is unprintable, too long or too deep. {FETCH_AGAIN}")
            if isinstance(value, dict):
                add(name + ".", value, depth + 1)
            elif name in found:
                raise SourceError(f"{path}: key {name} stands there twice. {FETCH_AGAIN}")
            elif value is None:
                nulls.append(name)
            else:
                found[name] = _value(value)

    add("", values, 1)
    return Keys(path, found, nulls)


def _value(value: Any) -> Value:
    if isinstance(value, bool | int | float | str):
        return value
    assert isinstance(value, list), "JSON has no other values"
    if value and all(isinstance(item, str) for item in value):
        return tuple(value)
    kinds = {type(item) for item in value}
    if kinds == {bool} or (kinds <= {int, float} and all(abs(item) < 1 << 63 for item in value)):
        return np.array(value)
    return json.dumps(value)
