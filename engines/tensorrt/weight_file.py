"""The weights that the graphs of an engine share. Owns: places in the file, the writing. Needs: forms. Never: graphs.

Pieces lie one behind another, each on a page, so that every one can be mapped by itself; what lies between is 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge.errors import BuildError
from edge.progress import Progress
from engines.portable.data import ALIGN
from engines.portable.reader import PortableModel
from engines.portable.storage import Piece
from engines.tensorrt.weight_forms import WeightForm


@dataclass(frozen=True, slots=True)
class WrittenWeights:
    """Where pieces lie, and what writing them rounded."""

    offsets: dict[str, int]  # by piece name
    rounding: dict[str, float]  # by tensor name: WeightForm.write


def write_weights(path: Path, model: PortableModel, forms: Sequence[WeightForm], progress: Progress) -> WrittenWeights:
    """Writes the pieces of all `forms` to the new file `path`, form by form. BuildError where it cannot be written."""
    offsets, nbytes = _places([piece for form in forms for piece in form.pieces])
    rounding = {}
    progress.start("lowering weights", len(forms), "tensors")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # A mapping of a file that has its blocks cannot run into a full disk.
            os.posix_fallocate(descriptor, 0, nbytes)
        finally:
            os.close(descriptor)
        for form in forms:
            rounding[form.name] = form.write(
                model, {piece.name: _map(path, offsets[piece.name], piece) for piece in form.pieces}
            )
            progress.advance()
    except OSError as error:
        raise BuildError(
            f"{path}: cannot be written ({error.strerror}). Free some space, or choose another place with -o"
        ) from error
    progress.done()
    return WrittenWeights(offsets, rounding)


def _places(pieces: Sequence[Piece]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for piece in pieces:
        offsets[piece.name] = end
        end += -(-piece.nbytes // ALIGN) * ALIGN
    return offsets, end


def _map(path: Path, offset: int, piece: Piece) -> np.memmap:
    if piece.dtype == "int4":
        return np.memmap(path, np.uint8, mode="r+", offset=offset, shape=(piece.nbytes,))
    return np.memmap(path, np.dtype(piece.dtype), mode="r+", offset=offset, shape=piece.shape)
