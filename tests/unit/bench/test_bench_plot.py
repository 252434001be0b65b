"""The picture of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge.bench import plot
from edge.bench.comparison import OURS, Comparison, Contender, Row
from edge.bench.kernels import KernelFigures, kernel_cases
from edge.bench.kernels_plot import plot_kernels
from edge.errors import ConfigError

RUN = {"prefill_tokens_per_s": 100.0, "decode_tokens_per_s": 10.0, "ttft_s": 0.5, "load_s": 0.1, "peak_rss_bytes": 1000}


def comparison(prompt: int) -> Comparison:
    rows = (Row(Contender(OURS), [RUN]), Row(Contender("other"), [RUN, RUN]), Row(Contender("broken"), failure="it failed"))
    return Comparison(prompt, 64, rows)


def test_a_plot_has_a_line_of_panels_for_each_load(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="needs the bench extra: matplotlib")
    heights = []
    for loads in ([512], [512, 4096]):
        plot.plot_comparisons([comparison(prompt) for prompt in loads], "title", tmp_path / "plot.png")
        heights.append(image.imread(tmp_path / "plot.png").shape[0])
    assert heights[1] > 1.5 * heights[0]


def test_shares_of_kernels_are_bars_and_what_has_no_limit_is_left_out(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="needs the bench extra: matplotlib")
    heights = []
    for share in (0.5, None):
        figures = [
            KernelFigures(case, "avx2", 1.0, 1.0, 1.0, share if case.group == "matrix" else 0.9) for case in kernel_cases()
        ]
        plot_kernels(figures, "title", tmp_path / "plot.png")
        heights.append(image.imread(tmp_path / "plot.png").shape[0])
    assert heights[0] > 1.5 * heights[1]


def test_a_picture_of_no_known_format_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra: matplotlib")
    with pytest.raises(ConfigError, match="cannot be written"):
        plot.plot_comparisons([comparison(512)], "title", tmp_path / "plot.nothing")


def test_without_matplotlib_a_plot_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(plot, "find_spec", nothing)
    with pytest.raises(ConfigError, match=r"--plot needs matplotlib: \./install\.sh --with bench"):
        plot.need_matplotlib(tmp_path / "plot.png")


def test_a_folder_that_is_gone_is_named_without_the_number_of_the_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra: matplotlib")
    with pytest.raises(ConfigError, match=r"z\.png: cannot be written: No such file or directory\. Check its folder"):
        plot.plot_comparisons([comparison(512)], "title", tmp_path / "gone" / "z.png")


def test_a_place_that_may_not_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the bench extra: matplotlib")
    plot.need_matplotlib(tmp_path / "plot.png")
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != tmp_path)  # root may write anywhere
    with pytest.raises(ConfigError, match="may not be written"):
        plot.need_matplotlib(tmp_path / "plot.png")
