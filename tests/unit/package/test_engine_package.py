"""Packages of engines that TensorRT builds: what must be there, finished or not, and what proves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_packages import FAILED, PASSED, write_finished, write_rtx, write_unfinished

from edge.errors import PackageError
from edge.package import Package
from edge.progress import SilentProgress

Writer = Callable[..., Path]
WRITERS = [write_rtx, write_unfinished, write_finished]


def refusal(folder: Path) -> str:
    with pytest.raises(PackageError) as caught:
        Package.open(folder)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(folder))
    return message.removeprefix(str(folder))


@pytest.mark.parametrize("write", WRITERS)
def test_it_opens_and_its_files_have_their_hashes(tmp_path: Path, write: Writer) -> None:
    package = Package.open(write(tmp_path / "a.edge"))
    package.verify_hashes(SilentProgress())
    assert package.engine_kind == ("tensorrt-rtx" if write is write_rtx else "tensorrt")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_rtx, "engine/model.plan"),
        (write_finished, "engine/model.plan"),
        (write_unfinished, "engine/graphs/tensorrt-10.3.onnx"),
        (write_unfinished, "engine/graphs/weights.data"),
        (write_rtx, "tokenizer/tables.bin"),
    ],
)
def test_what_the_engine_consists_of_must_be_named_and_there(tmp_path: Path, write: Writer, name: str) -> None:
    message = refusal(write(tmp_path / "a.edge", lambda m: m["files"].pop(name)))
    assert message.startswith(f"/manifest.json: names no {name}. Copy the package again, or rebuild: edge build tiny.gguf")
    folder = write(tmp_path / "b.edge")
    (folder / name).unlink()
    assert refusal(folder).startswith(f"/{name}: No such file")


def test_a_package_with_neither_plan_nor_graphs_is_damage(tmp_path: Path) -> None:
    folder = write_rtx(tmp_path / "a.edge", lambda m: m["engine"].update(plan=None))
    assert refusal(folder).startswith("/manifest.json: has no plan, and not all graphs to make it from. Copy the package again")


def test_weights_and_graphs_of_another_engine_are_refused_with_both_hashes(tmp_path: Path) -> None:
    files = Package.open(write_unfinished(tmp_path / "a.edge")).manifest.files
    command = "edge build tiny.gguf --tier int4 --target orin-nx-16 --engine tensorrt --ctx-size 128"
    rebuild = f"Copy the package again, or rebuild: {command}"
    weights, graph = "engine/graphs/weights.data", "engine/graphs/tensorrt-10.15.onnx"
    other = write_unfinished(tmp_path / "b.edge", lambda m: m["engine"].update(weights_sha256="ef" * 32))
    assert refusal(other) == f"/{weights}: SHA-256 is {files[weights].sha256}, the engine is of {'ef' * 32}. {rebuild}"
    other = write_unfinished(tmp_path / "c.edge", lambda m: m["engine"]["graphs"][1].update(sha256="ef" * 32))
    assert refusal(other) == f"/{graph}: SHA-256 is {files[graph].sha256}, the engine is of {'ef' * 32}. {rebuild}"


def test_a_changed_byte_of_a_graph_is_found_at_once_and_of_a_plan_by_the_hashes(tmp_path: Path) -> None:
    folder = write_finished(tmp_path / "a.edge")
    plan, graph = folder / "engine/model.plan", folder / "engine/graphs/tensorrt-10.3.onnx"
    plan.write_bytes(plan.read_bytes()[:-1] + b"!")
    package = Package.open(folder)
    with pytest.raises(PackageError, match=r"model\.plan: SHA-256 is"):
        package.verify_hashes(SilentProgress())
    graph.write_bytes(b"10.4")
    assert refusal(folder).startswith("/engine/graphs/tensorrt-10.3.onnx: SHA-256 is")


@pytest.mark.parametrize("target", ["cpu", "orin-nx-16"])
def test_a_target_that_cannot_run_the_engine_is_damage(tmp_path: Path, target: str) -> None:
    message = refusal(write_rtx(tmp_path / "a.edge", lambda m: m.update(target=target)))
    assert message.startswith(f"/manifest.json: holds a tensorrt-rtx engine, {target} runs: ")


def test_an_engine_for_another_capability_than_its_target_has_is_damage(tmp_path: Path) -> None:
    message = refusal(write_rtx(tmp_path / "a.edge", lambda m: m["engine"].update(sm="8.9")))
    assert message.startswith("/manifest.json: holds an engine for sm 8.9, a10 has sm 8.6. Copy the package again, or rebuild")


@pytest.mark.parametrize("name", ["graph", "tier"])
def test_graph_and_tier_must_be_proved_unless_forced(tmp_path: Path, name: str) -> None:
    missing = write_rtx(tmp_path / "missing.edge", lambda m: m["verdicts"].update({name: None}))
    failed = write_rtx(tmp_path / "failed.edge", lambda m: m["verdicts"].update({name: FAILED}))
    assert refusal(missing).startswith(f": has no {name} verdict. Build it again: edge build tiny.gguf")
    assert refusal(failed).startswith(f": the {name} verdict failed (KL 0.5 of at most 0.005")
    for folder in (missing, failed):
        Package.open(folder, force=True)


def test_a_verdict_of_the_device_counts_where_there_is_one(tmp_path: Path) -> None:
    Package.open(write_finished(tmp_path / "good.edge", lambda m: m["verdicts"].update(engine=PASSED)))
    bad = write_finished(tmp_path / "bad.edge", lambda m: m["verdicts"].update(engine=FAILED))
    assert refusal(bad).startswith(": the engine verdict failed")


def test_the_rebuild_command_for_another_target_is_the_same_but_for_it(tmp_path: Path) -> None:
    def requantised(manifest: dict[str, Any]) -> None:
        manifest["requantised"] = True

    manifest = Package.open(write_rtx(tmp_path / "a.edge", requantised)).manifest
    assert manifest.build_command_for("cpu") == "edge build tiny.gguf --tier int4 --target cpu --requantise"
