"""A text's pages as a picture. Owns: the picture. Needs: matplotlib (extra `bench`). Never: figures of its own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edge.anchors.report import Section, TextReport
from edge.anchors.zones import ZONES
from edge.bench.plot import save_figure
from edge.contract import PAGE_TOKENS

_COLOURS = ("#0b3c66", "#5b8c5a", "#1f6fb4", "#a9cbe8", "#eef1f4")  # in the order of ZONES
_LABELS = 28  # titles that are written: more cannot be read
_TITLE_CHARS = 60
_MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Sans Arabic")


def plot_reports(reports: Sequence[TextReport], path: Path) -> int:
    """A strip of pages by zone for each text, sections by level below it, and the titles of the highest.

    Returns how many characters no font here has: a box stands for each in the picture.
    """
    from matplotlib import font_manager, rc_context

    installed = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(name for name in _MORE_FONTS if name in installed)]
    with rc_context({"font.family": fonts}), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _plot(reports, path)
    return len({str(warning.message) for warning in caught if str(warning.message).startswith("Glyph ")})


def _plot(reports: Sequence[TextReport], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    chosen = [_labelled(report) for report in reports]
    heights = [1.1 + 0.17 * len(sections) for sections in chosen]
    figure = Figure(figsize=(11, sum(heights) + 0.6), layout="constrained")
    axes = figure.subplots(len(reports), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, report, sections in zip(axes, reports, chosen, strict=True):
        _draw(axis, report, sections)
    names = [Patch(facecolor=colour, edgecolor="#888888", label=name) for name, colour in zip(ZONES, _COLOURS, strict=True)]
    figure.legend(handles=names, loc="outside lower center", ncols=len(ZONES), fontsize=8)
    save_figure(figure, path, "--png")


def _labelled(report: TextReport) -> list[Section]:
    """The sections whose titles are written, the highest levels first, in the order of the text."""
    titled = [section for section in report.sections if section.title]
    order = sorted(range(len(titled)), key=lambda i: (titled[i].level, i))[:_LABELS]
    return [titled[i] for i in sorted(order)]


def _draw(axis: Any, report: TextReport, sections: Sequence[Section]) -> None:
    from matplotlib.colors import ListedColormap

    zones = report.zones.zones
    last = report.num_tokens
    rows = len(sections)
    axis.imshow(zones[np.newaxis, :], cmap=ListedColormap(_COLOURS), vmin=-0.5, vmax=len(ZONES) - 0.5, aspect="auto",
                interpolation="nearest", extent=(0, len(zones) * PAGE_TOKENS, -1.6, 0.0))  # fmt: skip
    starts = [section.tokens[0] for section in report.sections if section.signals]
    axis.vlines(starts, -1.6, -2.1, color="black", linewidth=0.5)
    for row, section in enumerate(sections):
        begin, end = section.tokens
        height = row + 0.6
        axis.plot([begin, max(end, begin + 1)], [height, height], color=_COLOURS[2], linewidth=3, solid_capstyle="butt")
        right = begin > 0.55 * last
        title = section.title if len(section.title) <= _TITLE_CHARS else section.title[: _TITLE_CHARS - 3] + "..."
        title = title.replace("$", r"\$")
        axis.text(begin if right else end, height, f"{title} " if right else f" {title}", fontsize=7, va="center",
                  ha="right" if right else "left")  # fmt: skip
    axis.set_ylim(rows + 0.4, -2.2)
    axis.set_xlim(0, len(zones) * PAGE_TOKENS)
    axis.set_yticks([])
    axis.tick_params(axis="x", labelsize=8)
    estimated = "" if report.exact else " (estimated)"
    axis.set_xlabel(f"tokens{estimated}", fontsize=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    left = len([section for section in report.sections if section.title]) - rows
    more = f"; titles of {rows}, {left} are not shown" if left else ""
    axis.set_title(
        f"{report.name}: {last:,} tokens{estimated}, {len(zones):,} pages, {len(report.anchors):,} anchors{more}", fontsize=9
    )
