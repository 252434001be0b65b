"""A tiny model as an engine folder, opened in whatever way a test wants. Owns: Built, build_engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibration.tiers import load_tier
from edge import contract
from edge.executors.native import NativeExecutor
from edge.manifest import Limits
from edge.progress import SilentProgress
from edge.spec import ModelSpec
from edge.teacher import Teacher, teacher_pool_bytes
from engines.cpu.backend import write_engine
from engines.portable.export import write_portable
from engines.sources.base import Source, open_source

TOKENS = 300  # three chunks: two full ones and a tail


class Built:
    """An engine folder, its spec and the ONNX that it was lowered from."""

    def __init__(self, folder: Path, onnx: Path, spec: ModelSpec) -> None:
        self.folder, self.onnx, self.spec = folder, onnx, spec

    def teacher(self, isa: str = "auto", threads: int = 2, chunk: int = contract.SEAL_TOKENS) -> Teacher:
        limits = Limits(TOKENS, contract.SEAL_TOKENS, 4, contract.SEAL_TOKENS)
        pool_bytes = teacher_pool_bytes(self.spec, TOKENS)
        executor = NativeExecutor.open(self.folder, self.spec, limits, pool_bytes=pool_bytes, threads=threads, isa=isa)
        return Teacher(executor, self.spec, TOKENS, chunk)

    def logits(self, ids: list[int], **how: object) -> np.ndarray:
        teacher = self.teacher(**how)  # type: ignore[arg-type]
        try:
            return np.concatenate([rows.copy() for rows in teacher.rows(ids)])
        finally:
            teacher.executor.close()


def build_engine(gguf: Path, tier: str, folder: Path) -> Built:
    """Exports and lowers the model at `gguf` into `folder`."""
    return build_engine_of(open_source(gguf), tier, folder)


def build_engine_of(source: Source, tier: str, folder: Path) -> Built:
    write_portable(source, load_tier(tier), folder / "tier.onnx")
    write_engine(folder / "tier.onnx", folder / "engine", SilentProgress())
    return Built(folder / "engine", folder / "tier.onnx", source.spec)


def random_ids(spec: ModelSpec, count: int = TOKENS, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(4, spec.vocab_size, count).tolist()
