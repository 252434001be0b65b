"""A source without any rounding. Owns: ExactSource. Needs: a source. Never: tiers.

Reading carries K formats with their scale products rounded to fp16. What judges a tier must compare with what the file says, so
here such tensors are float32; all others are carried, exactly, as before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edge.spec import ModelSpec
from engines.sources.base import Source, SourceMetadata, SourceTensor


@dataclass(frozen=True, slots=True)
class ExactSource:
    """Implements Source over another one."""

    source: Source

    @property
    def spec(self) -> ModelSpec:
        return self.source.spec

    @property
    def metadata(self) -> SourceMetadata:
        return self.source.metadata

    def tensor_names(self) -> tuple[str, ...]:
        return self.source.tensor_names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.source.shape(name)

    def read(self, name: str) -> SourceTensor:
        return self.read_rows(name, 0, self.shape(name)[0])

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        read = self.source.read_rows(name, begin, end)
        if not read.rounding:
            return read
        return SourceTensor(name, self.source.read_exact(name, begin, end), read.source_type, "", 0.0)

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        return self.source.read_exact(name, begin, end)
