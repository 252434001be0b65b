"""The memory plan against what a fresh process really used, on both models at three contexts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

TOLERANCE = 0.05  # of what was used
CONTEXTS = (512, 2048, 8192)


def assert_plan_held(command: list[str], package: Path, *words: str) -> None:
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    planned, used = row["planned_bytes"], row["peak_rss_bytes"]
    assert abs(planned - used) <= TOLERANCE * used, f"{package.name}: planned {planned / 1e6:.1f} MB, used {used / 1e6:.1f} MB"


@pytest.mark.native
@pytest.mark.parametrize("context", CONTEXTS)
def test_smollm2_uses_what_was_planned(edge_command: list[str], smollm2_package: Path, context: int) -> None:
    words = ("run", str(smollm2_package), "word " * 300, "-n", "8", "-c", str(context), "--json")
    assert_plan_held(edge_command, smollm2_package, *words)


@pytest.mark.native
@pytest.mark.parametrize("context", CONTEXTS)
def test_gemma3_uses_what_was_planned(edge_command: list[str], gemma3_package: Path, context: int) -> None:
    words = ("run", str(gemma3_package), "word " * 300, "-n", "8", "-c", str(context), "--json")
    assert_plan_held(edge_command, gemma3_package, *words)


@pytest.mark.native
def test_a_bench_uses_what_was_planned(edge_command: list[str], smollm2_package: Path) -> None:
    assert_plan_held(edge_command, smollm2_package, "bench", str(smollm2_package), "--prompt", "512", "--decode", "8", "--json")
