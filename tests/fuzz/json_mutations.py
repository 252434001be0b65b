"""JSON made wrong, as text. Owns: the places of values and pairs in a text, replacements for them. Needs: mutations.
Never: what a key means."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from mutations import INTERESTING, INVALID_TEXT, mutate_bytes

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
LITERALS = (
    "null", "true", "false", "NaN", "-Infinity", "1e999", "-1e999", "1e-999", "0.5", "-0", "-1", "1.0", "[]", "{}", '""',
    '"\\u0000"', '"\\ud800"', '"\\n\\u001b[2J"', '"../../etc/passwd"', '"/"', '"x"', '{"a":{"a":1}}', "[[1],[2]]",
    "9" * 4400, "1" + "0" * 30, '"' + "A" * 70_000 + '"', '"' + "\\u00e9" * 300 + '"', "[" + "0," * 5000 + "0]", "1e308",
    "5e-324", "01", "+1", "'x'", "\x00",
)  # fmt: skip
DEPTHS = (1, 2, 60, 300, 900, 1000, 100_000)


class JsonSeed:
    """A valid JSON text and where its values and pairs lie."""

    def __init__(self, plain: Any) -> None:
        self.text = json.dumps(plain, ensure_ascii=False)
        self.values: list[tuple[int, int]] = []
        self.pairs: list[tuple[int, int]] = []  # "key": value
        self.keys: list[tuple[int, int]] = []
        self._tokens = list(_TOKEN.finditer(self.text))
        self._place = 0
        self._value()

    def _value(self) -> int:
        """Walks one value; the place behind it."""
        begin, opener = self._tokens[self._place].start(), self._tokens[self._place][0]
        end = self._tokens[self._place].end()
        self._place += 1
        if opener in "{[":
            while self._tokens[self._place][0] not in ("}", "]"):
                if opener == "{":
                    key = self._tokens[self._place]
                    self._place += 2
                    self.keys.append(key.span())
                    self.pairs.append((key.start(), self._value()))
                else:
                    self._value()
                if self._tokens[self._place][0] == ",":
                    self._place += 1
            end = self._tokens[self._place].end()
            self._place += 1
        self.values.append((begin, end))
        return end

    def mutate(self, random: Random, others: Sequence[bytes] = (), most: int = 3) -> bytes:
        """The text with up to `most` parts replaced, sometimes its bytes spoilt as well."""
        edits = sorted((self._edit(random) for _ in range(random.randint(1, most))), reverse=True)
        text, border = self.text, len(self.text) + 1
        for begin, end, new in edits:
            if end < border:  # edits inside of one another are left out
                text, border = text[:begin] + new + text[end:], begin
        data = text.encode("utf-8", "surrogatepass")
        return mutate_bytes(random, data, others or [data], 2) if random.random() < 0.15 else data

    def _edit(self, random: Random) -> tuple[int, int, str]:
        begin, end = random.choice(self.values)
        match random.randrange(9):
            case 0 | 1:
                return begin, end, random.choice(LITERALS)
            case 2:
                number = random.choice(INTERESTING) * random.choice((1, 1, 1, -1))
                return begin, end, str(number) if random.random() < 0.8 else f"{number}.0"
            case 3:
                other = random.choice(self.values)
                return begin, end, self.text[other[0] : other[1]]
            case 4:
                depth, (left, right) = random.choice(DEPTHS), random.choice((("[", "]"), ('{"a":', "}")))
                return begin, end, left * depth + self.text[begin:end] + right * depth
            case 5:
                begin, end = random.choice(self.pairs or self.values)
                return begin, end, f"{self.text[begin:end]}, {self.text[begin:end]}"
            case 6:
                begin, end = random.choice(self.pairs or self.values)
                behind = re.compile(r"\s*,\s*").match(self.text, end)
                return begin, behind.end() if behind else end, ""
            case 7:
                begin, end = random.choice(self.keys or self.values)
                other = random.choice(self.keys or self.values)
                return begin, end, random.choice((self.text[other[0] : other[1]], '"a\\nb"', '"unknown"', '""'))
            case _:
                text = random.choice(INVALID_TEXT).decode("utf-8", "surrogateescape")
                return begin, end, json.dumps(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
