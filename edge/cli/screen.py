"""Text of others on its way to a terminal. Owns: which characters are shown rather than obeyed. Needs: nothing.
Never: what goes to a file or a pipe, which gets every character as it is."""

from __future__ import annotations

from typing import TextIO

# A model, a package or a file name may hold what a terminal would obey.
_SHOWN = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_SHOWN |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def shown(text: str) -> str:
    """`text` with control pictures (U+2400 and up) for control characters, but for line breaks and tabs."""
    return text.translate(_SHOWN)


def write_answer(text: str, out: TextIO) -> None:
    """A piece of an answer, at once."""
    out.write(shown(text) if out.isatty() else text)
    out.flush()
