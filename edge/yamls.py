"""YAML files as frozen dataclasses, read once and strictly. Owns: the folder of shipped YAML, the loader. Needs: PyYAML.
Never: defaults of its own; what a file may say is what its dataclass says."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from edge.errors import ConfigError
from edge.jsons import TYPE_WORDS

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")

_TAGS = {**{kind.__name__: word for kind, word in TYPE_WORDS.items()}, "null": "nothing"}  # by the end of a YAML tag


def yaml_root() -> Path:
    """The folder of the YAML files: `edge/_yaml` where installed, `yaml/` in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "_yaml", here.parent / "yaml"):
        if folder.is_dir():
            return folder
    raise ConfigError(f"{here / '_yaml'}: no YAML files. Install again: ./install.sh")


def yaml_names(folder: str) -> tuple[str, ...]:
    """Names of the files in one folder of the YAML root (`devices`, `tiers`, `models`), sorted, without the ending."""
    return tuple(sorted(path.stem for path in (yaml_root() / folder).glob("*.yaml")))


def load_named(folder: str, name: str, cls: type[T]) -> T:
    """`load_yaml` of FOLDER/NAME.yaml; an unknown name fails with the names that there are."""
    names = yaml_names(folder)
    if name not in names:  # compared with the listing, so a name cannot lead out of the folder
        raise ConfigError(f"{folder}: no {name!r}{_nearest(name, names)} There are: {', '.join(names)}")
    return load_yaml(yaml_root() / folder / f"{name}.yaml", cls)


def load_yaml(path: Path, cls: type[T]) -> T:
    """The file as an instance of the dataclass `cls`.

    Fields may be str, int, float, bool, Literal, X | None, tuple[X, ...], dict[str, X] and nested dataclasses. ConfigError,
    with file and line, where the file is not YAML, or a key is unknown, missing or double, or a value has another type; a
    ValueError from `__post_init__` counts as that too.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}. Check the path and its permissions") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply. Correct it") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else f"{path}"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: not valid YAML: {problem}. Correct that line") from error
    if node is None:
        raise ConfigError(f"{path}:1: the file is empty. Write the keys of {cls.__name__} into it")
    value: T = _Reader(path).read(node, cls, cls.__name__)
    return value


class _Reader:
    """Turns nodes into values. A node knows its line, which a plain `yaml.safe_load` forgets."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, node: yaml.Node, message: str) -> NoReturn:
        raise ConfigError(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def read(self, node: yaml.Node, kind: Any, key: str) -> Any:
        """`node` as `kind` (a type as written in a dataclass); `key` is its path in messages."""
        origin = get_origin(kind)
        if is_dataclass(kind):
            return self._dataclass(node, kind, key)
        if origin is Literal:
            return self._literal(node, get_args(kind), key)
        if origin in (Union, types.UnionType):
            return self._optional(node, get_args(kind), key)
        if origin is tuple:
            return self._tuple(node, get_args(kind), key)
        if origin is dict:
            item = get_args(kind)[1]
            return {name: self.read(child, item, f"{key}.{name}") for name, (_, child) in self._pairs(node, key).items()}
        return self._scalar(node, kind, key)

    def _pairs(self, node: yaml.Node, key: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        import yaml

        if not isinstance(node, yaml.MappingNode):
            self.fail(node, f"{key}: expected keys and values, found {_found(node)}. Write `key: value` lines")
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                self.fail(name, f"{key}: a key must be plain text, found {_found(name)}. Quote it")
            if name.value in pairs:
                first = pairs[name.value][0].start_mark.line + 1
                self.fail(name, f"{key}: key {name.value!r} stands here and on line {first}. Keep one of them")
            pairs[name.value] = (name, value)
        return pairs

    def _dataclass(self, node: yaml.Node, cls: Any, key: str) -> Any:
        hints, known = get_type_hints(cls), [field.name for field in fields(cls)]
        required = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
        pairs = self._pairs(node, key)
        for name, (at, _) in pairs.items():
            if name not in known:
                self.fail(at, f"{key}: unknown key {name!r}{_nearest(name, known)} Known keys: {', '.join(known)}")
        missing = [name for name in required if name not in pairs]
        if missing:
            self.fail(node, f"{key}: missing {', '.join(missing)}. Add {'it' if len(missing) == 1 else 'them'}")
        values = {name: self.read(child, hints[name], f"{key}.{name}") for name, (_, child) in pairs.items()}
        try:
            return cls(**values)
        except ValueError as error:
            self.fail(node, f"{key}: {error}")

    def _literal(self, node: yaml.Node, allowed: tuple[Any, ...], key: str) -> Any:
        found = self._plain(node)
        for value in allowed:
            if type(value) is type(found) and value == found:
                return value
        words = [str(value) for value in allowed]
        given = getattr(node, "value", "") if isinstance(getattr(node, "value", ""), str) else _found(node)
        self.fail(node, f"{key}: {given!r} is not allowed{_nearest(given, words)} Allowed: {', '.join(words)}")

    def _optional(self, node: yaml.Node, kinds: tuple[Any, ...], key: str) -> Any:
        assert len(kinds) == 2, f"{key}: of the unions only X | None is read"
        if node.tag == "tag:yaml.org,2002:null":
            return None
        return self.read(node, kinds[0] if kinds[1] is type(None) else kinds[1], key)

    def _tuple(self, node: yaml.Node, kinds: tuple[Any, ...], key: str) -> tuple[Any, ...]:
        import yaml

        if not isinstance(node, yaml.SequenceNode):
            self.fail(node, f"{key}: expected a list, found {_found(node)}. Write `[a, b]` or lines that start with `-`")
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            kinds = (kinds[0],) * len(node.value)
        if len(kinds) != len(node.value):
            self.fail(node, f"{key}: expected {len(kinds)} items, found {len(node.value)}")
        items = enumerate(zip(node.value, kinds, strict=True))
        return tuple(self.read(child, kind, f"{key}[{i}]") for i, (child, kind) in items)

    def _scalar(self, node: yaml.Node, kind: Any, key: str) -> Any:
        value = self._plain(node)
        if kind is float and isinstance(value, str) and getattr(node, "style", None) is None:
            # YAML 1.1 reads 1e-5 (no dot) as text; who writes it into a number field means the number.
            value = _as_number(value)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not kind:
            hint = "Quote it" if kind is str else "Correct the value"
            self.fail(node, f"{key}: expected {TYPE_WORDS[kind]}, found {_found(node)}. {hint}")
        return value

    def _plain(self, node: yaml.Node) -> Any:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            return None
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (AttributeError, ValueError, yaml.YAMLError):  # AttributeError: what a tag calls a date and is none
            self.fail(node, f"{node.value!r} cannot be read as {node.tag.rsplit(':', 1)[-1]}. Quote it")


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _found(node: yaml.Node) -> str:
    tag = node.tag.rsplit(":", 1)[-1]
    if tag in ("map", "seq"):
        return "a mapping" if tag == "map" else "a list"
    return f"{_TAGS.get(tag, tag)} ({node.value})" if node.value else _TAGS.get(tag, tag)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f". Did you mean {near[0]!r}?" if near else "."
