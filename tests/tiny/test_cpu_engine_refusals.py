"""Plans, files and steps that would make the engine read or write elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import contract
from edge.errors import ConfigError, ExecutorError, PackageError
from edge.spec import ModelSpec

pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")

from built_engine import TOKENS, Built

from edge.executors.base import StepInput
from edge.executors.native import NativeExecutor
from edge.manifest import Limits
from edge.teacher import teacher_pool_bytes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"token_ids": np.array([10**6], dtype=np.int32)}, "outside the vocabulary"),
        ({"kv_len": np.array([0], dtype=np.int32)}, "shorter than"),
        ({"kv_len": np.array([TOKENS + 1], dtype=np.int32)}, "longer than"),
        ({"logit_rows": np.array([1], dtype=np.int32)}, "outside the step"),
        ({"query_start": np.array([0, 2], dtype=np.int32)}, "does not cover"),
        ({"page_moves": np.array([[0, 2, 0, 0]], dtype=np.int32)}, "names no extent"),
        ({"page_moves": np.array([[0, 0, 0, contract.EMPTY]], dtype=np.int32)}, "names no extent"),
        ({"page_moves": np.array([[0, 0, 1 << 28, 0]], dtype=np.int32)}, "between formats"),
        ({"page_moves": np.array([[0, 1, 2 << 28, 1 << 28]], dtype=np.int32)}, "between formats"),
        ({"page_moves": np.array([[0, 0, 0, 3 << 28]], dtype=np.int32)}, "cannot be kept in"),
        ({"page_moves": np.array([[0, 0, 0, 4 << 28]], dtype=np.int32)}, "cannot be kept in"),
        ({"page_table": np.full((1, 1, 8, 2), 1 << 28, dtype=np.int32)}, "writes is not fp16"),
        ({"page_table": np.full((1, 1, 8, 2), 5 << 28, dtype=np.int32)}, "cannot be kept in"),
        ({"page_moves": np.array([[0, 0, contract.OFFSET_MASK, 0]], dtype=np.int32)}, "outside the pool"),
    ],
)
def test_a_step_that_would_read_elsewhere_is_refused(
    build: Callable[[str, str], Built], change: dict[str, np.ndarray], reason: str
) -> None:
    built = build("llama_published", "int4")
    teacher = built.teacher()
    step = StepInput(
        token_ids=np.array([5], dtype=np.int32),
        query_start=np.array([0, 1], dtype=np.int32),
        kv_len=np.array([1], dtype=np.int32),
        page_table=teacher._page_table(),
        page_moves=np.empty((0, 4), dtype=np.int32),
        logit_rows=np.array([0], dtype=np.int32),
    )
    teacher.executor.run(step)
    with pytest.raises(ExecutorError, match=reason):
        teacher.executor.run(replace(step, **change))
    teacher.executor.close()


def test_threads_out_of_range_are_refused(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    for threads in (0, 40_000):
        with pytest.raises(ConfigError, match="must be 1 to"):
            built.teacher(threads=threads)


def _open_changed(folder: Path, spec: ModelSpec, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "engine"))
    document = json.loads((copy / "plan.json").read_text())
    change(document)
    (copy / "plan.json").write_text(json.dumps(document))
    limits = Limits(64, 64, 1, 64)
    NativeExecutor.open(copy, spec, limits, pool_bytes=teacher_pool_bytes(spec, 64), threads=1).close()


def _step(document: dict[str, Any], op: str) -> dict[str, Any]:
    return next(step for step in document["steps"] if step["op"] == op)


def _tensor(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(tensor for tensor in document["tensors"] if tensor["name"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: _step(d, "embed").update(weight0="layers.0.attn.q_proj.weight"),
        lambda d: _step(d, "project").pop("weight2"),
        lambda d: _step(d, "project").update(norm="layers.0.attn.q_proj.weight"),
        lambda d: _step(d, "attend").update(group=7),
        lambda d: _step(d, "attend").update(group_layer=-1),
        lambda d: _step(d, "attend").update(group_layer=1),
        lambda d: _step(d, "attend").update(group_layer=2**31 - 1),
        lambda d: _step(d, "attend").update(group_layer=2**40),
        lambda d: d["steps"].pop(),
        lambda d: d["steps"].pop(0),
        lambda d: d["steps"].insert(1, d["steps"].pop(2)),
        lambda d: d["steps"].__delitem__(slice(1, 6)),
        lambda d: _step(d, "attend").update(window=5),
        lambda d: _step(d, "attend").update(inv_freq="final_norm.weight"),
        lambda d: _step(d, "add").update(input="feed_forward"),
        lambda d: _step(d, "add").update(weight1="layers.0.attn.o_proj.weight"),
        lambda d: _step(d, "gated").update(activation="none"),
        lambda d: _step(d, "head").pop("norm"),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(outputs=10**6),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(offset=1 << 40),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(offset=100),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(group=8),
        lambda d: _tensor(d, "layers.1.ffn.up_proj.weight").update(minima=False, group=16),
        lambda d: d["steps"].clear(),
    ],
)
def test_a_plan_that_would_read_elsewhere_is_refused_when_opened(
    build: Callable[[str, str], Built], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    built = build("gemma_published", "int4")
    with pytest.raises(PackageError, match="edge build"):
        _open_changed(built.folder, built.spec, tmp_path, change)


def test_a_weight_file_that_was_cut_off_is_refused(build: Callable[[str, str], Built], tmp_path: Path) -> None:
    built = build("llama_published", "int4")
    copy = Path(shutil.copytree(built.folder, tmp_path / "engine"))
    with (copy / "weights.bin").open("r+b") as file:
        file.truncate(8192)
    with pytest.raises(PackageError, match=r"weights\.bin: has 8192 bytes"):
        NativeExecutor.open(copy, built.spec, Limits(64, 64, 1, 64), pool_bytes=4096, threads=1)


def test_an_instruction_set_that_is_not_here_is_refused(build: Callable[[str, str], Built]) -> None:
    built = build("llama_published", "int4")
    with pytest.raises(ConfigError, match="plain"):
        built.teacher(isa="quantum")
