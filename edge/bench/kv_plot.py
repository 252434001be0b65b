"""Quality against bytes, a point a preset. Owns: the picture. Needs: matplotlib (extra `bench`). Never: figures of its own."""

from __future__ import annotations

from pathlib import Path

from edge.bench.kv import KvFigures
from edge.bench.plot import save_figure

_PASSED, _FAILED, _GATE = "#1f6fb4", "#b23b3b", "#888888"


def plot_kv(figures: KvFigures, title: str, path: Path) -> None:
    """Mean KL and top-1 agreement over the bytes that a sequence holds; the gate of each preset as a mark beside its point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    largest = max(row.held_bytes for row in figures.presets) / 1e6
    for row in figures.presets:
        if row.verdict is None:
            continue
        size, colour = row.held_bytes / 1e6, _PASSED if row.passed else _FAILED
        gate = row.verdict.limits
        label = f"{row.preset} {row.smaller:.1f}x"
        for axis, value, limit in ((left, row.verdict.kl_mean, gate.kl_mean), (right, row.verdict.top1, gate.top1)):
            axis.plot([size], [value], "o", color=colour)
            axis.plot([size], [limit], "_", color=_GATE, markersize=18)
            axis.annotate(label, (size, value), textcoords="offset points", xytext=(8, 4), fontsize=8)
    exact = next((row for row in figures.presets if row.verdict is None), None)
    if exact is not None:
        right.plot([exact.held_bytes / 1e6], [1.0], "o", color=_PASSED)
        right.annotate("exact", (exact.held_bytes / 1e6, 1.0), textcoords="offset points", xytext=(-8, -12), fontsize=8)
    left.set_yscale("log")
    left.set_ylabel("mean KL, nats (less is better)", fontsize=8)
    right.set_ylabel("top-1 agreement with exact", fontsize=8)
    for axis in (left, right):
        axis.set_xlim(0, 1.15 * largest)
        axis.set_xlabel(f"MB of KV at {figures.load.context:,} tokens", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{title}; dashes: gates over the floor", fontsize=10)
    save_figure(figure, path, "--png")
