"""What a build says of memory where a library builds in a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from built_package import build_tiny
from edge_process import Edge
from synthetic import TinyModel

from calibration.tiers import load_tier
from edge.build_memory import builder_bytes
from engines.sizes import build_bytes, planned_engine
from engines.sources.base import open_source

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime")

Gguf = Callable[[str | TinyModel], Path]


def test_the_builder_has_its_own_figures_beside_those_of_the_command(edge: Edge, tiny_gguf: Gguf, tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="needs the rtx extra: tensorrt-rtx-cu13")
    words = ("--target", "a10", "--ctx-size", "64", "--verify-tokens", "64", "-o", tmp_path / "card.edge")
    # Random weights may fail their verdict, which is not what is asked here.
    row = json.loads(edge.run("build", tiny_gguf("llama"), *words, "--json").stdout)
    assert row["builder_seconds"] > 0
    assert 100_000_000 < row["builder_peak_bytes"] < row["planned_bytes"]
    assert row["builder_peak_bytes"] != row["peak_rss_bytes"] < row["planned_bytes"]
    text = edge.run("build", tiny_gguf("llama"), *words, "--force").stdout
    assert re.search(r"  memory of the build: planned [0-9.]+ GB, used [0-9.]+ MB; the builder [0-9.]+ MB in \d+ s\n", text)


def test_without_a_builder_there_are_no_figures(tiny_gguf: Gguf, tmp_path: Path) -> None:
    row = build_tiny(tiny_gguf("llama"), tmp_path / "my model.edge", target="orin-nx-16", context=64).as_dict()
    assert (row["builder_peak_bytes"], row["builder_seconds"]) == (None, None)


def test_the_next_step_can_be_typed_as_it_stands(tiny_gguf: Gguf, tmp_path: Path) -> None:
    report = build_tiny(tiny_gguf("llama"), tmp_path / "my model.edge", target="orin-nx-16", context=64)
    assert report.next_step is not None and report.next_step.endswith("edge build 'my model.edge' --finish")


def test_the_plan_of_a_build_counts_the_builder_of_this_machine(tiny_gguf: Gguf) -> None:
    source, tier = open_source(tiny_gguf("llama")), load_tier("int4")
    here, elsewhere = (
        build_bytes(planned_engine(source, tier, False), source.spec, kind, 64) for kind in ("tensorrt-rtx", "tensorrt")
    )
    assert here > builder_bytes("tensorrt-rtx", 0) > elsewhere
