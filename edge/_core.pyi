"""The native core, engines/native/binding.cpp. Arrays are C-contiguous; a tensor record is PlanTensor.record()."""

from collections.abc import Sequence

import numpy as np

CONTRACT_VERSION: int
INTERFACE: int
OP_BYTES: int

def instruction_sets() -> list[str]: ...
def best_instruction_set() -> str: ...
def tensor_bytes(record: Sequence[int]) -> int: ...
def map_file(fd: int, bytes: int, loss: str = "") -> np.ndarray: ...  # uint8 [bytes], read-only
def map_pool(bytes: int, files: Sequence[tuple[int, int, str]]) -> tuple[np.ndarray, list[int]]: ...
def check_plan(weights: np.ndarray, tensors: np.ndarray, ops: bytes, shape: Sequence[int]) -> tuple[str, int, bool]: ...
def workspace_bytes(tensors: np.ndarray, ops: bytes, shape: Sequence[int], limits: Sequence[int], threads: int) -> int: ...
def best_bandwidth(threads: int, bytes: int, rounds: int) -> tuple[float, int, int]: ...
def dot_rate(isa: str, kind: int, threads: int, rounds: int) -> float: ...
def time_kernel(isa: str, numbers: Sequence[int], threads: int, seconds: float) -> tuple[float, float, float]: ...
def move_parts(
    isa: str, side: int, source_format: int, target_format: int, head_dim: int, source: np.ndarray, target: np.ndarray
) -> None: ...
def matmul(isa: str, strips: np.ndarray, record: Sequence[int], x: np.ndarray, y: np.ndarray) -> None: ...

class Engine:
    def __init__(
        self,
        weights: np.ndarray,
        tensors: np.ndarray,
        ops: bytes,
        shape: Sequence[int],
        limits: Sequence[int],
        isa: str,
        threads: int,
        pool: np.ndarray,
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    def run(
        self,
        token_ids: np.ndarray,
        query_start: np.ndarray,
        kv_len: np.ndarray,
        page_table: np.ndarray,
        page_moves: np.ndarray,
        logit_rows: np.ndarray,
        read_pages: np.ndarray,
        logits: np.ndarray,
        not_finite: np.ndarray,
        omitted: np.ndarray,
    ) -> tuple[str, int, bool]: ...
    def cancel(self) -> None: ...
