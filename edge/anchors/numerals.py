"""Numbers as headings write them: 3.2.1, IV, (c), 第三. Owns: their forms and values. Needs: nothing.
Never: where they stand."""

from __future__ import annotations

# Forms that patterns of yaml/anchors name in braces. Bounded, so that matching one takes no longer than its text.
FORMS = {
    "number": r"\d{1,4}(?:\.\d{1,4}){0,6}[a-z]?",
    "roman": r"[IVXLC]{1,9}",
    "letter": r"[A-Z]",
    "chinese": r"[0-9〇零一二三四五六七八九十百千两]{1,9}",
}
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_CHINESE = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}


def roman_value(text: str) -> int | None:
    """The number, or None where it is not written the usual way."""
    digits = [_ROMAN[char] for char in text.lower()]
    value = sum(-one if one < following else one for one, following in zip(digits, [*digits[1:], 0], strict=True))
    return value if 0 < value < 400 and roman_text(value) == text.lower() else None


def roman_text(value: int) -> str:
    """The usual way of writing 1 to 399, in small letters."""
    parts = []
    for size, word in ((100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")):
        parts.append(word * (value // size))
        value %= size
    return "".join(parts)


def letter_value(text: str) -> int:
    """1 for A or a."""
    return ord(text.lower()) - ord("a") + 1


def chinese_value(text: str) -> int | None:
    """The number of 十二, 二〇, 一百零三 or 12; None where it is none."""
    if text.isascii():
        return int(text)
    if not any(char in _CHINESE_UNITS for char in text):
        return int("".join(str(_CHINESE[char]) if char in _CHINESE else char for char in text))
    total, digit = 0, 0
    for char in text:
        if char in _CHINESE_UNITS:
            total += (digit or 1) * _CHINESE_UNITS[char]
            digit = 0
        elif char in _CHINESE:
            digit = _CHINESE[char]
        else:
            return None
    return total + digit
