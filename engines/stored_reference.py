"""The reference logits that a package carries. Owns: how they are read, what they must be. Needs: package. Never: an engine."""

from __future__ import annotations

import zipfile

import numpy as np

from edge.errors import PackageError
from edge.manifest import REFERENCE_PROMPTS
from edge.package import Package

StoredRows = tuple[np.ndarray, np.ndarray, np.ndarray]  # best ids int32 [n, k], best logits float32 [n, k], log-sum-exp [n]


def read_stored(package: Package) -> dict[str, StoredRows]:
    """By prompt name, the rows of the end of each prompt. PackageError where there are none, or anything else is there."""
    manifest, vocabulary = package.manifest, package.spec.vocab_size
    remedy = f"Build it again: {manifest.build_command}"
    if not manifest.reference or REFERENCE_PROMPTS not in manifest.files:
        raise PackageError(f"{package.path}: carries no reference logits. {remedy}")
    path = package.file(REFERENCE_PROMPTS)
    stored = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for prompt in manifest.reference:
                ids, best, norm = (arrays[f"{prompt.name}.{key}"] for key in ("ids", "logits", "log_sum_exp"))
                if (ids.dtype, best.dtype, norm.dtype) != (np.int32, np.float32, np.float32):
                    raise ValueError("arrays of other types")
                if ids.ndim != 2 or ids.shape != best.shape or norm.shape != ids.shape[:1] or not ids.size > 0:
                    raise ValueError("arrays of other shapes")
                if len(norm) > len(prompt.token_ids) or ids.min() < 0 or ids.max() >= vocabulary:
                    raise ValueError("rows or ids outside the prompt or the vocabulary")
                if not (np.isfinite(best).all() and np.isfinite(norm).all()):
                    raise ValueError("numbers that are not finite")
                stored[prompt.name] = (ids, best, norm)
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise PackageError(f"{path}: is not a reference of this package ({error}). {remedy}") from error
    return stored
