"""A comparison as bars. Owns: the picture. Needs: matplotlib (extra `bench`). Never: figures of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edge.bench.comparison import OURS, Comparison
from edge.errors import ConfigError

_PANELS = (
    ("prefill_tokens_per_s", "prefill, tokens/s", 1.0),
    ("decode_tokens_per_s", "decode, tokens/s", 1.0),
    ("peak_rss_bytes", "peak memory, MB (less is better)", 1e-6),
)
_FORMS = (".png", ".svg", ".pdf")
_OURS_COLOUR, _OTHER_COLOUR = "#1f6fb4", "#b8bec6"


def need_matplotlib(path: Path, option: str = "--plot") -> None:
    """ConfigError where there is no matplotlib, no folder for `path` or none that may be written, or no picture of its ending:
    said before anything is measured."""
    if find_spec("matplotlib") is None:
        raise ConfigError(f"{option} needs matplotlib: ./install.sh --with bench")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} {path}: no such folder. Make it, or choose another place")
    if path.is_dir() or path.suffix.lower() not in _FORMS:
        raise ConfigError(f"{option} {path}: not the name of a picture. Give one that ends in {', '.join(_FORMS)}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ConfigError(f"{option} {path}: may not be written. Choose another place")


def plot_comparisons(comparisons: Sequence[Comparison], title: str, path: Path) -> None:
    """Writes a row of panels for each load: the best of each engine, the median as a mark. The ending of `path` is its form."""
    from matplotlib.figure import Figure

    most = max(len(comparison.rows) for comparison in comparisons)
    figure = Figure(figsize=(12, (0.8 + 0.38 * most) * len(comparisons) + 0.6), layout="constrained")
    axes = figure.subplots(len(comparisons), len(_PANELS), squeeze=False)
    figure.suptitle(title, fontsize=11)
    for line, comparison in zip(axes, comparisons, strict=True):
        for axis, (key, label, unit) in zip(line, _PANELS, strict=True):
            _bars(axis, comparison, key, unit)
            axis.set_title(f"{label}; prompt {comparison.prompt_tokens}", fontsize=9)
        for axis in line[1:]:
            axis.set_yticklabels([])
    save_figure(figure, path)


def save_figure(figure: Any, path: Path, option: str = "--plot") -> None:
    """Writes a matplotlib figure. ConfigError where that cannot be."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        what = error.strerror or error
        raise ConfigError(f"{option} {path}: cannot be written: {what}. Check its folder and the free space") from error
    except ValueError as error:  # an ending that is no format
        raise ConfigError(f"{option} {path}: cannot be written: {error}. Choose an ending as .png") from error


def _bars(axis: Any, comparison: Comparison, key: str, unit: float) -> None:
    rows = comparison.rows
    bests = [(row.best(key) or 0.0) * unit for row in rows]
    colours = [_OURS_COLOUR if row.contender.name == OURS else _OTHER_COLOUR for row in rows]
    axis.barh(range(len(rows)), bests, color=colours, height=0.7)
    for place, (row, best) in enumerate(zip(rows, bests, strict=True)):
        median = row.median(key)
        if median is None:
            axis.text(0, place, " not measured", va="center", fontsize=8, color="#888888")
            continue
        axis.plot([median * unit] * 2, [place - 0.35, place + 0.35], color="black", linewidth=1)
        axis.text(max(best, median * unit), place, f" {best:,.0f}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), [row.contender.name for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.18 * max([*bests, 1e-9]))
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
