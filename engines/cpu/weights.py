"""The weight file of a CPU engine. Owns: order and places of tensors. Needs: portable reader, packing. Never: steps' meaning.

Tensors stand in the order in which the steps read them, each on a page of its own, in the layout of edge/contract.py. They are
packed a block of rows at a time, so that memory stays small however large a matrix is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from calibration.packing import pack, plan_geometry
from calibration.schemes import QuantTensor
from edge.contract import STRIP, WEIGHT_ALIGN
from edge.errors import BuildError
from edge.executors.cpu_plan import PlanStep, PlanTensor
from edge.progress import Progress
from engines.portable.reader import PortableModel

_BLOCK_WEIGHTS = 1 << 22  # values packed at once: some tens of MB with the copies that packing makes


def write_weights(
    model: PortableModel,
    steps: Sequence[PlanStep],
    constants: Mapping[str, np.ndarray],
    joined: Mapping[str, tuple[str, ...]],
    path: Path,
    progress: Progress,
) -> tuple[PlanTensor, ...]:
    """Writes every tensor that a step names to `path`. A name is a tensor of `model`, one of `constants` (inv_freq), or vectors
    of `model` that are `joined`."""
    names = list(dict.fromkeys(name for step in steps for name in step.tensors.values()))
    progress.start("packing weights", len(names), "tensors")
    tensors: list[PlanTensor] = []
    try:
        with path.open("xb") as file:
            for name in names:
                offset = -(-file.tell() // WEIGHT_ALIGN) * WEIGHT_ALIGN
                file.write(bytes(offset - file.tell()))
                if name in constants:
                    tensors.append(_write_vector(file, name, constants[name], offset))
                elif name in joined:
                    parts = [np.asarray(model.weight(part)) for part in joined[name]]
                    tensors.append(_write_vector(file, name, np.concatenate(parts), offset))
                elif len(model.stored[name].shape) == 1:
                    tensors.append(_write_vector(file, name, np.asarray(model.weight(name)), offset))
                else:
                    tensors.append(_write_matrix(file, model, name, offset))
                progress.advance()
    except OSError as error:
        raise BuildError(
            f"{path}: cannot be written ({error.strerror}). Free space, or choose another folder with -o"
        ) from error
    progress.done()
    return tuple(tensors)


def _write_vector(file: BinaryIO, name: str, values: np.ndarray, offset: int) -> PlanTensor:
    data = np.ascontiguousarray(values, dtype="<f4").tobytes()
    file.write(data)
    return PlanTensor(name, "fp32", len(values), 1, 0, False, offset, len(data))


def _write_matrix(file: BinaryIO, model: PortableModel, name: str, offset: int) -> PlanTensor:
    outputs, inputs = model.stored[name].shape
    block = max(STRIP, _BLOCK_WEIGHTS // inputs // STRIP * STRIP)
    written = 0
    for begin in range(0, outputs, block):
        rows = model.weight(name, begin, min(begin + block, outputs))
        if isinstance(rows, np.ndarray) and rows.dtype != np.float16:
            raise BuildError(f"{model.path}: {name} is {rows.dtype}, the cpu target takes fp16, int8, int4. Build with --tier")
        packed, geometry = pack(rows)
        written += file.write(packed.data)
    minima = isinstance(rows, QuantTensor) and rows.minima is not None
    kind, group = geometry.kind, geometry.group
    assert written == -(-outputs // STRIP) * plan_geometry(rows).strip_bytes
    return PlanTensor(name, kind, outputs, inputs, group, minima, offset, written)
