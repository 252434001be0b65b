"""A package's engine on the device that it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge import env
from edge.build_memory import builder_bytes
from edge.engine_record import EngineRecord
from edge.errors import PackageError
from edge.gpu import GpuFound
from edge.machine import find_machine
from edge.manifest import to_json
from edge.package import GRAPH_WEIGHTS, Package
from edge.progress import SilentProgress
from engines.tensorrt.finish import finish_package
from engines.verify import verify_package
from engines.verify_device import DeviceReport


def record_of(package: Package) -> EngineRecord:
    engine = Package.open(package.path, force=True).manifest.engine
    assert engine is not None
    return engine


def test_the_machine_is_a_target_of_ours(gpu: GpuFound) -> None:
    machine = find_machine()
    assert machine.gpu == gpu
    assert machine.target is not None, "no device profile has this GPU"


def test_the_last_step_makes_a_plan_within_the_planned_memory(package: Package) -> None:
    if record_of(package).kind != "tensorrt":
        pytest.skip("needs a package whose plan the device makes")
    report = finish_package(package.path, force=True, ignore_budget=False, progress=SilentProgress())
    planned = builder_bytes("tensorrt", package.manifest.files[GRAPH_WEIGHTS].bytes)
    assert report.peak_bytes < planned, f"{report.peak_bytes} bytes, {planned} were planned"
    assert list((env.cache_folder() / "timing").glob("*.cache")), "the times of its kernels were not kept"


def test_the_plan_opens_with_the_inputs_outputs_and_profiles_of_the_manifest(package: Package) -> None:
    if record_of(package).plan is None:
        pytest.skip("needs a finished package: the test before this one could not finish it")
    report = verify_package(package.path)
    assert isinstance(report, DeviceReport)
    assert report.opened == (), report.not_run


def test_a_plan_of_another_version_is_refused_before_it_is_read(package: Package) -> None:
    from edge.runnable import check_runs_here

    manifest, record = Package.open(package.path, force=True).manifest, record_of(package)
    if record.plan is None:
        pytest.skip("needs a finished package: the first test could not finish it")
    other = replace(manifest, engine=replace(record, plan=replace(record.plan, version="1.2.3.4")))
    (package.path / "manifest.json").write_text(to_json(other), encoding="utf-8")
    with pytest.raises(PackageError, match=r"1\.2\.3\.4"):
        check_runs_here(Package.open(package.path, force=True), "exact")
