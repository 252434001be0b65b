"""`edge plan` of packages whose engine is for a GPU: what is in them, without TensorRT and without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engine_packages import PLAN, write_finished, write_rtx, write_unfinished

from edge import machine
from edge.cli.main import group
from edge.errors import EdgeError, RequestError
from edge.machine import DeviceNow

TENSOR = {"source_kind": "Q4_1", "kind": "int8", "rounding_error": 0.0, "scale_error": 0.0}


def with_weights(manifest: dict[str, Any], *, tied: bool = True) -> None:
    manifest["tensors"] = [
        {"name": "embed.weight", "bytes": 6400, **TENSOR},
        {"name": "layers.0.attn.q_proj.weight", "bytes": 1000, **TENSOR},
    ]
    manifest["spec"]["tied_head"] = tied


def plan(path: Path, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(group, ["plan", str(path), "--json", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_an_unfinished_package_is_planned_with_the_step_that_is_left(tmp_path: Path) -> None:
    row = plan(write_unfinished(tmp_path / "a.edge", with_weights))
    assert (row["target"], row["engine"], row["tier"]) == ("orin-nx-16", "tensorrt", "int4")
    assert (row["weights"], row["context"], row["largest_context"]) == (7400, 128, 128)
    assert row["pool"] == 2 * 2 * 128 * 32 * 2  # layers, K and V, tokens, channels, float16
    assert row["build"]["on_device"]
    assert row["build"]["fits"]


def test_a_plan_that_stands_weighs_what_its_file_does_and_needs_no_build(tmp_path: Path) -> None:
    for write, folder in ((write_rtx, "a.edge"), (write_finished, "b.edge")):
        row = plan(write(tmp_path / folder, with_weights))
        assert row["weights"] == len(PLAN)
        assert row["build"] is None
    text = CliRunner().invoke(group, ["plan", str(tmp_path / "a.edge")], catch_exceptions=False).output
    assert "tensorrt-rtx engine, context 128" in text
    assert "last step" not in text


def test_a_table_that_only_embeds_is_read_by_the_row(tmp_path: Path) -> None:
    tied = plan(write_unfinished(tmp_path / "a.edge", with_weights))
    untied = plan(write_unfinished(tmp_path / "b.edge", lambda manifest: with_weights(manifest, tied=False)))
    assert tied["weights"] == untied["weights"]
    assert tied["speeds"][0]["decode"][0] < untied["speeds"][0]["decode"][0]


def test_the_caches_of_a_package_have_their_length(tmp_path: Path) -> None:
    package = write_unfinished(tmp_path / "a.edge", with_weights)
    assert plan(package, "--context", "64")["context"] == 128
    with pytest.raises(RequestError, match=r"a context of 129, the engine's caches hold 128\. Use 128, or build it again with"):
        plan(package, "--context", "129")


def test_on_the_device_itself_memory_is_what_it_has_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = DeviceNow(10**9, 2 * 10**9, "MemAvailable of this machine")
    monkeypatch.setattr(machine, "device_now", lambda target, gpu: now)
    row = plan(write_unfinished(tmp_path / "a.edge", with_weights))
    assert (row["available"], row["system"], row["build"]["available"]) == (10**9, 0, 2 * 10**9)
    assert row["available_source"] == "MemAvailable of this machine"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--preset", "balanced"), "--kv-preset balanced: engines for orin-nx-16 can do: exact."),
        (("--sequences", "2"), "--sequences 2: a tensorrt engine of this version carries 1."),
        (("--engine", "tensorrt-rtx"), "was built with tensorrt. Leave --engine out"),
        (("--tier", "fp16"), "was built with int4. Leave --tier out"),
    ],
)
def test_what_the_package_is_not_cannot_be_planned(tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    package = write_unfinished(tmp_path / "a.edge", with_weights)
    done = CliRunner().invoke(group, ["plan", str(package), *words])
    message = str(done.exception) if isinstance(done.exception, EdgeError) else done.output
    assert done.exit_code != 0
    assert expected in message
