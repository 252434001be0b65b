"""What a portable ONNX says about itself. Owns: its metadata_props, ExportReport. Needs: ModelSpec, tier reports. Never: onnx.

edge_zero.format    version of this form
edge_zero.spec      ModelSpec as JSON
edge_zero.tier      name of the tier, "" where the source's own precision was carried
edge_zero.tensors   JSON: the StoredTensor and the TensorReport of each tensor, in the order of the file
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from calibration.tiers import TensorReport, mean_bits
from edge.errors import SourceError
from edge.jsons import read_json, write_json
from edge.spec import ModelSpec
from engines.portable.storage import StoredTensor

FORMAT = "2"
PREFIX = "edge_zero."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of the model: its form in the file, and what became of its values."""

    stored: StoredTensor
    report: TensorReport


@dataclass(frozen=True, slots=True)
class TensorTable:
    """The JSON of edge_zero.tensors."""

    tensors: tuple[TensorEntry, ...]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The outcome of an export."""

    path: Path  # the .onnx; its data lies beside it
    tier: str  # "": the source's own precision
    tensors: tuple[TensorReport, ...]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits a weight over the whole model, scales, minima and padding included; a tied table counts once."""
        return mean_bits(self.tensors)

    @property
    def rounded(self) -> tuple[TensorReport, ...]:
        """Tensors whose weights differ from the source's."""
        return tuple(tensor for tensor in self.tensors if not tensor.exact)


def write_properties(spec: ModelSpec, tier: str, entries: tuple[TensorEntry, ...]) -> dict[str, str]:
    """The metadata_props of an export."""
    return {
        f"{PREFIX}format": FORMAT,
        f"{PREFIX}spec": write_json(spec),
        f"{PREFIX}tier": tier,
        f"{PREFIX}tensors": write_json(TensorTable(entries)),
    }


def read_properties(path: Path, properties: Mapping[str, str]) -> tuple[ModelSpec, str, tuple[TensorEntry, ...]]:
    """Spec, tier and tensors of the file at `path`. Raises SourceError where the file is not our export."""
    found = properties.get(f"{PREFIX}format")
    if found != FORMAT:
        what = "holds no EdgeZero export" if found is None else f"has export format {found!r}, this version reads {FORMAT!r}"
        raise SourceError(f"{path}: {what}. Export it again: edge export MODEL -o {path.name}")
    try:
        spec = read_json(properties[f"{PREFIX}spec"], ModelSpec)
        spec.check()
        table = read_json(properties[f"{PREFIX}tensors"], TensorTable)
        return spec, properties[f"{PREFIX}tier"], table.tensors
    except (KeyError, ValueError) as error:  # JsonMismatch is one
        raise SourceError(f"{path}: its metadata are damaged ({error}). Export it again: edge export MODEL") from error
