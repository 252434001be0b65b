"""Anchors against labels of another's reader, on a page in five languages; `python tests/anchors FOLDER` has 1,000 more."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("markdown_it", reason="needs the test extra: markdown-it-py")

from labels import Labelled, marked_html, marked_markdown, plain_html, plain_markdown
from score import Score, Scores, anchors_of

FIXTURES = Path(__file__).parents[2] / "fixtures" / "anchors"
PAGES = {path.name.split(".")[1]: path.read_text(encoding="utf-8") for path in sorted(FIXTURES.glob("features.*.txt"))}
HTML = """<html><head><title>t</title></head><body><div class="navheader"><h3>Navigation</h3></div><h1>One &amp; all</h1>
<p>A paragraph.</p><ol><li>first</li><li><p>second</p></li></ol><pre>x\n\ny</pre>
<h2><a id="b"></a>2.1. Two</h2><p>End.</p></body>"""


def score(labelled: Labelled, name: str = "headings") -> Score:
    scores = Scores()
    scores.add(labelled, anchors_of(labelled))
    return scores.by_name[name]


def test_labels_of_html_are_its_headings_and_not_its_navigation() -> None:
    marked, plain = marked_html(HTML), plain_html(HTML, "blocks")
    assert [HTML[place : place + 4] for place in marked.headings] == ["<h3>", "<h1>", "<h2>"]
    assert plain.text == "One & all\n\nA paragraph.\n\n1. first\n\n2. second\n\nx\n\ny\n\n2.1. Two\n\nEnd.\n\n"
    assert [plain.text[place : place + 4] for place in plain.headings] == ["One ", "2.1."]
    assert "\n\nTwo\n\n" in plain_html(HTML, "blocks", numbered=False).text


def test_labels_of_markdown_are_its_headings_and_not_its_code() -> None:
    text = "---\nt: 1\n---\n\n# One\n\n```\n# no\n```\n\n> ## Two\n\nThree\n===\n\n<h2>Four</h2>\n"
    marked = marked_markdown(text)
    assert [text[place:].split("\n")[0] for place in marked.headings] == ["# One", "## Two", "Three", "<h2>Four</h2>"]
    plain = plain_markdown(text, "lines")
    assert [plain.text[place:].split("\n")[0] for place in plain.headings] == ["One", "Two", "Three", "Four"]


@pytest.mark.parametrize("language", PAGES)
def test_marked_headings_are_all_found_and_nothing_else(language: str) -> None:
    for name in ("markdown", "headings"):
        found = score(marked_markdown(PAGES[language]), name)
        assert found.labels == 14
        assert (found.precision, found.recall) == (1.0, 1.0)


@pytest.mark.parametrize("language", PAGES)
def test_without_marks_most_headings_are_found(language: str) -> None:
    found = score(plain_markdown(PAGES[language], "blocks"))
    assert found.precision is not None and found.precision >= 0.9
    assert found.recall >= 0.9
