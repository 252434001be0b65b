"""What a model folder says of its licence. Owns: the head of README.md, the first line of LICENSE. Needs: nothing.
Never: judging a licence."""

from __future__ import annotations

import re
from pathlib import Path

CARD_BYTES = 1 << 16  # the metadata stand in front
KNOWN_TEXTS = {"apache license": "apache-2.0", "mit license": "mit"}  # first line -> the name that cards use
LONGEST_NAME = 100
_HEAD = re.compile(r"\A---\r?\n(.*?)\r?\n---\s", re.DOTALL)


def read_licence(folder: Path) -> tuple[str, str]:
    """(name, link), "" for what the folder does not say. A card's metadata come first; "other" stands for its license_name."""
    card = _beginning(folder / "README.md")
    head = _HEAD.match(card)
    fields = dict(_fields(head[1])) if head else {}
    name = fields.get("license", "")
    if name.lower() == "other":
        name = fields.get("license_name", name)
    if name:
        return name, fields.get("license_link", "")
    for file in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        lines = [line.strip(" #*") for line in _beginning(folder / file).splitlines()]
        first = next((line for line in lines if line), "")
        if first:
            return KNOWN_TEXTS.get(first.lower(), _one_line(first)), ""
    return "", ""


def _fields(head: str) -> list[tuple[str, str]]:
    """The licence's plain values. Not by a YAML parser: a card is from outside, and three lines of it matter."""
    found = re.findall(r"^(license|license_name|license_link):(.+)$", head, re.MULTILINE)
    return [(key, _one_line(value.strip().strip("\"'"))) for key, value in found]


def _one_line(text: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 3] + "..."


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(CARD_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
