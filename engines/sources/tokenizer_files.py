"""What the files beside tokenizer.json say. Owns: named tokens, ends of an answer, the chat template; which file wins.
Needs: folder_json. Never: the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.errors import SourceError
from engines.sources.folder_json import CONFIG, read_object_or_empty

TOKENIZER_CONFIG, TOKEN_MAP, GENERATION = "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"
TEMPLATE = "chat_template.jinja"
LARGEST_TEMPLATE = 1 << 20  # bytes; what runs it takes less
FETCH_AGAIN = "Fetch the file again"


@dataclass(frozen=True, slots=True)
class NamedTokens:
    """What a folder calls its tokens, and its template."""

    texts: dict[str, str]  # bos, eos, unk, pad: those that are named
    ends: tuple[int, ...]  # eos_token_id of config.json and generation_config.json together
    bos_id: int | None  # of config.json
    adds_bos: bool | None  # None: tokenizer.json decides
    chat_template: str  # "": a base model


def read_named_tokens(folder: Path) -> NamedTokens:
    """SourceError for a file that is there and broken."""
    said, older = read_object_or_empty(folder / TOKENIZER_CONFIG), read_object_or_empty(folder / TOKEN_MAP)
    config, generation = read_object_or_empty(folder / CONFIG), read_object_or_empty(folder / GENERATION)
    texts = {}
    for name in ("bos", "eos", "unk", "pad"):
        key = f"{name}_token"
        path, value = (folder / TOKENIZER_CONFIG, said[key]) if key in said else (folder / TOKEN_MAP, older.get(key))
        if (text := _token_text(path, key, value)) is not None:
            texts[name] = text
    ends = {*_ids(folder / CONFIG, "eos_token_id", config), *_ids(folder / GENERATION, "eos_token_id", generation)}
    begins = _ids(folder / CONFIG, "bos_token_id", config)
    adds_bos = said.get("add_bos_token")
    if adds_bos is not None and not isinstance(adds_bos, bool):
        raise SourceError(f"{folder / TOKENIZER_CONFIG}: key add_bos_token: is not true or false. {FETCH_AGAIN}")
    return NamedTokens(texts, tuple(sorted(ends)), begins[0] if begins else None, adds_bos, _chat_template(folder, said))


def _token_text(path: Path, key: str, value: Any) -> str | None:
    """A token is written as its text, or as an object with its text and flags."""
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise SourceError(f"{path}: key {key}: is neither text nor an object with content. {FETCH_AGAIN}")
    return value


def _ids(path: Path, key: str, values: dict[str, Any]) -> tuple[int, ...]:
    """One id or a list of them; none where the key is missing or null."""
    value = values.get(key)
    items = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(item) is int and item >= 0 for item in items):
        raise SourceError(f"{path}: key {key}: is no token id and no list of them. {FETCH_AGAIN}")
    return tuple(items)


def _chat_template(folder: Path, said: dict[str, Any]) -> str:
    """A file of its own wins over tokenizer_config.json. Of several by name the one named default is meant."""
    path = folder / TEMPLATE
    if path.is_file():
        if path.stat().st_size > LARGEST_TEMPLATE:
            raise SourceError(f"{path}: has {path.stat().st_size:,} bytes, over {LARGEST_TEMPLATE:,}. {FETCH_AGAIN}")
        try:
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(f"{path}: byte {error.start:,} is not UTF-8. {FETCH_AGAIN}") from error
    where, value = f"{folder / TOKENIZER_CONFIG}: key chat_template", said.get("chat_template")
    if isinstance(value, list):
        defaults = [each.get("template") for each in value if isinstance(each, dict) and each.get("name") == "default"]
        if not defaults:
            raise SourceError(f"{where}: of its {len(value)} templates none is named default. {FETCH_AGAIN}")
        value = defaults[0]
    if value is None:
        return ""
    if not isinstance(value, str) or not is_unicode(value):
        raise SourceError(f"{where}: is not valid text. {FETCH_AGAIN}")
    return value


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: JSON can write half a surrogate pair."""
    return not any("\ud800" <= char <= "\udfff" for char in text)
