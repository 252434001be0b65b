"""What is said of one text, in numbers and in words."""

from __future__ import annotations

import json
import unicodedata
from itertools import pairwise

import pytest

from edge.anchors.config import AnchorConfig
from edge.anchors.phrases import Phrases
from edge.anchors.report import TextReport, report_row, report_text
from edge.cli.lint_text import report_lines

BODY = "This is a paragraph of several words, and it goes on until nobody could take it for a title of anything.\n\n"
TEXTS = {
    "plain": BODY * 40,
    "headed": "".join(f"{'#' * (1 + i % 3)} Heading {i} with a title that is rather long\n\n{BODY * 3}" for i in range(60)),
    "Chinese": "".join(
        f"第{i}条 关于付款方式与期限的规定\n\n本合同的价款为人民币一万元，甲方应当在三十日内支付全部价款。\n\n"
        for i in "一二三四五"
    ),
    "right to left": "مقدمة\n\nهذا نص طويل جدا يتحدث عن السفن والبحار والرياح والموانئ البعيدة، ولا شيء غير ذلك.\n\n" * 3,
    "one letter": "a",
    "spaces": " \n ",
    "escape": "# \x1b[31mred\x1b[0m\n\ntext\n\n# two\n",
}


@pytest.fixture(params=TEXTS)
def report(request: pytest.FixtureRequest, config: AnchorConfig, phrases: Phrases) -> TextReport:
    return report_text(request.param, TEXTS[request.param], config, phrases, None, None)


def test_sections_are_the_text_without_gaps(report: TextReport) -> None:
    text = TEXTS[report.name]
    borders = [section.characters for section in report.sections]
    assert borders[0][0] == 0 or not text[: borders[0][0]].strip()
    assert borders[-1][1] == len(text)
    assert all(left[1] == right[0] for left, right in pairwise(borders))
    assert report.sections[-1].tokens[1] == report.num_tokens
    assert all(section.pages[1] <= len(report.zones.zones) for section in report.sections)


def test_lines_fit_a_terminal_and_hold_nothing_that_it_obeys(report: TextReport) -> None:
    shown = report_lines(report, 24)
    for line in shown.splitlines():
        assert sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line) <= 80, line
    assert "\x1b" not in shown
    assert "estimated" in shown


def test_the_row_is_json_and_says_what_is_estimated(report: TextReport) -> None:
    row = json.loads(json.dumps(report_row(report)))
    assert row["tokens_are"] == "estimated"
    assert sum(row["zones"].values()) == row["pages"] == len(row["page_zones"]) == len(row["page_sections"])
    assert [memory["preset"] for memory in row["memory"]] == ["exact", "safe", "balanced", "tight"]
    assert all(memory["bytes"] is None for memory in row["memory"])


def test_the_highest_sections_are_listed_where_not_all_are(config: AnchorConfig, phrases: Phrases) -> None:
    report = report_text("headed", TEXTS["headed"], config, phrases, None, None)
    shown = report_lines(report, 20)
    assert "40 more sections of lower levels: --sections 60, or --json" in shown
    assert "Heading 0 with" in shown and "Heading 57 with" in shown and "Heading 1 with" not in shown


def test_the_map_shows_each_page_or_says_how_many_a_mark_is(config: AnchorConfig, phrases: Phrases) -> None:
    small = report_lines(report_text("x", TEXTS["headed"], config, phrases, None, None), 0)
    assert "map: a mark is a page" in small
    large = report_lines(report_text("x", TEXTS["headed"] * 20, config, phrases, None, None), 0)
    assert "map: a mark is 17 pages" in large or "the most precise zone of them" in large
    assert len([line for line in large.splitlines() if line.lstrip()[:1].isdigit() and "#" in line]) <= 12
