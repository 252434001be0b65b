"""Values of a source as they are stored. Owns: Converter, merging of outcomes. Needs: a source, tiers. Never: files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibration.schemes import QuantTensor
from calibration.tiers import TensorReport, Tier, apply_tier, role_of
from edge.errors import BuildError
from engines.portable.data import rows_of_block
from engines.portable.storage import StoredTensor, stored_form
from engines.sources.base import Source, SourceTensor


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run of rows."""

    report: TensorReport
    read_squares: float  # sum of the squares of the values as read, by which rms errors are weighed; 0.0 where none differs


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A run of rows as stored."""

    values: np.ndarray | QuantTensor
    outcome: Outcome


class Converter:
    """Reads rows of a source through a tier (None: as the source has them) into a graph of float32 or float16."""

    def __init__(self, source: Source, tier: Tier | None, requantise: bool, dtype: str) -> None:
        if dtype not in ("float32", "float16"):
            raise BuildError(f"--dtype {dtype}: a portable ONNX is float32 or float16. Choose one of them")
        self._source = source
        self._tier = tier
        self._requantise = requantise
        self._dtype = np.dtype(dtype)

    def form(self, name: str) -> StoredTensor:
        """How the tensor will be stored. Its first row decides; only int8 with minima is read whole, for its largest quant."""
        shape = self._source.shape(name)
        first = self.rows(name, 0, 1).values
        largest = 0
        if isinstance(first, QuantTensor) and first.bits == 8 and first.minima is not None:
            step = rows_of_block(shape[1])
            for begin in range(0, shape[0], step):
                rows = self.rows(name, begin, min(begin + step, shape[0])).values
                assert isinstance(rows, QuantTensor)
                largest = max(largest, int(rows.quants.max()))
        return stored_form(name, shape, first, largest)

    def rows(self, name: str, begin: int, end: int) -> StoredRows:
        """Rows [begin, end) as they are stored."""
        read = self._source.read_rows(name, begin, end)
        if self._tier is None:
            values, report = _carried(read)
        else:
            values, report = apply_tier(role_of(name), read, self._tier, self._requantise)
        # Norm weights take the graph's type because RMSNormalization does; matrices of a float32 graph may stay float16.
        if isinstance(values, np.ndarray) and (values.ndim == 1 or self._dtype == np.float16) and values.dtype != self._dtype:
            values, report = self._narrowed(values, report)
        squares = 0.0 if report.rms_error == 0.0 else float(np.square(read.to_float32(), dtype=np.float64).sum())
        return StoredRows(values, Outcome(report, squares))

    def _narrowed(self, exact: np.ndarray, report: TensorReport) -> tuple[np.ndarray, TensorReport]:
        with np.errstate(over="ignore"):
            values = exact.astype(self._dtype)
        if not np.isfinite(values).all():
            raise BuildError(f"{report.name}: holds a value over 65,504, which float16 cannot. Export with --dtype float32")
        error = np.abs(values.astype(np.float64) - exact)
        if not error.any():
            return values, report
        rms = float(np.sqrt(np.square(error).sum() / np.square(exact, dtype=np.float64).sum()))
        note = "; ".join(part for part in (report.note, f"{exact.dtype} rounded to {self._dtype}") if part)
        largest = max(report.max_error, float(error.max()))
        return values, replace(report, exact=False, max_error=largest, rms_error=max(report.rms_error, rms), note=note)


def _carried(read: SourceTensor) -> tuple[np.ndarray | QuantTensor, TensorReport]:
    """A tensor in the source's own precision; vectors as float32."""
    values = read.values
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.astype(np.float32)
    form = stored_form(read.name, values.shape, values, 0)
    bits = values.bits_per_weight if isinstance(values, QuantTensor) else 8.0 * values.dtype.itemsize
    report = TensorReport(
        name=read.name,
        role=role_of(read.name),
        source_type=read.source_type,
        stored=form.label,
        weights=values.size if isinstance(values, np.ndarray) else values.quants.size,
        bits_per_weight=bits,
        exact=not read.rounding,
        scale_error=read.relative_error,
        max_error=0.0,
        rms_error=0.0,
        note=read.rounding,
    )
    return values, report


def merge_outcomes(stored: StoredTensor, runs: list[Outcome]) -> TensorReport:
    """The report of a whole tensor from those of its runs of rows."""
    reports = [run.report for run in runs]
    squares = sum(run.read_squares for run in runs)
    errors = sum(run.report.rms_error**2 * run.read_squares for run in runs)
    weights = int(np.prod(stored.shape, dtype=np.int64))
    return replace(
        reports[0],
        stored=stored.label,
        weights=weights,
        bits_per_weight=8.0 * stored.nbytes / weights,
        exact=all(report.exact for report in reports),
        scale_error=max(report.scale_error for report in reports),
        max_error=max(report.max_error for report in reports),
        rms_error=float(np.sqrt(errors / squares)) if squares else 0.0,
        note=next((report.note for report in reports if report.note), ""),
    )
