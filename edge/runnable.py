"""Whether this version runs a package on this machine. Owns: what the runtime asks of an engine, the order of the checks.
Needs: package, engine_check. Never: a file of the engine."""

from __future__ import annotations

from edge.config import Auto, InferenceConfig
from edge.errors import ExecutorError, RequestError
from edge.manifest import Manifest
from edge.package import Package
from edge.preset_gates import check_gate, passing_presets
from edge.presets import PresetName, default_preset


def choose_preset(package: Package, asked: PresetName | Auto, config: InferenceConfig) -> PresetName:
    """The preset that a load of `package` takes: the one asked for, whether the engine has it or not, or the default, for which
    only presets count whose gate did not fail."""
    return default_preset(config.kv_preset, passing_presets(package.manifest)) if isinstance(asked, Auto) else asked


def check_runs_here(package: Package, preset: PresetName) -> None:
    """Returns where this version runs the engine of `package` on this machine with this KV preset. Otherwise PackageError with
    what differs, RequestError where the engine lacks what is asked of it, ExecutorError where nothing runs its kind yet."""
    check_asked(package.manifest, str(package.path), preset=preset, prefixes=False, forced=package.forced)
    check_here(package)


def check_here(package: Package) -> None:
    """As `check_runs_here`, whatever the preset."""
    manifest, place = package.manifest, str(package.path)
    if manifest.engine is None:
        return
    # Everyone who runs a CPU package would wait 20 ms for these.
    from edge.engine_check import check_engine
    from edge.engine_library import TITLES, find_library
    from edge.machine import find_machine

    check_engine(manifest, place, find_machine(), find_library(manifest.engine.kind), plugins={})
    raise ExecutorError(
        f"{place}: fits this machine, but this version of edge-zero has no executor for {TITLES[manifest.engine.kind]} yet. "
        f"What runs here: {manifest.build_command_for('cpu')}"
    )


def check_asked(manifest: Manifest, place: str, *, preset: str, prefixes: bool, forced: bool = False) -> None:
    """RequestError where the engine cannot do what is asked of it, or, unless `forced`, where the preset failed its gate.
    Nothing else is done in its place."""
    check_offered(manifest, place, preset=preset, prefixes=prefixes)
    if not forced:
        check_gate(manifest, place, preset)


def check_offered(manifest: Manifest, place: str, *, preset: str, prefixes: bool) -> None:
    """RequestError where the engine lacks what is asked of it, whatever the gates say."""
    can = manifest.capabilities
    if preset not in can.presets:
        raise RequestError(
            f"{place}: the preset {preset} is asked for, its engine has: {', '.join(can.presets)}. Ask for one of these"
        )
    if prefixes and not can.prefixes and manifest.engine is None:
        raise RequestError(f"{place}: was built by a version without baked prefixes. Build it again: {manifest.build_command}")
    if prefixes and not can.prefixes:
        raise RequestError(
            f"{place}: shared prefixes are asked for, its engine has none. "
            f"Leave them out, or build for the CPU: {manifest.build_command_for('cpu')}"
        )
