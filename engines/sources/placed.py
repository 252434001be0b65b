"""What sources whose tensors have places share. Owns: names, shapes, the refusal of strangers. Needs: places. Never: a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from edge.errors import SourceError
from edge.spec import ModelSpec
from engines.sources.architectures.places import Place
from engines.sources.base import SourceTensor


class PlacedSource(ABC):
    """Tensors by canonical name, each at its place. Values stay in the mapped files until they are read, and are not kept."""

    def __init__(self, places: dict[str, Place]) -> None:
        self._places = places

    def tensor_names(self) -> tuple[str, ...]:
        """Canonical names in model order."""
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """[N] or [N outputs, K inputs]; reads no values."""
        return self._places[name].shape

    def read(self, name: str) -> SourceTensor:
        """The whole tensor: a view of the file where that holds float32 or float16 in our order."""
        return self.read_rows(name, 0, self._places[name].shape[0])

    @abstractmethod
    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        """Rows (or items of a vector) [begin, end)."""


def refuse_unknown(names: Iterable[str], spec: ModelSpec, path: Path) -> None:
    """SourceError where there is a name: of a tensor that no place takes."""
    unknown = sorted(names)
    if unknown:
        fact = f"tensor {unknown[0]} is not one of a {spec.architecture} model ({len(unknown)} such)"
        raise SourceError(f"{path}: {fact}; answers without it would be wrong. Use another model")
