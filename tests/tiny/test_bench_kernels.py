"""`edge bench kernels` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_process import Edge

pytestmark = [pytest.mark.native]
core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")


def test_every_kernel_has_a_row_with_its_share(edge: Edge, tmp_path: Path) -> None:
    isa = core.best_instruction_set()
    row = edge.json("bench", "kernels", "--isa", isa, "--threads", "1")
    assert row["machine"][isa]["gb_per_s"] > 0
    names = [f"{kernel['group']}: {kernel['kernel']}" for kernel in row["kernels"]]
    assert len(set(names)) == len(names)
    for name in ("matrix: int4, minima, 1 row", "gate and up: int4, minima, 128 rows", "attention: 1 row at 4,096"):
        assert name in names


def test_an_instruction_set_that_is_not_here_is_refused(edge: Edge) -> None:
    assert "--isa abacus: this machine or build has none of that name. There are: plain" in edge.refuse(
        "bench", "kernels", "--isa", "abacus"
    )
