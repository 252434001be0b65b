"""Shares of the limit as bars. Owns: the picture. Needs: matplotlib (extra `bench`). Never: figures of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge.bench.kernels import KernelFigures
from edge.bench.plot import save_figure

_COLOURS = ("#8fb8de", "#1f6fb4", "#0b3c66", "#b8bec6")


def plot_kernels(figures: Sequence[KernelFigures], title: str, path: Path) -> None:
    """One bar for each kernel and instruction set: the share of what the machine allows it."""
    from matplotlib.figure import Figure

    limited = [found for found in figures if found.share_of_limit is not None]
    names = list(dict.fromkeys(f"{found.case.group}: {found.case.name}" for found in limited))
    sets = list(dict.fromkeys(found.isa for found in limited))
    height = 0.8 / len(sets)
    figure = Figure(figsize=(9, 0.6 + (0.12 + 0.14 * len(sets)) * len(names)), layout="constrained")
    axis = figure.subplots()
    for place, isa in enumerate(sets):
        shares = [100 * (found.share_of_limit or 0.0) for found in limited if found.isa == isa]
        at = [index + (place - (len(sets) - 1) / 2) * height for index in range(len(names))]
        bars = axis.barh(at, shares, height, label=isa, color=_COLOURS[place % len(_COLOURS)])
        axis.bar_label(bars, fmt="%.0f", fontsize=7, padding=2)
    axis.axvline(100, color="black", linewidth=0.8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlabel("% of what memory and dot products allow here", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=8, loc="outside lower center", ncols=len(sets))
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)
