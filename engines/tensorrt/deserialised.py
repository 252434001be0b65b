"""A plan read by the library that built it, on its GPU. Owns: what such an engine says of itself. Needs: `trt`. Never: runs
it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from edge.engine_library import TITLES, LibraryKind
from edge.engine_record import EngineProfile, EngineTensor, ShapeRange
from edge.errors import EdgeError
from engines.tensorrt.job import Opened
from engines.tensorrt.log import LibraryLog
from engines.tensorrt.network import sizes_of, type_name

if TYPE_CHECKING:
    from engines.tensorrt.library import trt


def read_plan(plan: Path, library: LibraryKind) -> Opened:
    """Deserialises the plan. EdgeError where the library does not take it. Only behind `check_engine`: a plan that does not
    fit, or a missing driver, can end the process."""
    from engines.tensorrt.library import trt

    log = LibraryLog()
    logger = log.make_logger()
    runtime = trt.Runtime(logger)
    # Mapped, so that the plan is not in memory twice while it is read.
    with plan.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        engine = runtime.deserialize_cuda_engine(data)
    if engine is None:
        raise EdgeError(
            f"{plan}: {TITLES[library]} cannot read it ({log.last_error or 'it gives no reason'}). Build the plan again"
        )
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    tensors = tuple(_tensor(engine, name) for name in names)
    return Opened(tensors, tuple(_profile(engine, tensors, index) for index in range(engine.num_optimization_profiles)))


def _tensor(engine: trt.ICudaEngine, name: str) -> EngineTensor:
    from engines.tensorrt.library import trt

    is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
    return EngineTensor(name, type_name(engine.get_tensor_dtype(name)), sizes_of(engine.get_tensor_shape(name)), is_input)


def _profile(engine: trt.ICudaEngine, tensors: tuple[EngineTensor, ...], index: int) -> EngineProfile:
    shapes = {}
    for tensor in tensors:
        if tensor.is_input and -1 in tensor.shape:
            smallest, tuned, largest = (sizes_of(shape) for shape in engine.get_tensor_profile_shape(tensor.name, index))
            shapes[tensor.name] = ShapeRange(smallest, tuned, largest)
    return EngineProfile(str(index), shapes)
