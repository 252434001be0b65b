"""Graphs with linear KV in ONNX Runtime: the reference, and what a builder is given. Owns: sessions, caches, chunks. Needs:
onnxruntime. Never: text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.contract import SEAL_TOKENS
from edge.env import without_telemetry
from edge.errors import BuildError, ExecutorError, RequestError, SourceError
from edge.spec import ModelSpec
from engines.portable.external import external_extent, external_tensors
from engines.portable.metadata import read_properties
from engines.portable.reader import read_model
from engines.portable.storage import ONNX_TYPES
from engines.reference.rewrites import gather_before_dequantise

OLDEST = (1, 32)  # of ONNX Runtime: opset 24 with TensorScatter, Attention over caches, blocked int4


@dataclass(slots=True)
class Cache:
    """Keys and values of some sequences, by graph input name. OrtGraph.run replaces the arrays."""

    past: dict[str, np.ndarray]  # in the graph's type, [B, Hkv, M, D]

    @property
    def max_context(self) -> int:
        """M: positions that fit."""
        return next(iter(self.past.values())).shape[2]


class OrtGraph:
    """One session over a graph with the portable inputs, in float32 or float16. Weights are dequantised exactly; activations
    are not quantised but where the graph says so."""

    def __init__(self, path: Path, session: Any, spec: ModelSpec) -> None:
        self.spec = spec
        self._path = path
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]
        self._inputs = {value.name: value for value in session.get_inputs()}
        past = self._inputs["past_key.0"]
        self._dtype = np.dtype({"tensor(float)": np.float32, "tensor(float16)": np.float16}[past.type])
        # A lowered graph has its context as a number.
        self._fixed_context = past.shape[2] if isinstance(past.shape[2], int) else None

    @classmethod
    def open(cls, path: Path, spec: ModelSpec, threads: int) -> OrtGraph:
        """The graph at `path`, as the file has it. SourceError where ONNX Runtime refuses it."""
        return cls(path, _open_session(path, str(path), session_options(_import_runtime(), threads)), spec)

    def new_cache(self, sequences: int, max_context: int) -> Cache:
        """An empty cache for `sequences` sequences of at most `max_context` tokens, or the graph's own fixed context."""
        spec = self.spec
        shape = (sequences, spec.num_kv_heads, self._fixed_context or max_context, spec.head_dim)
        names = [f"past_{kind}.{index}" for index in range(len(spec.layers)) for kind in ("key", "value")]
        return Cache({name: np.zeros(shape, self._dtype) for name in names})

    def run(self, ids: np.ndarray, positions: np.ndarray, cache: Cache) -> np.ndarray:
        """Logits float32 [B, S, V] of `ids` [B, S] at `positions` [B, S], consecutive in each row; K and V go to `cache`."""
        if int(positions.max()) >= cache.max_context:
            fact = f"position {int(positions.max())} does not fit in a cache of {cache.max_context}"
            raise RequestError(f"{self._path}: {fact}. Use a larger max_context")
        keys = np.arange(cache.max_context)
        feeds = {
            "input_ids": ids.astype(np.int64),
            "position_ids": positions.astype(np.int64),
            "write_indices": positions[:, 0].astype(np.int64),
            "attention_mask": (keys[None, None, :] <= positions[:, :, None])[:, None],
            **cache.past,
        }
        if "logit_rows" in self._inputs:
            feeds["logit_rows"] = np.arange(ids.shape[1], dtype=np.int64)
        try:
            results = dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise ExecutorError(f"{self._path}: ONNX Runtime failed ({_first_line(error)}). Export the model again") from error
        logits = results.pop("logits")
        cache.past = {name.replace("present_", "past_"): values for name, values in results.items()}
        return logits.astype(np.float32, copy=False)

    def logits(self, ids: Sequence[int], chunk: int = 128, max_context: int | None = None) -> Iterator[np.ndarray]:
        """Float32 [n, V], n <= `chunk`: the rows of one sequence, run after run through the cache, none of them kept here."""
        if not ids:
            raise RequestError("the reference got no tokens. Give it at least one")
        for rows, _ in self.chunks(ids, chunk, max_context):
            yield rows

    def chunks(
        self, ids: Sequence[int], chunk: int = SEAL_TOKENS, max_context: int | None = None
    ) -> Iterator[tuple[np.ndarray, Cache]]:
        """Logits as above, each with the cache that the next run reads. A graph with further outputs puts them there, too:
        they must be taken out before the next run."""
        cache = self.new_cache(1, max_context or len(ids))
        for begin in range(0, len(ids), chunk):
            rows = np.asarray(ids[begin : begin + chunk])[None]
            yield self.run(rows, begin + np.arange(rows.shape[1])[None], cache)[0], cache

    def rows(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """The logits of a text, as a verdict asks for them."""
        return self.logits(ids, SEAL_TOKENS)


class OrtReference(OrtGraph):
    """The portable ONNX of a model in float32."""

    def __init__(self, path: Path, threads: int) -> None:
        """Opens the export at `path`. Raises SourceError for a damaged one, BuildError where ONNX Runtime is missing or old."""
        runtime = _import_runtime()
        model = read_model(path)
        spec, _, _ = read_properties(path, {entry.key: entry.value for entry in model.metadata_props})
        for tensor in external_tensors(model.graph):
            external_extent(path, tensor)
        _check_float32(path, model.graph)
        gather_before_dequantise(model.graph)
        options = session_options(runtime, threads)
        # The model goes in as bytes, so its data would be looked for in the current folder.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent.resolve()))
        super().__init__(path, _open_session(path, model.SerializeToString(), options), spec)


def _open_session(path: Path, model: str | bytes, options: Any) -> Any:
    try:
        return _import_runtime().InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise SourceError(f"{path}: ONNX Runtime cannot load it ({_first_line(error)}). Export it again") from error


def session_options(runtime: Any, threads: int) -> Any:
    """Options under which ONNX Runtime computes what the graph says."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Its default for fused weights quantises activations to int8; level 1 is float32.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    # Freed memory goes back at once: rows of logits are large and come in few sizes.
    options.enable_cpu_mem_arena = False
    return options


def _import_runtime() -> Any:
    needs = f"the reference needs onnx and ONNX Runtime {OLDEST[0]}.{OLDEST[1]} or newer"
    remedy = "With Python 3.11 or newer: ./install.sh"
    without_telemetry()
    try:
        import onnxruntime
    except ImportError as error:
        raise BuildError(f"{needs} ({error}). {remedy}") from error
    if tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < OLDEST:
        raise BuildError(f"{needs}, here is {onnxruntime.__version__}. {remedy}")
    return onnxruntime


def _check_float32(path: Path, graph: Any) -> None:
    logits = next(value for value in graph.output if value.name == "logits")
    if logits.type.tensor_type.elem_type != ONNX_TYPES["float32"]:
        raise RequestError(f"{path}: was exported with --dtype float16; the reference is float32. Export with --dtype float32")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
