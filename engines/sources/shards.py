"""The safetensors files of a folder as one. Owns: the mapped files, the index of shards. Needs: safetensors. Never: which
tensor a model needs."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from edge.errors import SourceError
from engines.sources.folder_json import read_object
from engines.sources.safetensors import SAVE_AGAIN, StoredTensor, read_header

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
COMPARED_BYTES = 1 << 24  # of two tensors at a time


class Shards:
    """All tensors of a folder by name. Values stay in the mapped files."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self.tensors: dict[str, StoredTensor] = {}
        self._shard: dict[str, tuple[Path, mmap.mmap]] = {}  # of each tensor
        for path in paths:
            data = _mapped(path)
            for name, entry in read_header(path, data).items():
                if name in self.tensors:
                    first = self.path(name).name
                    raise SourceError(f"{path}: tensor {name} stands in {first} too. {SAVE_AGAIN}")
                self.tensors[name] = entry
                self._shard[name] = path, data

    def path(self, name: str) -> Path:
        """The file that holds the tensor."""
        return self._shard[name][0]

    def raw(self, name: str) -> np.ndarray:
        """uint8 [bytes], a view of the file."""
        entry = self.tensors[name]
        return np.frombuffer(self._shard[name][1], np.uint8, entry.byte_count, entry.offset)

    def equal(self, left: str, right: str) -> bool:
        """Whether two tensors hold the same. Those that differ do so early: much is read only where they are equal."""
        ours, theirs = self.tensors[left], self.tensors[right]
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return False
        a, b = self.raw(left), self.raw(right)
        steps = range(0, len(a), COMPARED_BYTES)
        return all(np.array_equal(a[at : at + COMPARED_BYTES], b[at : at + COMPARED_BYTES]) for at in steps)


def open_shards(folder: Path) -> Shards:
    """The tensors of model.safetensors, or of the shards that the index names. SourceError where one is missing or broken."""
    if (folder / SINGLE).is_file():
        return Shards((folder / SINGLE,))
    index = folder / INDEX
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(f"{index}: key weight_map: holds no file by tensor. {SAVE_AGAIN}")
    names = sorted({_shard_name(index, file) for file in weight_map.values()})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        fact = f"{len(missing)} of its {len(names)} files are missing, {missing[0]} first"
        raise SourceError(f"{index}: {fact}. Fetch them into {folder}")
    shards = Shards(tuple(folder / name for name in names))
    for tensor, file in weight_map.items():
        if tensor not in shards.tensors or shards.path(tensor).name != file:
            raise SourceError(f"{folder / file}: tensor {tensor[:80]!a} is not in it, though {INDEX} says so. Fetch both again")
    return shards


def _shard_name(index: Path, file: object) -> str:
    """`file` where it is a plain name: an index never leads out of its folder."""
    if not isinstance(file, str) or file != Path(file).name or not file.isprintable() or not file.endswith(".safetensors"):
        fact = f"names {str(file)[:80]!a}, which is no .safetensors file of its folder"
        raise SourceError(f"{index}: key weight_map: {fact}. {SAVE_AGAIN}")
    return file


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise SourceError(f"{path}: cannot be mapped ({error}). Check the path and its permissions") from error
