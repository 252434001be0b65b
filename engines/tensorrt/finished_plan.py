"""How a package gets its plan. Owns: the names of plans, the switch of manifests, what an ended try left. Needs: a package
under a lock. Never: builds.

The plan stands under a name of its own before the manifest that names it takes the place of the old one, so that whatever ends
the process leaves a package that is finished, or one that is not and whose leftovers the next try removes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edge.engine_record import PlanRecord
from edge.errors import PackageError
from edge.hashes import file_sha256
from edge.manifest import FILE_NAME, FileRecord, to_json
from edge.package import Package
from edge.progress import Progress

_NEW_PLAN = "engine/.model.plan.new"
_NEW_MANIFEST = f".{FILE_NAME}.new"


def new_plan(package: Package) -> Path:
    """Where a plan is built, in the package."""
    return package.path / _NEW_PLAN


def plan_name(digest: str) -> str:
    """The name in the package of a plan with this SHA-256."""
    return f"engine/model-{digest[:12]}.plan"


def publish_plan(package: Package, record: PlanRecord, digest: str) -> None:
    """Gives the plan at new_plan its name, `record.path`, and the package the manifest that names it. Raises OSError."""
    manifest = package.manifest
    engine = manifest.engine
    assert engine is not None, "a package that gets a plan has an engine"
    old = None if engine.plan is None else engine.plan.path
    files = {name: file for name, file in manifest.files.items() if name != old}
    files[record.path] = FileRecord(new_plan(package).stat().st_size, digest)
    text = to_json(replace(manifest, engine=replace(engine, plan=record), files=dict(sorted(files.items()))))
    _flush(new_plan(package))
    new_plan(package).rename(package.path / record.path)
    new = package.path / _NEW_MANIFEST
    new.write_text(text, encoding="utf-8")
    _flush(new)
    new.rename(package.path / FILE_NAME)
    if old is not None and old != record.path:
        (package.path / old).unlink()


def remove_leftovers(folder: Path) -> None:
    """Whatever a try left in the package that did not end well: all that the manifest does not name. Raises nothing, and
    touches nothing of a package that does not open."""
    try:
        package = Package.open(folder, force=True)
    except PackageError:
        return
    engine = package.manifest.engine
    named = None if engine is None or engine.plan is None else package.path / engine.plan.path
    for path in (*(package.path / "engine").glob("model-*.plan"), new_plan(package), package.path / _NEW_MANIFEST):
        if path != named:
            with suppress(OSError):
                path.unlink()


def hash_plan(package: Package, progress: Progress) -> str:
    """SHA-256 of the plan at new_plan. Raises OSError."""
    return file_sha256(new_plan(package), progress)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
