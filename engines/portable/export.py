"""Source -> portable ONNX. Owns: the order of an export. Needs: an opened source, onnx. Never: operators, file layouts.

The forms of all tensors are decided first, from one row of each, so that offsets, the room on the disk and the graph are
known before anything is written. Then tensors stream through in blocks of rows; the graph, with the report, comes last.
"""

from __future__ import annotations

from pathlib import Path

from calibration.tiers import Tier
from edge.errors import BuildError
from edge.progress import Progress, SilentProgress
from engines.portable.convert import Converter, merge_outcomes
from engines.portable.data import DataLayout, TensorWriter, block_rows, plan_layout
from engines.portable.graph import DecoderGraph
from engines.portable.metadata import ExportReport, TensorEntry, write_properties
from engines.portable.model import make_model
from engines.portable.partial import partial_export
from engines.portable.storage import StoredTensor
from engines.sources.base import Source


def write_portable(
    source: Source,
    tier: Tier | None,
    out: Path,
    *,
    progress: Progress | None = None,
    requantise: bool = False,
    dtype: str = "float32",
    last_row_only: bool = False,
    max_context: int | None = None,
) -> ExportReport:
    """Writes `out` and, beside it, `out`.data. Raises BuildError, SourceError; then nothing new stands under these names.

    `tier` None carries the source's own precision; `requantise` is as apply_tier has it. `dtype`, float32 or float16, is that
    of activations, caches and logits. `max_context` fixes the caches' length M, which is symbolic otherwise.
    """
    try:
        import onnx
    except ImportError as error:
        raise BuildError(f"exporting needs the onnx package ({error}). Install it: ./install.sh") from error
    converter = Converter(source, tier, requantise, dtype)
    stored = [converter.form(name) for name in source.tensor_names()]
    layout = plan_layout(stored)
    graph = DecoderGraph(source.spec, {tensor.name: tensor for tensor in stored}, dtype)
    graph.build(last_row_only)
    with partial_export(out, layout.nbytes) as partial:
        entries = _write_tensors(converter, stored, partial.data, layout, progress or SilentProgress())
        properties = write_properties(source.spec, tier.name if tier else "", entries)
        model = make_model(
            source.spec, graph.builder, stored, layout, f"{out.name}.data", properties, dtype, last_row_only, max_context
        )
        try:
            onnx.save_model(model, str(partial.graph))
        except OSError as error:
            fact = f"{out}: cannot be written ({error.strerror})"
            raise BuildError(f"{fact}. Free some space, or choose another place with -o") from error
    return ExportReport(out, tier.name if tier else "", tuple(entry.report for entry in entries))


def _write_tensors(
    converter: Converter, stored: list[StoredTensor], data: Path, layout: DataLayout, progress: Progress
) -> tuple[TensorEntry, ...]:
    progress.start("writing weights", sum(tensor.nbytes for tensor in stored), "bytes")
    entries = []
    for tensor in stored:
        writer, outcomes = TensorWriter(data, layout, tensor), []
        outputs, step = tensor.shape[0], block_rows(tensor)
        for begin in range(0, outputs, step):
            end = min(begin + step, outputs)
            rows = converter.rows(tensor.name, begin, end)
            writer.write(begin, rows.values)
            outcomes.append(rows.outcome)
            progress.advance(tensor.nbytes * end // outputs - tensor.nbytes * begin // outputs)
        entries.append(TensorEntry(tensor, merge_outcomes(tensor, outcomes)))
    progress.done()
    return tuple(entries)
