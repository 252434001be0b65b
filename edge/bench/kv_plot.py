"""Quality against bytes, a mark a form. Owns: the picture. Needs: matplotlib (extra `bench`). Never: figures of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.bench.kv import KvFigures
from edge.bench.kv_rows import FormFigures
from edge.bench.plot import save_figure
from edge.policies import RAISED_SHARES
from edge.presets import PRESETS

# One colour a preset and one mark a policy; more policies than marks begin again.
_COLOURS = dict(zip(PRESETS, ("#555555", "#2b8a3e", "#1f6fb4", "#c2571a"), strict=True))
_MARKS = dict(zip(RAISED_SHARES, "os^DvP*X" * len(RAISED_SHARES), strict=False))
_GATE = "#999999"


def plot_kv(figures: KvFigures, title: str, path: Path) -> None:
    """Mean KL, top-1 agreement and, where they were asked, needles over the bytes that a sequence holds. A failed gate makes a
    mark hollow; a dash is the gate of the preset on this engine."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    exact = next(row for row in figures.forms if row.verdict is None)
    asked = exact.recall is not None
    figure = Figure(figsize=(12.5 if asked else 9.0, 4.4), layout="constrained")
    axes = figure.subplots(1, 3 if asked else 2)
    others = [row for row in figures.forms if row.verdict is not None]
    for row in others:
        assert row.verdict is not None
        size, limits = row.held_bytes / 1e6, row.verdict.limits
        _mark(axes[0], row, row.verdict.kl_mean)
        _mark(axes[1], row, row.verdict.top1)
        if not row.form.raises:
            axes[0].plot([size], [limits.kl_mean], "_", color=_GATE, markersize=22, zorder=1)
            axes[1].plot([size], [limits.top1], "_", color=_GATE, markersize=22, zorder=1)
        if row.recall is not None:
            _mark(axes[2], row, row.recall.needles[0])
    axes[0].set_yscale("log")
    axes[0].set_ylabel("mean KL, nats (less is better)", fontsize=8)
    axes[1].set_ylabel("top-1 agreement with exact", fontsize=8)
    axes[0].axhline(figures.floor.kl_mean, color=_GATE, linewidth=0.8, linestyle=":", zorder=0)
    axes[1].axhline(figures.floor.top1, color=_GATE, linewidth=0.8, linestyle=":", zorder=0)
    if exact.recall is not None:
        axes[2].axhline(exact.recall.needles[0], color=_COLOURS["exact"], linewidth=0.8, zorder=0)
        axes[2].set_ylabel(f"needles found of {exact.recall.needles[1]} (line: exact)", fontsize=8)
        axes[2].yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes[2].margins(y=0.2)
    for axis in axes:
        axis.margins(x=0.12)
        axis.set_xlabel(f"MB of KV at {figures.load.context:,} tokens", fontsize=8)
        axis.tick_params(labelsize=8, which="both")
        axis.spines[["top", "right"]].set_visible(False)
    _legend(figure, others)
    note = f"exact holds {exact.held_bytes / 1e6:,.1f} MB; dashes: gates over the floor; dots: floor; hollow: gate failed"
    figure.suptitle(f"{title}\n{note}", fontsize=9)
    save_figure(figure, path, "--png")


def _mark(axis: Any, row: FormFigures, value: float) -> None:
    colour = _COLOURS[row.form.preset]
    fill = "none" if row.outcome == "failed" else colour
    size, mark = row.held_bytes / 1e6, _MARKS[row.form.policy]
    axis.plot([size], [value], mark, color=colour, markerfacecolor=fill, markersize=7, alpha=0.85, zorder=2)


def _legend(figure: Any, rows: list[FormFigures]) -> None:
    """Below all panels, where nothing is under it."""
    from matplotlib.lines import Line2D

    presets = dict.fromkeys(row.form.preset for row in rows)
    policies = dict.fromkeys(row.form.policy for row in rows)
    entries = [Line2D([], [], marker="s", linestyle="", color=_COLOURS[name], markersize=9, label=name) for name in presets]
    if len(policies) > 1:
        entries += [
            Line2D([], [], marker=_MARKS[name], linestyle="", color="black", markerfacecolor="none", markersize=7, label=name)
            for name in policies
        ]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), fontsize=8, frameon=False)
