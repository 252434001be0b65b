"""python tests/anchors FOLDER: precision and recall of every signal on labelled text in five languages.
python tests/anchors --speed: seconds for a megabyte of text of every plain structure, the best of three.

FOLDER holds the texts; what is missing there is fetched (Debian packages, one source distribution, one npm package; 110 MB).
Needs markdown-it-py, apt-get, dpkg-deb, npm.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

from hostile import MEGABYTE, TEXTS
from labels import Layout, marked_html, marked_markdown, plain_html, plain_markdown
from score import Score, Scores
from sources import LANGUAGES, fetch, read_pages

from edge.anchors.config import AnchorConfig
from edge.anchors.detect import find_anchors
from edge.anchors.phrases import load_phrases

_LAYOUTS: tuple[Layout, ...] = ("blocks", "lines", "wrapped")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, nargs="?")
    arguments.add_argument("--speed", action="store_true", help="no labels: time")
    arguments.add_argument("--part", choices=("held out", "tuned"), default="held out")
    arguments.add_argument("--most", type=int, default=0, help="pages of a source and language at most; 0 is all")
    arguments.add_argument("--json", action="store_true", dest="as_json")
    given = arguments.parse_args()
    if given.speed:
        _print_speed()
        return
    if given.folder is None:
        arguments.error("which folder? Give one for the texts, or --speed")
    fetch(given.folder)
    config, phrases = AnchorConfig.load(), load_phrases()
    tables: dict[str, Scores] = defaultdict(Scores)
    languages: dict[str, Scores] = defaultdict(Scores)
    sources: dict[str, Scores] = defaultdict(Scores)
    pages: dict[tuple[str, str], int] = defaultdict(int)
    for page in read_pages(given.folder):
        key = page.source, page.language
        if page.part != given.part or (given.most and pages[key] >= given.most):
            continue
        pages[key] += 1
        plain = plain_html if page.kind == "html" else plain_markdown
        marked = marked_html if page.kind == "html" else marked_markdown
        texts = {f"with {page.kind}": marked(page.text)}
        texts |= {f"without markup, {layout}": plain(page.text, layout) for layout in _LAYOUTS}
        texts["without markup and numbers, blocks"] = plain(page.text, "blocks", numbered=False)
        for name, labelled in texts.items():
            anchors = find_anchors(labelled.text, config, phrases)
            tables[name].add(labelled, anchors)
            if name == "without markup, blocks":
                languages[page.language].add(labelled, anchors)
                sources[page.source].add(labelled, anchors)
    rows = {name: _rows(scores) for name, scores in tables.items()}
    rows |= {f"without markup, blocks: {name}": _rows(languages[name]) for name in LANGUAGES}
    rows |= {f"without markup, blocks: {name}": _rows(scores) for name, scores in sources.items()}
    if given.as_json:
        print(json.dumps({"part": given.part, "pages": sum(pages.values()), "tables": rows}))
        return
    print(f"{given.part}: {sum(pages.values())} pages of {', '.join(sorted({source for source, _ in pages}))}")
    for name, table in rows.items():
        print(f"\n{name}")
        print(f"{'':30} {'precision':>9} {'recall':>7} {'f1':>6} {'found':>7} {'labels':>7}")
        for row in table if ":" not in name else [row for row in table if row["signal"] == "headings"]:
            precision = "-" if row["precision"] is None else f"{row['precision']:.3f}"
            print(f"{row['signal']:30} {precision:>9} {row['recall']:7.3f} {row['f1']:6.3f} {row['found']:7} {row['labels']:7}")


def _print_speed() -> None:
    config, phrases = AnchorConfig.load(), load_phrases()
    for name, make in TEXTS.items():
        text, seconds = make(MEGABYTE), []
        for _ in range(3):
            begin = time.perf_counter()
            anchors = find_anchors(text, config, phrases)
            seconds.append(time.perf_counter() - begin)
        print(f"{name:26} {min(seconds):6.3f} s {len(anchors):8,} anchors", flush=True)


def _rows(scores: Scores) -> list[dict[str, object]]:
    return [_row(name, score) for name, score in scores.by_name.items() if score.found]


def _row(name: str, score: Score) -> dict[str, object]:
    return {"signal": name, "precision": score.precision, "recall": score.recall, "f1": score.f1, "found": score.found,
            "labels": score.labels}  # fmt: skip


if __name__ == "__main__":
    main()
