"""Floating-point tensors of model files. Owns: their types, how each is read. Needs: a mapped file. Never: quants."""

from __future__ import annotations

from typing import Any

import numpy as np

from edge.errors import SourceError

FLOAT_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
CHECKED_VALUES = 1 << 21  # looked at together: temporaries stay in the cache


def read_floats(type_name: str, stored: np.ndarray, rows: slice | np.ndarray, where: str) -> np.ndarray:
    """Rows of `stored`, an array of FLOAT_TYPES[type_name], as float16 or float32, exactly: a view where rows and type allow
    it. SourceError for a value that is not a finite number; `where` names the tensor."""
    values = stored[rows]
    if type_name == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)  # bfloat16 is the upper half of a float32
    step = max(1, CHECKED_VALUES // max(1, values[0].size))
    for first in range(0, len(values), step):
        if not np.isfinite(values[first : first + step]).all():
            raise SourceError(f"{where}: holds a value that is not a finite number. Fetch the file again")
    return values
