"""Runs a CPU plan in the native core. Owns: the weight mapping, the core's engine. Needs: cpu_plan, pool_memory, the native
extension. Never: page policy, sampling.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge.contract import PAGE_TOKENS
from edge.errors import BudgetError, ConfigError, ExecutorError, PackageError
from edge.executors.base import NOT_WATCHED, StepInput, StepOutput
from edge.executors.cpu_plan import PLAN_FILE, WEIGHTS_FILE, CpuPlan, shape_numbers
from edge.executors.native_core import load_core
from edge.executors.pool_memory import PoolFile, PoolMemory, loss_line
from edge.spec import ModelSpec
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.manifest import Limits

MAX_THREADS = 1024


def available_threads() -> int:
    """Processors that this process may use (cpusets and taskset included)."""
    return len(os.sched_getaffinity(0))


def workspace_bytes(plan: CpuPlan, spec: ModelSpec, limits: Limits, threads: int) -> int:
    """Bytes that the core allocates beside weights and pool, logits and the mass of pages included."""
    core = load_core()
    numbers = [limits.max_step_tokens, limits.max_sequences, limits.max_context, limits.max_logit_rows]
    space: int = core.workspace_bytes(plan.tensor_records(), plan.op_records(), shape_numbers(spec), numbers, threads)
    mass = len(spec.groups) * limits.max_sequences * -(-limits.max_context // PAGE_TOKENS) * 8
    return space + limits.max_logit_rows * spec.vocab_size * 4 + mass


class NativeExecutor:
    """The `native` executor: one CPU plan, its mapped weights, one pool. Implements edge.executors.base.Executor."""

    def __init__(self, engine: Any, plan: CpuPlan, memory: PoolMemory, logits: np.ndarray, not_finite: np.ndarray) -> None:
        self._engine = engine
        self._plan = plan
        self._memory = memory
        self._logits = logits
        self._not_finite = not_finite
        self._omitted = np.zeros_like(not_finite, dtype=np.float32)

    @classmethod
    def open(
        cls,
        folder: Path,
        spec: ModelSpec,
        limits: Limits,
        *,
        pool_bytes: int,
        threads: int,
        isa: str = "auto",
        files: Sequence[PoolFile] = (),
    ) -> NativeExecutor:
        """Maps `folder`/weights.bin, takes `pool_bytes` of memory for pages, maps `files` behind it, starts `threads` threads.

        The pool is touched at once: what was planned is what the process has, and it is refused here or never.
        Raises PackageError for a plan that does not fit, BudgetError when memory or threads cannot be had, ConfigError.
        """
        core = load_core()
        if isa not in ("auto", *core.instruction_sets()):
            known = ", ".join(core.instruction_sets())
            raise ConfigError(f"--isa {isa}: this machine or build has none of that name. Use auto, or one of: {known}")
        if not 1 <= threads <= MAX_THREADS:
            raise ConfigError(f"--threads {threads}: must be 1 to {MAX_THREADS}. This process may use {available_threads()}")
        plan = CpuPlan.read(folder / PLAN_FILE)
        weights = _map_weights(folder / WEIGHTS_FILE, plan.weight_bytes)
        _check_plan(core, folder, plan, weights, spec)
        memory = PoolMemory.open(pool_bytes, files)
        try:
            engine = core.Engine(
                weights=weights,
                tensors=plan.tensor_records(),
                ops=plan.op_records(),
                shape=shape_numbers(spec),
                limits=[limits.max_step_tokens, limits.max_sequences, limits.max_context, limits.max_logit_rows],
                isa=isa,
                threads=threads,
                pool=memory.pages,
            )
            logits = np.zeros((limits.max_logit_rows, spec.vocab_size), dtype=np.float32)
        except MemoryError as error:
            raise BudgetError(f"engine: {error} beside a pool of {human_bytes(pool_bytes)}. Use a smaller context") from None
        return cls(engine, plan, memory, logits, np.zeros(limits.max_sequences, dtype=np.int32))

    @property
    def isa(self) -> str:
        """Name of the instruction set that runs."""
        name: str = self._engine.isa
        return name

    @property
    def pool(self) -> np.ndarray:
        """uint8: the memory of the pages, that of files behind it."""
        return self._memory.pages

    @property
    def file_offsets(self) -> tuple[int, ...]:
        """Where in `pool` each file begins."""
        return self._memory.file_offsets

    @property
    def plan(self) -> CpuPlan:
        return self._plan

    def run(self, step: StepInput) -> StepOutput:
        """The step's logits and flags. Raises ExecutorError with the core's reason."""
        count = len(step.kv_len)
        omitted = self._omitted[:count]
        mass = np.empty(step.page_table.shape[:3], np.int64) if len(step.watch) else NOT_WATCHED
        logits, not_finite = self._logits[: len(step.logit_rows)], self._not_finite[:count]
        output = StepOutput(logits, not_finite, omitted[: len(step.read_pages)], mass)
        message, where, cancelled = self._engine.run(
            step.token_ids,
            step.query_start,
            step.kv_len,
            step.page_table,
            step.page_moves,
            step.logit_rows,
            step.read_pages,
            step.watch,
            output.logits,
            output.not_finite,
            omitted,
            output.mass,
        )
        if cancelled:
            raise ExecutorError("native: the step was cancelled")
        if message:
            raise ExecutorError(f"native: {message}" + (f" (number {where})" if where >= 0 else ""))
        return output

    def cancel(self) -> None:
        if self._engine is not None:
            self._engine.cancel()

    def close(self) -> None:
        self._engine = None
        self._memory = PoolMemory(np.empty(0, dtype=np.uint8), ())
        self._logits = np.empty((0, 0), dtype=np.float32)


def _check_plan(core: Any, folder: Path, plan: CpuPlan, weights: np.ndarray, spec: ModelSpec) -> None:
    """PackageError where the plan does not fit the file, the spec or itself; nothing is allocated before."""
    attends = Counter(step.values.get("group") for step in plan.steps if step.op == "attend")
    reason = ""
    if attends != {group: len(layers) for group, layers in enumerate(spec.groups)}:
        reason = "its attention steps are not the layers of the manifest's model"
    else:
        message, where, _ = core.check_plan(weights, plan.tensor_records(), plan.op_records(), shape_numbers(spec))
        if message:
            reason = f"{message} (number {where})"
    if reason:
        raise PackageError(f"{folder / PLAN_FILE}: {reason}. Build the package again: edge build")


def _map_weights(path: Path, needed: int) -> np.ndarray:
    """uint8 view of the file, read-only and shared with every other process that maps it; nothing is copied."""
    size = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < needed or size == 0:
                raise PackageError(f"{path}: has {size} bytes, its plan needs {needed}. Build the package again: edge build")
            mapped: np.ndarray = load_core().map_file(
                file.fileno(), size, loss_line(path, "build the package again: edge build")
            )
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise BudgetError(
                f"{path}: {size / 2**20:.0f} MiB cannot be mapped, memory is short. Free some, or lift ulimit -v"
            ) from None
        raise PackageError(f"{path}: cannot be mapped ({error.strerror}). Check the file, or build again: edge build") from None
    return mapped
