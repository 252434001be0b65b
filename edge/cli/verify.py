"""`edge verify`: the proof in a package, repeated."""

from __future__ import annotations

import json
from pathlib import Path

import click

from edge.cli.build_extra import need_build_extra
from edge.cli.models import find_model
from edge.cli.options import json_option, offline_option
from edge.cli.progress import terminal_progress


@click.command(name="verify")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--reference", metavar="MODEL", help="Export MODEL again and compare with ONNX Runtime (needs the build extra).")
@offline_option()
@json_option()
def command(package: Path, reference: str | None, offline: bool, as_json: bool) -> int:
    """Check PACKAGE: the hash of every file, and the engine on this machine against the stored reference logits.

    An engine that this machine cannot run is not run, and said so; all else is checked. MODEL is the catalog name, the file
    or the folder that the package was built from. Exits with 1 where a check fails.
    """
    if reference is not None:
        need_build_extra("edge verify --reference")
    from engines.verify import verify_package

    with terminal_progress() as progress:
        model = None if reference is None else find_model(reference, progress, offline=offline).path
        report = verify_package(package, reference=model, progress=progress)
    click.echo(json.dumps(report.as_dict()) if as_json else report.text())
    return 0 if report.passed else 1
