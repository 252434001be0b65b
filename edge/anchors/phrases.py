"""Words that head a section, from yaml/anchors, as one automaton. Owns: Phrases, how they are matched. Needs: numerals, YAML.
Never: lines; what a match is worth.

All phrases of all languages lie in one tree of letters, and the tree is one regular expression: a letter at a time, at each
place at most the branches of one letter, numbers bounded. No phrase is an expression of its own, so none can be slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from edge.anchors.numerals import FORMS, chinese_value, letter_value, roman_value
from edge.yamls import load_named, load_yaml, yaml_names

Domain = Literal["general", "legal", "technical", "medical", "finance"]
DOMAINS: tuple[Domain, ...] = get_args(Domain)

_NUMBERS = {name: re.compile(f"{form}$") for name, form in FORMS.items()}
_FORM = re.compile(r"\{([^{}]*)\}")
_LONGEST = 80  # characters of a phrase
_SPACE = r"[ \t\xa0]{1,4}"
_BRANCHES = 6  # at a place, beyond which the expression looks ahead to choose a part of them
_BEHIND_NUMBER = r"(?![^\W_])"
_LINE_END = r"[ \t]{0,8}[:：.]?[ \t]{0,8}$"


@dataclass(frozen=True, slots=True)
class Rank:
    """Phrases of one level of heading."""

    level: int
    numbered: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.level <= 6:
            raise ValueError("level must be 1 to 6")
        for phrase in (*self.numbered, *self.titles):
            if not phrase.strip() or len(phrase) > _LONGEST:
                raise ValueError(f"{phrase[:_LONGEST]!r}: a phrase has 1 to {_LONGEST} characters")
        for phrase in self.numbered:
            forms = _FORM.findall(phrase)
            if len(forms) > 1 or any(form not in FORMS for form in forms):
                raise ValueError(f"{phrase!r}: has at most one of " + ", ".join(f"{{{form}}}" for form in FORMS))
        for phrase in self.titles:
            if "{" in phrase:
                raise ValueError(f"{phrase!r}: numbers belong under `numbered`")


@dataclass(frozen=True, slots=True)
class Language:
    """One file of yaml/anchors; the keys are explained in en.yaml."""

    language: str
    captions: tuple[str, ...] = ()
    general: tuple[Rank, ...] = ()
    legal: tuple[Rank, ...] = ()
    technical: tuple[Rank, ...] = ()
    medical: tuple[Rank, ...] = ()
    finance: tuple[Rank, ...] = ()

    def __post_init__(self) -> None:
        Rank(1, numbered=self.captions)  # the same rules

    def of(self, domain: Domain) -> tuple[Rank, ...]:
        found: dict[Domain, tuple[Rank, ...]] = {
            "general": self.general, "legal": self.legal, "technical": self.technical, "medical": self.medical,
            "finance": self.finance,
        }  # fmt: skip
        return found[domain]


@dataclass(frozen=True, slots=True)
class Phrase:
    """One way to head a section."""

    language: str
    domain: Domain
    level: int  # 0: of a caption
    text: str
    numbered: bool


@dataclass(frozen=True, slots=True)
class PhraseMatch:
    phrase: Phrase
    begin: int  # its first character
    end: int  # and the one behind it


class Phrases:
    """The automaton. Safe to share between threads."""

    def __init__(self, languages: tuple[Language, ...]) -> None:
        self.phrases, tree = _tree(languages)
        self._expression = re.compile(tree.expression(), re.I | re.M)
        texts = [phrase.text for phrase in self.phrases]
        self.begin_with_number = any(text.startswith("{") for text in texts)
        # What any other match begins with: two characters, one where a number is the second.
        self.begins: frozenset[str] = frozenset(
            cased for text in texts if not text.startswith("{") for cased in _cases(_FORM.split(text)[0][:2])
        )

    def match(self, text: str, begin: int) -> PhraseMatch | None:
        """The longest phrase at this place."""
        match = self._expression.match(text, begin)
        if match is None:
            return None
        assert match.lastindex is not None, "every phrase ends in a group of its own"
        return PhraseMatch(self.phrases[match.lastindex - 1], begin, match.end())


def load_phrases(folder: Path | None = None) -> Phrases:
    """Those of all languages: of yaml/anchors, or of the files *.yaml of `folder`. ConfigError where one is wrong."""
    if folder is None:
        return _shipped()
    return Phrases(tuple(load_yaml(path, Language) for path in sorted(folder.glob("*.yaml"))))


@cache
def _shipped() -> Phrases:
    return Phrases(tuple(load_named("anchors", name, Language) for name in yaml_names("anchors")))


@dataclass(slots=True)
class _Node:
    """A place in the tree: what may follow, and the phrases that end here."""

    following: dict[str, _Node] = field(default_factory=dict)  # by one letter in small, " ", or "{form}"
    ending: list[tuple[int, str]] = field(default_factory=list)  # group, what must stand behind

    def expression(self) -> str:
        letters = sorted(key for key in self.following if len(key) == 1 and key != " ")
        others = [key for key in self.following if key not in letters]
        parts = [_choice([(key, self.following[key].expression()) for key in letters])] if letters else []
        parts += [_step(key) + self.following[key].expression() for key in others]
        parts += [f"{behind}()" for _, behind in self.ending]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _phrases(language: Language) -> Iterator[Phrase]:
    for text in language.captions:
        yield Phrase(language.language, "general", 0, text, True)
    for domain in DOMAINS:
        for rank in language.of(domain):
            for text in rank.numbered:
                yield Phrase(language.language, domain, rank.level, text, True)
            for text in rank.titles:
                yield Phrase(language.language, domain, rank.level, text, False)


def _tree(languages: tuple[Language, ...]) -> tuple[tuple[Phrase, ...], _Node]:
    """The phrases, in the order in which their groups stand in the expression of the tree."""
    root = _Node()
    ends: dict[int, Phrase] = {}
    for phrase in (each for language in languages for each in _phrases(language)):
        node = root
        for key in _keys(phrase.text.lower()):
            node = node.following.setdefault(key, _Node())
        if any(ends[group].numbered == phrase.numbered for group, _ in node.ending):
            continue  # languages share words; the first that has one keeps it
        last = phrase.text[-1]
        behind = (_BEHIND_NUMBER if last == "}" or last.isascii() else "") if phrase.numbered else _LINE_END
        node.ending.append((len(ends), behind))
        ends[len(ends)] = phrase
    return tuple(ends[group] for group in _groups(root)), root


def _groups(node: _Node) -> list[int]:
    """Groups as `_Node.expression` writes them."""
    letters = sorted(key for key in node.following if len(key) == 1 and key != " ")
    order = letters + [key for key in node.following if key not in letters]
    return [group for key in order for group in _groups(node.following[key])] + [group for group, _ in node.ending]


def _keys(text: str) -> list[str]:
    """Letters, " " and "{form}"."""
    keys: list[str] = []
    for part in re.split(r"(\{[a-z]+\})", " ".join(text.split())):
        keys.extend([part] if part.startswith("{") else part)
    return keys


def _choice(branches: list[tuple[str, str]]) -> str:
    """One of many letters, each with what follows it: halves by the first letter, so that few are tried."""
    if len(branches) <= _BRANCHES:
        parts = [re.escape(letter) + rest for letter, rest in branches]
        return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
    middle = len(branches) // 2
    letters = "".join(re.escape(letter) for letter, _ in branches[:middle])
    return f"(?:(?=[{letters}]){_choice(branches[:middle])}|{_choice(branches[middle:])})"


def _step(key: str) -> str:
    if key == " ":
        return _SPACE
    if key.startswith("{"):
        form = FORMS[key[1:-1]]
        # Numerals of large letters stay large where words may be small.
        return f"(?-i:{form})" if key in ("{roman}", "{letter}") else f"(?:{form})"
    return re.escape(key)


def number_of(text: str, match: PhraseMatch) -> tuple[int, ...] | None:
    """The number of a match as a tuple of its parts; None where it has none."""
    form = _FORM.search(match.phrase.text)
    if form is None:
        return None
    written = text[match.begin : match.end - (len(match.phrase.text) - form.end())]
    found = _NUMBERS[form[1]].search(written)
    if found is None:
        return None
    if form[1] == "number":
        return tuple(map(int, re.findall(r"\d+", found[0])))
    value = {"roman": roman_value, "letter": letter_value, "chinese": chinese_value}[form[1]](found[0])
    return None if value is None else (value,)


def _cases(text: str) -> list[str]:
    return [text.lower(), text.upper(), text.capitalize()]
