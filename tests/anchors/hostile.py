"""Megabytes of text of every plain structure, and of none. Owns: the texts. Needs: nothing. Never: what is found in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

MEGABYTE = 1_000_000
_ROOT = Path(__file__).parents[2]


def _repeated(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def _random(size: int) -> str:
    rng = random.Random(1)
    ranges = ((32, 127), (10, 11), (0x20, 0x2000), (0x4E00, 0x9FFF))
    return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(size))


def _counting(line: str, size: int) -> str:
    return "".join(line.format(i, i % 9) for i in range(size // len(line) + 1))[:size]


# By name: a text of so many characters.
TEXTS: dict[str, Callable[[int], str]] = {
    "README": lambda n: _repeated((_ROOT / "README.md").read_text(encoding="utf-8"), n),
    "licence": lambda n: _repeated((_ROOT / "LICENSE").read_text(encoding="utf-8"), n),
    "one line": lambda n: _repeated((_ROOT / "LICENSE").read_text(encoding="utf-8").replace("\n", " "), n),
    "one word": lambda n: "a" * n,
    "spaces": lambda n: " " * n,
    "line ends": lambda n: "\n" * n,
    "mixed line ends": lambda n: _repeated("a b c.\r\nTitle\r\rd e f\n\n", n),
    "only headings": lambda n: _repeated("# a\n", n),
    "only underlined headings": lambda n: _repeated("a\n=\n", n),
    "only HTML headings": lambda n: _repeated("<h1>a</h1>", n),
    "tags without end": lambda n: _repeated("<h1 ", n),
    "comments without end": lambda n: _repeated("<!--", n),
    "fences": lambda n: _repeated("```\n", n),
    "short lines": lambda n: _repeated("A\n", n),
    "titles": lambda n: _repeated("Title\n\n", n),
    "titles and paragraphs": lambda n: _repeated(
        "A Title\n\nSome longer paragraph, which has words and goes on for a while, as they do.\n\n", n
    ),
    "items": lambda n: _repeated("* a\n", n),
    "one number": lambda n: _repeated("1. a\n", n),
    "numbers that count": lambda n: _counting("{}.{} Title\ntext text text.\n", n),
    "sections": lambda n: _repeated("Section 1\n", n),
    "sections that count": lambda n: _counting("Section {}\n\nA body that is long enough to be one, I think, so it is.\n\n", n),
    "sections in one line": lambda n: _counting("Section {}. ", n),
    "form feeds": lambda n: "\f" * n,
    "small pages": lambda n: _repeated("a\f", n),
    "page numbers": lambda n: _repeated("page 1\n", n),
    "turns": lambda n: _repeated("User: a\nAssistant: b\n", n),
    "right to left": lambda n: _repeated("هذا نص عربي طويل. عنوان\n\nعنوان\n\n", n),
    "Chinese": lambda n: _repeated("第三条 付款。本合同的价款为人民币一万元。\n", n),
    "random": _random,
    "quotes": lambda n: _repeated("> ", n),
    "hashes": lambda n: "#" * n,
    "backticks": lambda n: "`" * n,
    "digits": lambda n: "1" * n,
    "dotted digits": lambda n: _repeated("1.", n),
    "roman digits": lambda n: "I" * n,
    "emoji": lambda n: _repeated("😀a ", n),
}
