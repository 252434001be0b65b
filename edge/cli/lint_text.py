"""A text's report for people: tables and a map of its pages, 80 columns wide. Owns: words, marks, widths. Needs: report.
Never: detection; colour."""

from __future__ import annotations

import unicodedata

from edge.anchors.report import Section, TextReport
from edge.anchors.signals import DEEPEST, MARKS
from edge.anchors.zones import ZONES
from edge.cli.screen import shown
from edge.cli.tables import format_table
from edge.contract import PAGE_TOKENS
from edge.units import human_bytes

WIDTH = 80
ZONE_MARKS = dict(zip(ZONES, "SR#=.", strict=True))
_ROW, _ROWS = 64, 12  # marks of a line of the map; lines of it at most
_ZONE_WORDS = {
    "sink": "the first page, always in fp16",
    "recent": "the last 128 to 255 tokens, in fp16",
    "anchor": "what stands around an anchor",
    "section": "the beginning of a section",
    "background": "the rest",
}
_MARK_WORDS = {"list": "list item", "fence": "code block", "block": "block"}


def report_lines(report: TextReport, most_sections: int) -> str:
    """All of it, under one line that says what the text is."""
    tokens = f"{report.num_tokens:,} tokens" + ("" if report.exact else " (estimated)")
    pages = len(report.zones.zones)
    parts = [
        f"{shown(report.name)}: {report.anchors.characters:,} characters, {tokens}, {_count(pages, 'page')}, "
        f"{_count(len(report.anchors), 'anchor')}",
        "" if report.exact else "Tokens are estimated from characters: --package NAME.edge gives the model's own",
        _signals(report),
        "",
        _zones(report),
        "",
        _map(report),
        "",
        _sections(report, most_sections),
        "",
        _memory(report),
    ]
    return "\n".join(part for place, part in enumerate(parts) if part or place > 1)


def _signals(report: TextReport) -> str:
    rows = [["signal", "places", "anchors"]]
    rows += [[name, str(places), str(kept)] for name, (places, kept) in report.counts.items() if places]
    lines = [format_table(rows, right=frozenset({1, 2}))] if len(rows) > 1 else ["no signal of an anchor"]
    marks = [_count(len(report.anchors.marks[name]), _MARK_WORDS[name]) for name in MARKS if len(report.anchors.marks[name])]
    if marks:
        lines.append(f"begin no section: {', '.join(marks)}")
    wordings = [f"{language} {domain} {count}" for (language, domain), count in sorted(report.anchors.wordings.items())]
    if wordings:
        lines.append(_fit(f"wording: {', '.join(wordings)}", WIDTH))
    return "\n".join(lines)


def _zones(report: TextReport) -> str:
    total = len(report.zones.zones)
    rows = [["zone", "mark", "pages", "share", "what is in it"]]
    rows += [
        [name, ZONE_MARKS[name], str(count), f"{100 * count / total:.1f} %", _ZONE_WORDS[name]]
        for name, count in report.zones.counts().items()
    ]
    return format_table(rows, right=frozenset({2, 3}))


def _map(report: TextReport) -> str:
    """A mark for each page, or for some pages together the most precise of their zones; levels of sections below."""
    zones = report.zones.zones.tolist()
    step = max(1, -(-len(zones) // (_ROW * _ROWS)))
    marks = "".join(ZONE_MARKS[ZONES[min(zones[page : page + step])]] for page in range(0, len(zones), step))
    levels = [" "] * len(marks)
    for section in report.sections:
        place = section.tokens[0] // PAGE_TOKENS // step
        digit = str(section.level or DEEPEST)
        if section.signals and (levels[place] == " " or digit < levels[place]):
            levels[place] = digit
    width = len(str(len(zones)))
    of = "a mark is a page" if step == 1 else f"a mark is {step} pages, the most precise zone of them"
    lines = [f"map: {of}; below it the level of a section that begins there"]
    for begin in range(0, len(marks), _ROW):
        lines.append(f"{begin * step:>{width}} {marks[begin : begin + _ROW]}")
        if below := "".join(levels[begin : begin + _ROW]).rstrip():
            lines.append(f"{'':{width}} {below}")
    return "\n".join(lines)


def _sections(report: TextReport, most: int) -> str:
    """As many as are asked for; where there are more, the highest levels first, in the order of the text."""
    chosen = sorted(range(len(report.sections)), key=lambda i: (report.sections[i].level, i))[:most]
    rows = [["", "tokens" if report.exact else "characters", "pages", "signals", "section"]]
    rows += [_section_row(i, report.sections[i], report.exact) for i in sorted(chosen)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    room = max(WIDTH - sum(widths) - 2 * 4, 12)
    table = format_table([[*row[:4], _fit(row[4], room)] for row in rows], right=frozenset({0, 1, 2}))
    left = len(report.sections) - len(chosen)
    return table + (
        f"\n{_count(left, 'more section')} of lower levels: --sections {len(report.sections)}, or --json" if left else ""
    )


def _section_row(index: int, section: Section, exact: bool) -> list[str]:
    first, behind = section.pages
    pages = str(first) if behind - first <= 1 else f"{first}-{behind - 1}"
    names = section.signals[0] + "+" * (len(section.signals) > 1) if section.signals else "-"
    indent = "  " * (min(section.level, DEEPEST) - 1) if section.level else ""
    title = section.title or ("(begin)" if not section.signals else "(topic break)")
    begin, end = section.tokens if exact else section.characters
    return [str(index), f"{begin}-{max(begin, end - 1)}", pages, names, indent[:8] + shown(title)]


def _memory(report: TextReport) -> str:
    rows = [["preset", "bits", "KV memory", "against fp16"]]
    for row in report.memory:
        size = "-" if row.bytes is None else human_bytes(row.bytes)
        rows.append([row.preset, f"{row.bits:g}", size, f"{row.smaller:.2f}x smaller" if row.smaller > 1.005 else "the same"])
    heading = f"memory at {report.context:,} tokens"
    if not report.exact:
        heading += ", every layer full; bytes need --package"
    return f"{heading}\n{format_table(rows, right=frozenset({1, 2}))}"


def _fit(text: str, columns: int) -> str:
    """`text` cut to so many columns of a terminal; characters of Chinese take two."""
    if sum(map(_columns, text)) <= columns:
        return text
    kept, used = [], 3
    for char in text:
        used += _columns(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "..."


def _columns(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
