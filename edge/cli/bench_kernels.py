"""`edge bench kernels`: each kernel of each instruction set, beside what the machine allows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

import edge
from edge.cli.options import json_option, threads_option
from edge.cli.progress import terminal_progress
from edge.cli.tables import format_table
from edge.errors import ConfigError

if TYPE_CHECKING:
    from edge.bench.kernels import KernelFigures
    from edge.bench.rates import MachineRates


@click.command(name="kernels")
@click.option("--isa", "sets", multiple=True, help="This instruction set only; may be repeated.  [default: all but plain]")
@threads_option()
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the shares into this file, as bars (needs the bench extra)."
)
@json_option()
def command(sets: tuple[str, ...], threads: int | None, plot: Path | None, as_json: bool) -> None:
    """Time each kernel alone: GB/s of what it reads, GOPS, and the share of what this machine allows it.

    The limit of a kernel is the longer of its bytes by the best read bandwidth and its operations by the rate of its dot
    product, both measured in the same run. What works in the cache, as norms do, has none.
    """
    from edge.bench.commit import code_commit
    from edge.bench.kernels import default_sets, kernel_cases, measure_kernels
    from edge.bench.kernels_plot import plot_kernels
    from edge.bench.plot import need_matplotlib
    from edge.executors.native import available_threads
    from edge.executors.native_core import load_core

    if plot is not None:
        need_matplotlib(plot)
    known = load_core().instruction_sets()
    for isa in sets:
        if isa not in known:
            raise ConfigError(f"--isa {isa}: this machine or build has none of that name. There are: {', '.join(known)}")
    chosen, used_threads = sets or default_sets(), threads or available_threads()
    rates: dict[str, MachineRates] = {}
    figures: list[KernelFigures] = []
    with terminal_progress() as progress:
        progress.start("timing kernels", len(chosen) * len(kernel_cases()), "kernels")
        for rate, found in measure_kernels(chosen, used_threads):
            rates[rate.isa] = rate
            figures.append(found)
            progress.advance()
        progress.done()
    title = f"{used_threads} threads, edge-zero {edge.__version__} {code_commit() or ''}".strip()
    if as_json:
        row = {"version": edge.__version__, "commit": code_commit(), "threads": used_threads,
               "machine": {isa: _rates_row(rate) for isa, rate in rates.items()},
               "kernels": [found.as_dict() for found in figures]}  # fmt: skip
        click.echo(json.dumps(row))
    else:
        click.echo(_text(figures, rates, title))
    if plot is not None:
        plot_kernels(figures, title, plot)


def _rates_row(rates: MachineRates) -> dict[str, object]:
    from edge.bench.rates import KINDS

    return {
        "gb_per_s": rates.bytes_per_s / 1e9,
        "streams_per_thread": rates.streams,
        "prefetch_bytes_ahead": rates.ahead_bytes,
        "dot_gops": {kind: rate / 1e9 for kind in KINDS if (rate := rates.of(kind)) is not None},
    }


def _text(figures: list[KernelFigures], rates: dict[str, MachineRates], title: str) -> str:
    parts = [title]
    for isa, rate in rates.items():
        dots = ", ".join(f"{kind.replace('_', ' ')} {gops:.0f}" for kind, gops in _dot_gops(rate))
        parts.append(f"\n{isa}: memory {rate.bytes_per_s / 1e9:.1f} GB/s; dot products in GOPS: {dots}")
        rows = [["", "kernel", "GB/s", "GOPS", "of the limit"]]
        last = ""
        for found in figures:
            if found.isa != isa:
                continue
            group = found.case.group if found.case.group != last else ""
            last = found.case.group
            gops = "" if found.gops is None else f"{found.gops:.0f}"
            share = "" if found.share_of_limit is None else f"{100 * found.share_of_limit:.0f} %"
            rows.append([group, found.case.name, f"{found.gb_per_s:.1f}", gops, share])
        parts.append(format_table(rows, right=frozenset({2, 3, 4})))
    return "\n".join(parts)


def _dot_gops(rates: MachineRates) -> list[tuple[str, float]]:
    from edge.bench.rates import KINDS

    return [(kind, rate / 1e9) for kind in KINDS if (rate := rates.of(kind)) is not None]
