"""Bytes made wrong. Owns: numbers that break readers, mutations of bytes, Layout. Needs: nothing. Never: a format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

INTERESTING = (
    0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 127, 128, 255, 256, 257, 1000, 4095, 4096, 65535, 65536,
    (1 << 20) - 1, 1 << 20, 1 << 24, (1 << 30) - 1, 1 << 30, (1 << 31) - 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
    1 << 40, 1 << 48, (1 << 53) + 1, 1 << 60, 1 << 61, (1 << 63) - 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 64, (1 << 64) - 1,
)  # fmt: skip
INVALID_TEXT = (
    b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xef\xbf\xbe", b"\0", b"\x1b[2J",
    b"\n", b"\r", "\u2028".encode(), "\u202e".encode(), "\U0010ffff".encode(), "é".encode(),
)  # fmt: skip
_WIDTHS = (1, 2, 4, 8)


class Layout:
    """Bytes that are put together while the places of their numbers are noted."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.spots: list[tuple[int, int]] = []  # begin, width of each number: counts, lengths, types, offsets

    def number(self, width: int, value: int) -> None:
        self.spots.append((len(self._data), width))
        self._data += struct.pack(f"<{'BHIQ'[_WIDTHS.index(width)]}", value)

    def raw(self, data: bytes) -> None:
        self._data += data

    def text(self, data: bytes) -> None:
        """A length of eight bytes and the text."""
        self.number(8, len(data))
        self._data += data

    def append(self, other: Layout) -> None:
        self.spots += [(begin + len(self._data), width) for begin, width in other.spots]
        self._data += other.data()

    def align(self, to: int) -> None:
        self._data += bytes(-len(self._data) % to)

    def __len__(self) -> int:
        return len(self._data)

    def data(self) -> bytes:
        return bytes(self._data)


def mutate_spots(random: Random, data: bytes, spots: Sequence[tuple[int, int]], most: int = 3) -> bytes:
    """Up to `most` of the numbers at `spots` replaced."""
    changed = bytearray(data)
    for begin, width in random.choices(spots, k=random.randint(1, most)):
        old = int.from_bytes(changed[begin : begin + width], "little")
        value = random.choice(
            (random.choice(INTERESTING), old + random.choice((-1, 1, 8, -8, 32)), old * 2, random.getrandbits(64))
        )
        changed[begin : begin + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(changed)


def mutate_bytes(random: Random, data: bytes, others: Sequence[bytes], most: int = 4) -> bytes:
    """Up to `most` mutations one after the other; `others` are inputs to splice with."""
    changed = bytearray(data)
    for _ in range(random.randint(1, most)):
        _mutate_once(random, changed, others)
    return bytes(changed)


def _mutate_once(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    begin = random.randrange(len(data) + 1)
    end = min(len(data), begin + random.choice((1, 2, 4, 8, 16, 64, 1024)))
    match random.randrange(10):
        case 0 if begin < len(data):
            data[begin] ^= 1 << random.randrange(8)
        case 1 if begin < len(data):
            data[begin] = random.randrange(256)
        case 2:
            width = random.choice(_WIDTHS)
            data[begin : begin + width] = (random.choice(INTERESTING) % (1 << 8 * width)).to_bytes(width, "little")
        case 3:
            del data[begin:]
        case 4:
            del data[begin:end]
        case 5:
            data[begin:begin] = data[begin:end] * random.choice((1, 2, 50))
        case 6:
            data[begin:begin] = random.randbytes(random.choice((1, 2, 8, 100)))
        case 7:
            other = random.choice(others)
            cut = random.randrange(len(other) + 1)
            data[begin:] = other[cut:]
        case 8:
            data[begin:end] = bytes([random.choice((0, 255))]) * (end - begin)
        case _:
            data[begin:end] = random.choice(INVALID_TEXT)
