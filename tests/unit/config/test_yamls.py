"""The strict YAML loader: what it accepts, and what each mistake says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from edge.errors import ConfigError
from edge.yamls import load_named, load_yaml, yaml_names, yaml_root


@dataclass(frozen=True, slots=True)
class Part:
    package: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    context: int
    rate: float = 1.0
    precision: Literal["fp16", "int8"] = "fp16"
    terms: str | None = None
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] = (0, "")
    bits: dict[str, float] = field(default_factory=dict)
    fast: bool = False

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError("context must be at least 1")


def read(folder: Path, text: str) -> Example:
    path = folder / "example.yaml"
    path.write_text(text, encoding="utf-8")
    return load_yaml(path, Example)


def failure(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder), "")


def test_every_kind_of_field_is_read(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "name: smol\ncontext: 8192\nrate: 1e-5\nprecision: int8\nterms: null\nparts:\n  - {package: a, size_bytes: 3}\n"
        "pair: [7, x]\nbits: {embed: 8, ffn: 4.5}\nfast: true\n",
    )
    assert got == Example("smol", 8192, 1e-5, "int8", None, (Part("a", 3),), (7, "x"), {"embed": 8.0, "ffn": 4.5}, True)
    assert isinstance(got.bits["embed"], float)


def test_defaults_fill_what_the_file_leaves_out(tmp_path: Path) -> None:
    assert read(tmp_path, "name: smol\ncontext: 1\n") == Example("smol", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\ncontxt: 1\n", "/example.yaml:2: Example: unknown key 'contxt'. Did you mean 'context'?"),
        ("name: a\ncontext: 1\ncontext: 2\n", "/example.yaml:3: Example: key 'context' stands here and on line 2"),
        ("name: a\n", "/example.yaml:1: Example: missing context"),
        ("name: a\ncontext: many\n", "/example.yaml:2: Example.context: expected a whole number, found text (many)"),
        ("name: a\ncontext: 1.5\n", "/example.yaml:2: Example.context: expected a whole number, found a number (1.5)"),
        ("name: a\ncontext: true\n", "/example.yaml:2: Example.context: expected a whole number, found true or false (true)"),
        ("name: no\ncontext: 1\n", "/example.yaml:1: Example.name: expected text, found true or false (no). Quote it"),
        ("name:\ncontext: 1\n", "/example.yaml:1: Example.name: expected text, found nothing"),
        ("name: a\ncontext: 0\n", "/example.yaml:1: Example: context must be at least 1"),
        ("name: a\ncontext: 1\nrate: '1e-5'\n", "/example.yaml:3: Example.rate: expected a number, found text (1e-5)"),
        ("name: a\ncontext: 1\nprecision: int9\n", "/example.yaml:3: Example.precision: 'int9' is not allowed. Did you"),
        ("name: a\ncontext: 1\nprecision: [x]\n", "/example.yaml:3: Example.precision: 'a list' is not allowed"),
        ("name: a\ncontext: 1\nparts: 3\n", "/example.yaml:3: Example.parts: expected a list, found a whole number (3)"),
        ("name: a\ncontext: 1\npair: [1]\n", "/example.yaml:3: Example.pair: expected 2 items, found 1"),
        ("name: a\ncontext: 1\nparts:\n- package: a\n  size: 3\n", "/example.yaml:5: Example.parts[0]: unknown key 'size'."),
        ("name: a\ncontext: 1\nbits: {embed: x}\n", "/example.yaml:3: Example.bits.embed: expected a number, found text (x)"),
        ("name: a\ncontext: 1\nbits: {[1]: 2}\n", "/example.yaml:3: Example.bits: a key must be plain text, found a list"),
        ("name: a\ncontext: 1\nname: !!python/object:os.system x\n", "/example.yaml:3: Example: key 'name' stands here"),
        ("name: !!python/name:os.system x\ncontext: 1\n", "/example.yaml:1: 'x' cannot be read as os.system"),
        ("name: [a\n", "/example.yaml:2: not valid YAML"),
        ("- a\n", "/example.yaml:1: Example: expected keys and values, found a list"),
        ("", "/example.yaml:1: the file is empty"),
        ("name: 2024-13-77\ncontext: 1\n", "/example.yaml:1: '2024-13-77' cannot be read as timestamp"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_and_line(tmp_path: Path, text: str, expected: str) -> None:
    assert failure(tmp_path, text).startswith(expected)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        load_yaml(tmp_path / "gone.yaml", Example)
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"binary\.yaml: cannot be read: it is not UTF-8"):
        load_yaml(tmp_path / "binary.yaml", Example)


def test_an_unknown_name_says_which_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"devices: no 'cpuu'\. Did you mean 'cpu'\? There are: .*cpu"):
        load_named("devices", "cpuu", Example)
    with pytest.raises(ConfigError, match="There are: "):
        load_named("devices", "../devices/cpu", Example)
    assert "cpu" in yaml_names("devices")


def test_the_yaml_folder_holds_no_python() -> None:
    """A package named yaml in the checkout would shadow PyYAML."""
    assert list(yaml_root().rglob("*.py")) == []


def test_a_file_that_nests_without_end_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"example\.yaml: nested too deeply"):
        read(tmp_path, "name: " + "[" * 5000)


@pytest.mark.parametrize("value", ["!!timestamp soon", "!!binary x", "!!python/object:os.system x", "!own x", "!!set {a}"])
def test_a_value_with_a_tag_that_no_field_has_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"expected text|cannot be read as"):
        read(tmp_path, f"name: {value}\ncontext: 1\n")
