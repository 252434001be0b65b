"""Phrases of yaml/anchors: what they match, where they head something, and what is wrong with a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.anchors.detect import Anchors
from edge.anchors.phrases import Phrases, load_phrases, number_of
from edge.errors import ConfigError

BODY = "This is a paragraph of several words, and it goes on until nobody could take it for a title of anything.\n\n"


@pytest.mark.parametrize(
    ("text", "language", "domain", "number"),
    [
        ("Section 3.2 Payment", "English", "general", (3, 2)),
        ("SECTION 4", "English", "general", (4,)),
        ("Article IV", "English", "legal", (4,)),
        ("Anhang B", "German", "general", (2,)),
        ("§ 12a Haftung", "German", "legal", (12,)),
        ("Chapitre 2", "French", "general", (2,)),
        ("Cláusula 7", "Spanish", "legal", (7,)),
        ("第十二条 付款", "Chinese", "legal", (12,)),
        ("第 3 章", "Chinese", "general", (3,)),
        ("附录B", "Chinese", "general", (2,)),
        ("Contraindications", "English", "medical", None),
        ("Gegenanzeigen:", "German", "medical", None),
        ("资产负债表", "Chinese", "finance", None),
        ("Risk  Factors", "English", "finance", None),
    ],
)
def test_phrases_are_matched(text: str, language: str, domain: str, number: tuple[int, ...] | None, phrases: Phrases) -> None:
    match = phrases.match(text, 0)
    assert match is not None
    # Some phrases belong to two languages; § is one, and the first that has it keeps it.
    assert match.phrase.domain == domain
    assert match.phrase.language in (language, "English")
    assert number_of(text, match) == number


@pytest.mark.parametrize(
    "text", ["Sections are", "Introduction to sails", "article iv", "Sectional 3", "第三者", "appendix c", "Part of"]
)
def test_what_only_looks_like_a_phrase_is_none(text: str, phrases: Phrases) -> None:
    assert phrases.match(text, 0) is None


def test_every_phrase_matches_itself(phrases: Phrases) -> None:
    filled = {"{number}": "3.2", "{roman}": "IV", "{letter}": "B", "{chinese}": "十二"}
    for phrase in phrases.phrases:
        text = phrase.text
        for form, number in filled.items():
            text = text.replace(form, number)
        match = phrases.match(text, 0)
        assert match is not None and match.end == len(text), phrase


def test_a_phrase_heads_a_line_and_not_a_sentence(seen: Callable[[str, str], list[str]]) -> None:
    sentence = "as is said in\nSection 3 of this text, which says more.\n\n"
    text = f"Section 1\n\n{BODY}**Section 2: Terms**\n\n{BODY}{sentence}{BODY}3. Introduction\n\n{BODY}"
    assert [place[:11].strip("*") for place in seen(text, "wording")] == ["Section 1", "Section 2", "3. Introduc"]


def test_in_a_line_without_end_sections_are_found_where_they_count(seen: Callable[[str, str], list[str]]) -> None:
    sentence = "The parties agree on this, as Section 9 says, and on nothing else. "
    text = "".join(f"Section {i}. {sentence * 3}" for i in range(1, 12))
    assert "\n" not in text
    assert seen(text, "wording") == [f"Section {i}" for i in range(1, 12)]


def test_what_was_found_is_told_by_language_and_domain(anchors_of: Callable[[str], Anchors]) -> None:
    text = f"第一条 总则\n\n{BODY}第二条 付款\n\n{BODY}Gegenanzeigen\n\n{BODY}"
    assert anchors_of(text).wordings == {("Chinese", "legal"): 2, ("German", "medical"): 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [  # what stands behind the name of the file
        ("language: X\nlegl: []\n", ":2: Language: unknown key 'legl'. Did you mean 'legal'?"),
        ("language: X\nlegal:\n  - {level: 1, titels: [a]}\n", ":3: Language.legal[0]: unknown key 'titels'. Did you"),
        ("language: X\nlegal:\n  - {level: 7}\n", ":3: Language.legal[0]: level must be 1 to 6"),
        ("language: X\nlegal:\n  - {level: 1, numbered: ['part {numbr}']}\n", ":3: Language.legal[0]: 'part {numbr}': has"),
        ("language: X\nlegal:\n  - {level: 1, titles: ['']}\n", ":3: Language.legal[0]: '': a phrase has 1 to 80 characters"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_phrases(tmp_path)
    assert f"{tmp_path / 'x.yaml'}{says}" in str(caught.value)


def test_phrases_are_text_and_no_expressions(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("language: X\nlegal:\n  - {level: 1, titles: ['(a+)+$', 'b.c']}\n", encoding="utf-8")
    phrases = load_phrases(tmp_path)
    begin = time.perf_counter()
    assert phrases.match("a" * 5000 + "!", 0) is None
    assert time.perf_counter() - begin < 0.5
    assert phrases.match("(a+)+$", 0) is not None
    assert phrases.match("bxc", 0) is None
