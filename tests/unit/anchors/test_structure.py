"""Anchors of marked-up text, of numbers, titles, printed pages and chats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.anchors.detect import Anchors
from edge.anchors.lines import split_lines

Seen = Callable[[str, str], list[str]]
Headings = Callable[[str], list[tuple[int, str]]]
BODY = "This is a paragraph of several words, and it goes on until nobody could take it for a title of anything.\n\n"


@given(text=st.text(st.sampled_from("ab \t\n\r\f\x85\u2028\u3000é中"), max_size=40))
def test_lines_are_those_of_plain_loops(text: str) -> None:
    lines = split_lines(text)
    wanted, begin, i = [], 0, 0
    while i < len(text):
        if text[i] in "\n\r\f\x0b\x85\u2028\u2029":
            wanted.append((begin, i))
            i += 1 if text[i : i + 2] != "\r\n" else 2
            begin = i
        else:
            i += 1
    wanted.append((begin, len(text)))
    assert list(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)) == wanted
    for (start, end), first, last, blank in zip(wanted, lines.firsts, lines.lasts, lines.blank, strict=True):
        line = text[start:end]
        assert blank == (not line.strip())
        assert blank or text[first:last] == line.strip()
    assert len(lines.text) == len(text)


def test_headings_of_markdown_have_their_levels(headings: Headings) -> None:
    text = f"# One\n\n{BODY}## Two ##\n\n{BODY}Three\n=====\n\n{BODY}Four\n----\n\n{BODY}###### Six\n"
    assert headings(text) == [(1, "# One"), (2, "## Two ##"), (1, "Three"), (2, "Four"), (6, "###### Six")]


def test_underlines_of_restructured_text_are_no_fences_and_have_levels_in_their_order(headings: Headings) -> None:
    parts = ("1. Ships\n********\n\n", "Sails\n=====\n\n", "Ropes\n~~~~~\n\n", "Masts\n=====\n\n")
    text = "".join(part + BODY for part in parts) + "Too Short\n~~~~\n\n# hidden\n"
    assert headings(text) == [(1, "1. Ships"), (2, "Sails"), (3, "Ropes"), (2, "Masts")]


@pytest.mark.parametrize(
    "text",
    [
        "## A\n\n```\n# comment\n```\n\n## B\n",
        "## A\n\n~~~ sh\n# comment\n```\n# still\n~~~\n\n## B\n",
        "## A\n\n    # indented code\n\n## B\n",
        "## A\n\n<!--\n# hidden\n-->\n\n## B\n",
        "---\ntitle: x\n---\n\n## A\n\n#hash\n\n####### seven\n\n## B\n",
        "## A\n\n1. item\n---\n\n## B\n",
        "## A\n\n| a |\n|---|\n| b |\n\n- item\n---\n\n## B\n",
    ],
)
def test_code_comments_tables_and_front_matter_hold_no_heading(text: str, headings: Headings) -> None:
    assert headings(text) == [(2, "## A"), (2, "## B")]


def test_commands_of_an_administrator_are_no_markdown(seen: Seen) -> None:
    assert seen(f"{BODY}# apt-get update\n# apt-get upgrade\n\n{BODY}", "markdown") == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_make_no_difference(end: str, headings: Headings) -> None:
    text = f"# One\n\n{BODY}Two\n---\n\n{BODY}```\n# no\n```\n".replace("\n", end)
    assert headings(text) == [(1, "# One"), (2, "Two")]


def test_headings_of_html_begin_at_their_tags(headings: Headings, anchors_of: Callable[[str], Anchors]) -> None:
    text = '<html><body><h1 class="a">One</h1><p>x</p><!-- <h2>no</h2> --><script>"<h2>no</h2>"</script>\n<H2>Two</H2></body>'
    assert headings(text) == [(1, '<h1 class="a">One'), (2, "<H2>Two")]
    assert text[anchors_of(text).positions[1] :].startswith("<H2>")


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        (("1 Scope", "2 Terms", "3 Rules"), 3),
        (("1. Scope", "1.1 Parts", "1.2 Others", "2. Terms"), 4),
        (("I. Scope", "II. Terms", "III. Rules"), 3),
        (("A. Scope", "B. Terms", "C. Rules"), 3),
        (("一、范围", "二、术语", "三、规则"), 3),
        (("7 Scope", "3 Terms", "12 Rules"), 0),  # these count nothing
        (("1998 Start", "2004 Later", "2011 End"), 0),
    ],
)
def test_numbers_head_where_they_count_on(numbers: tuple[str, ...], kept: int, seen: Seen) -> None:
    text = "".join(f"{number}\n\n{BODY}" for number in numbers)
    assert seen(text, "numbering") == list(numbers[:kept])


def test_contents_and_lists_are_no_headings(seen: Seen) -> None:
    names = [f"{i}.{j} About {word}" for i, word in ((1, "ships"), (2, "sails")) for j in (1, 2, 3)]
    contents, body = "\n".join(names) + "\n\n", "".join(f"{name}\n\n{BODY}" for name in names)
    text = contents + body
    assert seen(text, "numbering") == names
    anchored = [text.index(f"{name}\n\n{BODY}") for name in names]
    assert anchored[0] > len(contents) - 1
    items = "1. take the lid off\n2. pour it\n3. wait\n4. stir\n5. serve\n"
    assert seen(BODY + items + "\n" + BODY, "numbering") == []


def test_a_short_line_above_a_paragraph_is_a_title(seen: Seen) -> None:
    lines = ("A First Title", "No title, since it ends here.", "and no title", "x = f(y)", "Wozu das gut ist")
    text = "".join(f"{line}\n\n{BODY}" for line in lines)
    assert seen(text, "title") == ["A First Title", "Wozu das gut ist"]


def test_headers_of_printed_pages_are_no_headings(headings: Headings) -> None:
    pages = [f"The Manual of Sails\n\n{i}.1 Part {chr(64 + i)}\n\n{BODY}{BODY}Page {i}\n" for i in range(1, 6)]
    found = headings("\f".join(pages))
    assert not any("Manual" in text or text.startswith("Page") for _, text in found)
    assert len(found) >= 4  # a page begins there


def test_pages_without_form_feeds_are_found_by_their_numbers(seen: Seen) -> None:
    page = "Some text that fills a line of the page, of which there are many.\n" * 30
    text = "".join(f"{page}Manual of Sails, page {i}\n" for i in range(1, 8))
    assert len(seen(text, "page")) == 6


def test_turns_of_a_chat_are_anchors(seen: Seen) -> None:
    spoken = "User: hello\n\nAssistant: hello\n\nUser: how are you?\n"
    assert [turn.split(":")[0] for turn in seen(spoken, "turn")] == ["User", "Assistant", "User"]
    assert len(seen("<|im_start|>system\nx<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n", "turn")) == 2
    assert seen(f"{BODY}System: Linux\n\n{BODY}", "turn") == []


def test_marks_inside_of_sections_begin_none(anchors_of: Callable[[str], Anchors]) -> None:
    anchors = anchors_of(f"## A\n\n- one\n- two\n\n```\ncode\n```\n\n{BODY}## B\n")
    assert (len(anchors.marks["list"]), len(anchors.marks["fence"])) == (2, 1)
    assert len(anchors) == 2
    assert np.isin(anchors.positions, anchors.marks["block"]).all()
