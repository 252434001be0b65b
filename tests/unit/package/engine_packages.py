"""Packages of TensorRT engines whose plans are not plans. Owns: records and files that fit together. Needs: numpy.
Never: TensorRT."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edge import contract
from edge.manifest import FORMAT_VERSION

PLAN = b"a plan" * 100
GRAPH_WEIGHTS = b"weights of graphs" * 100
LIMITS = {"kl_mean": 0.005, "top1": 0.97, "perplexity_ratio": 1.01}
FAILED = {"kl_mean": 0.5, "top1": 0.5, "perplexity_ratio": 3.0, "tokens": 9, "limits": LIMITS, "passed": False, "text": "t",
          "windows": 1, "window_tokens": 9}  # fmt: skip
PASSED = FAILED | {"kl_mean": 0.0001, "top1": 0.999, "perplexity_ratio": 1.0001, "passed": True}

Change = Callable[[dict[str, Any]], Any]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def graph_of(path: str | None, since: str, content: bytes) -> dict[str, Any]:
    tokens = {"smallest": [1, 1], "tuned": [1, 128], "largest": [1, 128]}
    one = {"smallest": [1, 1], "tuned": [1, 1], "largest": [1, 1]}
    tensors = [
        {"name": "input_ids", "dtype": "int64", "shape": [1, -1], "is_input": True},
        *({"name": f"past_key.{i}", "dtype": "float16", "shape": [1, 1, 128, 32], "is_input": True} for i in range(2)),
        {"name": "logits", "dtype": "float16", "shape": [1, -1, 64], "is_input": False},
    ]
    return {
        "path": path,
        "since": since,
        "attention": "linear",
        "activations": "float16",
        "sha256": sha256(content),
        "tensors": tensors,
        "profiles": [
            {"name": "prefill", "shapes": {"input_ids": tokens}},
            {"name": "decode", "shapes": {"input_ids": one}},
        ],
    }


def rtx_files() -> dict[str, bytes]:
    return {"engine/model.plan": PLAN}


def rtx_engine() -> dict[str, Any]:
    graph = graph_of(None, "1.7", b"the graph of an A10")
    plan = {"path": "engine/model.plan", "graph_sha256": graph["sha256"], "version": "1.7.1.116", "driver": None,
            "device": None, "plugins": {}, "note": ""}  # fmt: skip
    return {
        "kind": "tensorrt-rtx",
        "sm": "8.6",
        "weights_sha256": "ab" * 32,
        "graphs": [graph],
        "plan": plan,
        "largest_activation": 24747.4,
        "note": "",
    }


def unfinished_files() -> dict[str, bytes]:
    graphs = {f"engine/graphs/tensorrt-{since}.onnx": since.encode() for since in ("10.3", "10.15")}
    return {**graphs, "engine/graphs/weights.data": GRAPH_WEIGHTS}


def unfinished_engine() -> dict[str, Any]:
    graphs = [graph_of(f"engine/graphs/tensorrt-{since}.onnx", since, since.encode()) for since in ("10.3", "10.15")]
    return {
        "kind": "tensorrt",
        "sm": "8.7",
        "weights_sha256": sha256(GRAPH_WEIGHTS),
        "graphs": graphs,
        "plan": None,
        "largest_activation": 24747.4,
        "note": "",
    }


def finish(manifest: dict[str, Any]) -> None:
    """What the last step on the device adds to an unfinished package whose folder has the plan, too."""
    engine = manifest["engine"]
    plan = {"path": "engine/model.plan", "graph_sha256": engine["graphs"][1]["sha256"], "version": "10.16.2.10",
            "driver": "13.2", "device": "orin-nx-16", "plugins": {}, "note": ""}  # fmt: skip
    engine["plan"] = plan
    manifest["files"]["engine/model.plan"] = {"bytes": len(PLAN), "sha256": sha256(PLAN)}


def reference_logits() -> bytes:
    """The stored rows of the prompt `p` of three tokens."""
    file = io.BytesIO()
    best = np.zeros((3, 4), np.float32)
    ids = np.tile(np.arange(4, dtype=np.int32), (3, 1))
    np.savez(file, **{"p.ids": ids, "p.logits": best, "p.log_sum_exp": np.full(3, 4.0, np.float32)})
    return file.getvalue()


def manifest_of(target: str, engine: dict[str, Any] | None, files: dict[str, bytes]) -> dict[str, Any]:
    layer, rope = {"window": 0, "rope": 0}, {"dim": 32, "base": 10000.0, "divisors": [], "q_scale": 1.0}
    spec = {"name": "tiny", "architecture": "llama", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64,
            "num_heads": 2, "num_kv_heads": 1, "head_dim": 32, "layers": [layer] * 2, "ropes": [rope], "context_length": 128,
            "norm_epsilon": 1e-5, "activation": "silu", "attention_scale": 0.2, "embedding_scale": 1.0, "qk_norm": False,
            "post_norms": False, "tied_head": True, "attention_soft_cap": 0.0, "logit_soft_cap": 0.0,
            "qkv_bias": False}  # fmt: skip
    return {
        "format_version": FORMAT_VERSION,
        "contract_version": contract.VERSION,
        "spec": spec,
        "tier": "int4",
        "requantised": False,
        "context": None,
        "target": target,
        "seal_tokens": 128,
        "limits": {"max_context": 128, "max_step_tokens": 128, "max_sequences": 1, "max_logit_rows": 128},
        "capabilities": {"presets": ["exact"], "prefixes": False, "batch_invariant": False},
        "libraries": {},
        "source": {"name": "tiny.gguf", "sha256": "0" * 64, "licence": "unknown"},
        "files": {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()},
        "bits_per_weight": 4.5,
        "tensors": [],
        "verdicts": {"engine": None, "graph": PASSED, "tier": PASSED},
        "preset_verdicts": {},
        "reference": [{"name": "p", "token_ids": [1, 2, 3]}],
        "engine": engine,
    }


def write_package(
    folder: Path, target: str, engine: dict[str, Any], files: dict[str, bytes], change: Change = lambda manifest: None
) -> Path:
    """The package in `folder`; `change` gets its manifest as plain values."""
    files = {**files, "tokenizer/tables.bin": b"{}", "tokenizer/tokenizer_config.json": b"{}",
             "reference/logits.npz": reference_logits()}  # fmt: skip
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    manifest = manifest_of(target, engine, files)
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def write_rtx(folder: Path, change: Change = lambda manifest: None) -> Path:
    """A package for an A10, whole."""
    return write_package(folder, "a10", rtx_engine(), rtx_files(), change)


def write_unfinished(folder: Path, change: Change = lambda manifest: None) -> Path:
    """A package for an Orin that its device has not finished."""
    return write_package(folder, "orin-nx-16", unfinished_engine(), unfinished_files(), change)


def write_finished(folder: Path, change: Change = lambda manifest: None) -> Path:
    """The same, finished."""

    def both(manifest: dict[str, Any]) -> None:
        finish(manifest)
        change(manifest)

    (folder / "engine").mkdir(parents=True)
    (folder / "engine/model.plan").write_bytes(PLAN)
    return write_package(folder, "orin-nx-16", unfinished_engine(), unfinished_files(), both)
