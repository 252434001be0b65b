"""Weights are in memory once: tied embeddings in the file, the file in all processes that run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import Built

from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan

# Opens an engine, reads all its weights, then answers each line with the kilobytes of its mapping: resident, private.
HOLDER = """
import sys
from pathlib import Path
import numpy as np
from edge.executors.native import _map_weights
path = Path(sys.argv[1])
weights = _map_weights(path, path.stat().st_size)
weights.sum()
for line in sys.stdin:
    found, inside = {"Rss": 0, "Private_Clean": 0, "Private_Dirty": 0}, False
    for row in Path("/proc/self/smaps").read_text().splitlines():
        name = row.split()[0]
        if not name.endswith(":"):
            inside = row.endswith(str(path))
        elif inside and name[:-1] in found:
            found[name[:-1]] += int(row.split()[1])
    print(found["Rss"], found["Private_Clean"] + found["Private_Dirty"], flush=True)
"""


def test_a_tied_embedding_is_stored_once(build: Callable[[str, str], Built]) -> None:
    for model, copies in (("llama_published", 1), ("llama_untied", 2)):
        built = build(model, "int8")
        plan = CpuPlan.read(built.folder / PLAN_FILE)
        tables = [tensor.name for tensor in plan.tensors if tensor.outputs == built.spec.vocab_size and tensor.inputs > 1]
        assert len(tables) == copies
        assert {plan.steps[0].tensors["weight0"], plan.steps[-1].tensors["weight0"]} == set(tables)
        assert (built.folder / WEIGHTS_FILE).stat().st_size == plan.weight_bytes


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/self/smaps")
def test_processes_share_the_memory_of_the_weights(build: Callable[[str, str], Built]) -> None:
    path = build("llama_published", "int8").folder / WEIGHTS_FILE
    command = [sys.executable, "-P", "-c", HOLDER, str(path)]
    holders = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for _ in range(2):  # the first round waits for both to have the weights
            counts = [_ask(holder) for holder in holders]
        for resident, private in counts:
            assert resident * 1024 >= path.stat().st_size and private == 0
    finally:
        for holder in holders:
            holder.communicate()


def _ask(holder: subprocess.Popen[str]) -> tuple[int, int]:
    assert holder.stdin and holder.stdout
    holder.stdin.write("\n")
    holder.stdin.flush()
    resident, private = holder.stdout.readline().split()
    return int(resident), int(private)
