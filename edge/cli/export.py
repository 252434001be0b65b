"""`edge export`: a model as portable ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edge.cli.build_extra import need_build_extra
from edge.cli.models import find_model
from edge.cli.options import json_option, offline_option
from edge.cli.progress import terminal_progress
from edge.units import human_bytes


@click.command(name="export")
@click.argument("model")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The ONNX file.  [default: NAME.onnx here]")
@click.option("--tier", help="Quantise to this tier; without it the source's own precision is carried.")
@click.option("--requantise", is_flag=True, help="With a tier: round also what the source has in more bits than the tier.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Type of activations, caches and logits.",
)
@click.option("--last-row-only", is_flag=True, help="Logits of the last position only.")
@click.option("--max-context", type=click.IntRange(min=1), help="Fix the length of the caches, as TensorRT-RTX wants it.")
@offline_option()
@json_option()
def command(
    model: str,
    out: Path | None,
    tier: str | None,
    requantise: bool,
    dtype: str,
    last_row_only: bool,
    max_context: int | None,
    offline: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Write MODEL (a catalog name, a GGUF file or a model folder) as portable ONNX: opset 24, standard operators, weights
    beside it."""
    if requantise and tier is None:
        raise click.UsageError("--requantise belongs to a tier: add --tier", click.get_current_context())
    need_build_extra("edge export")
    from calibration.tiers import load_tier
    from engines.portable.export import write_portable
    from engines.sources.base import open_source

    chosen = None if tier is None else load_tier(tier)
    with terminal_progress() as progress:
        found = find_model(model, progress, offline=offline)
        report = write_portable(
            open_source(found.path, max_context),
            chosen,
            out or Path(f"{found.stem}.onnx"),
            requantise=requantise,
            progress=progress,
            dtype=dtype,
            last_row_only=last_row_only,
            max_context=max_context,
        )
    data_bytes = report.path.with_name(f"{report.path.name}.data").stat().st_size
    rounded = [{"name": t.name, "rms_error": t.rms_error, "note": t.note} for t in report.rounded]
    if as_json:
        row = {"path": str(report.path), "tier": report.tier, "data_bytes": data_bytes,
               "bits_per_weight": report.bits_per_weight, "tensors": len(report.tensors), "rounded": rounded}  # fmt: skip
        click.echo(json.dumps(row))
        return
    click.echo(f"{report.path}, weights in {report.path.name}.data")
    click.echo(f"{human_bytes(data_bytes)}, {report.bits_per_weight:.2f} bits per weight, {len(report.tensors)} tensors")
    click.echo(
        f"{len(rounded)} tensors were rounded{'' if not rounded else ' (--json lists them)'}, the others carried exactly"
    )
