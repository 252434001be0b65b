"""The data file of a portable ONNX. Owns: offsets, int4 packing, writing by row blocks. Needs: numpy. Never: protobufs.

Tensors are written through a mapping of the file, so that a block of rows lands as columns of [K, N] without the whole matrix
in memory: dirty pages belong to the file, and the kernel writes them back when it needs the room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.schemes import QuantTensor
from engines.portable.storage import Piece, StoredTensor

ALIGN = 4096  # so that every tensor can be mapped by itself, as the ONNX documentation asks for
BLOCK_WEIGHTS = 1 << 23  # weights of a block: 32 MiB as float32, a few times that while they are quantised


@dataclass(frozen=True, slots=True)
class DataLayout:
    """Where each piece lies in the data file."""

    offsets: Mapping[str, int]  # piece name -> bytes from the start
    nbytes: int


def plan_layout(tensors: Iterable[StoredTensor]) -> DataLayout:
    """Places pieces one behind another, each on ALIGN."""
    offsets, end = {}, 0
    for tensor in tensors:
        for piece in tensor.pieces:
            offsets[piece.name] = end
            end += -(-piece.nbytes // ALIGN) * ALIGN
    return DataLayout(offsets, end)


def rows_of_block(inputs: int) -> int:
    """Rows of `inputs` weights that are read and converted at once: an even number."""
    return max(64, BLOCK_WEIGHTS // inputs // 64 * 64)


def block_rows(stored: StoredTensor) -> int:
    """Rows of a tensor that are written at once."""
    outputs = stored.shape[0]
    if len(stored.shape) == 1 or (stored.kind == "int4" and outputs % 2):
        return outputs  # an odd [Kp, N] puts the end of one row and the start of the next into one byte
    return rows_of_block(stored.shape[1])


class TensorWriter:
    """Writes one tensor, block by block."""

    def __init__(self, path: Path, layout: DataLayout, stored: StoredTensor) -> None:
        self._stored = stored
        self._maps = {piece.name: _map(path, layout.offsets[piece.name], piece) for piece in stored.pieces}

    def write(self, begin: int, values: np.ndarray | QuantTensor) -> None:
        """Puts rows of W that start at row `begin` into their place; the form is the one that was planned."""
        stored = self._stored
        if isinstance(values, np.ndarray):
            block = values.astype(self._maps[stored.name].dtype, copy=False)
            self._maps[stored.name][..., begin : begin + len(values)] = block.T
            return
        assert values.group == stored.group and (values.minima is not None) == stored.has_minima
        columns = slice(begin, begin + values.shape[0])
        quants = self._maps[stored.quants.name]
        # quant - zero as two's complement, which uint8 arithmetic gives.
        signed = np.ascontiguousarray(values.quants.T) - np.uint8(stored.zero)
        if stored.kind == "int8":
            quants[:, columns] = signed.view(np.int8)
        elif stored.shape[0] % 2:
            quants[:] = pack_int4(signed)
        else:
            rows = quants.reshape(stored.padded_inputs, -1)
            rows[:, begin // 2 : columns.stop // 2] = pack_int4(signed).reshape(stored.padded_inputs, -1)
        self._maps[stored.scales.name][:, columns] = values.scales.T
        if values.minima is not None:
            self._maps[stored.minima.name][:, columns] = values.minima.T


def pack_int4(nibbles: np.ndarray) -> np.ndarray:
    """Nibbles (uint8, the high half is ignored) -> bytes, flattened, the earlier value in the low half (ONNX IR, int4)."""
    flat = nibbles.reshape(-1) & 15
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return flat[0::2] | flat[1::2] << 4


def unpack_int4(packed: np.ndarray, count: int) -> np.ndarray:
    """The inverse of pack_int4: uint8 [count], values 0..15."""
    nibbles = np.empty(packed.size * 2, np.uint8)
    nibbles[0::2] = packed & 15
    nibbles[1::2] = packed >> 4
    return nibbles[:count]


def _map(path: Path, offset: int, piece: Piece) -> np.memmap:
    if piece.dtype == "int4":
        return np.memmap(path, np.uint8, mode="r+", offset=offset, shape=(piece.nbytes,))
    return np.memmap(path, np.dtype(piece.dtype), mode="r+", offset=offset, shape=piece.shape)
