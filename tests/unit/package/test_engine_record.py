"""What a manifest may say of an engine, and numbers that no engine has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from engine_packages import finish, manifest_of, rtx_engine, rtx_files, unfinished_engine, unfinished_files
from hypothesis import given
from hypothesis import strategies as st

from edge.engine_record import is_same_version, version_numbers
from edge.errors import PackageError
from edge.manifest import Manifest, from_json, to_json


def read(change: Callable[[dict[str, Any]], Any]) -> Manifest:
    plain = manifest_of("a10", rtx_engine(), rtx_files())
    change(plain)
    return from_json(json.dumps(plain), "a.edge/manifest.json")


def test_an_engine_reads_back_as_it_was_written() -> None:
    manifest = read(lambda m: None)
    assert from_json(to_json(manifest), "here") == manifest
    assert manifest.engine is not None and manifest.engine.paths == ("engine/model.plan",)


def test_an_unfinished_engine_consists_of_its_graphs_and_a_finished_one_of_its_plan_too() -> None:
    plain = manifest_of("orin-nx-16", unfinished_engine(), unfinished_files())
    graphs = ("engine/graphs/tensorrt-10.3.onnx", "engine/graphs/tensorrt-10.15.onnx")
    unfinished = from_json(json.dumps(plain), "here").engine
    finish(plain)
    finished = from_json(json.dumps(plain), "here").engine
    assert unfinished is not None and unfinished.paths == graphs
    assert finished is not None and finished.paths == ("engine/model.plan", *graphs)


def tensor(m: dict[str, Any]) -> dict[str, Any]:
    return m["engine"]["graphs"][0]["tensors"][0]


def shapes(m: dict[str, Any]) -> dict[str, Any]:
    return m["engine"]["graphs"][0]["profiles"][0]["shapes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: tensor(m).update(shape=[1, 1 << 60]), "input_ids: axis 1: 1152921504606846976 is outside -1 to 2147483647"),
        (lambda m: tensor(m).update(shape=[1, -2]), "input_ids: axis 1: -2 is outside -1"),
        (lambda m: tensor(m).update(shape=[1] * 9), "input_ids: axes: 9 is outside 0 to 8"),
        (lambda m: tensor(m).update(name="a\nb"), "tensor: 'a\\nb' is no name"),
        (lambda m: tensor(m).update(name=""), "tensor: '' is no name"),
        (lambda m: tensor(m).update(name="x" * 10_000), "is no name"),
        (lambda m: tensor(m).update(dtype="float7"), "input_ids: dtype 'float7' is none of bool"),
        (lambda m: tensor(m).update(name="logits"), "tensors: two have the same name"),
        (lambda m: m["engine"]["graphs"][0].update(tensors=[]), "tensors: 0 is outside 1"),
        (lambda m: m["engine"]["graphs"][0]["profiles"].extend(m["engine"]["graphs"][0]["profiles"][:1] * 1000),
         "profiles: 1002 is outside 1 to 16"),
        (lambda m: m["engine"]["graphs"][0].update(profiles=[]), "profiles: 0 is outside 1 to 16"),
        (lambda m: m["engine"].update(graphs=[]), "graphs: 0 is outside 1 to 16"),
        (lambda m: m["engine"].update(graphs=m["engine"]["graphs"] * 17), "graphs: 17 is outside 1 to 16"),
        (lambda m: shapes(m).update(nothing=shapes(m)["input_ids"]), "profile prefill: 'nothing' is no input of the graph"),
        (lambda m: shapes(m).update(logits=shapes(m)["input_ids"]), "profile prefill: 'logits' is no input of the graph"),
        (lambda m: shapes(m)["input_ids"].update(largest=[1, 1 << 60]), "largest: axis 1: 1152921504606846976 is outside 1"),
        (lambda m: shapes(m)["input_ids"].update(smallest=[1, 0]), "smallest: axis 1: 0 is outside 1"),
        (lambda m: shapes(m)["input_ids"].update(tuned=[1, 256]), "(1, 1) to (1, 128), tuned for (1, 256): not in this order"),
        (lambda m: shapes(m)["input_ids"].update(tuned=[1]), "smallest, tuned and largest differ in the number of axes"),
        (lambda m: shapes(m)["input_ids"].update(smallest=[1, 1, 1], tuned=[1, 1, 1], largest=[1, 1, 1]),
         "profile prefill: input_ids has 3 axes, the graph 2"),
        (lambda m: shapes(m)["input_ids"].update(largest=[2, 128]), "profile prefill: input_ids: axis 0 is 1 in the graph"),
        (lambda m: m["engine"].update(sm="sm_86"), "sm: 'sm_86' is no compute capability"),
        (lambda m: m["engine"].update(kind="tensorflow"), '"tensorflow" is none of tensorrt, tensorrt-rtx'),
        (lambda m: m["engine"].update(weights_sha256="12"), "'12' is not 64 hexadecimal digits"),
        (lambda m: m["engine"]["graphs"][0].update(since="new"), "since: 'new' is no version"),
        (lambda m: m["engine"]["plan"].update(version="1.7"), "version: '1.7' is no version"),
        (lambda m: m["engine"]["plan"].update(version="1.7.1\n"), "version: '1.7.1\\n' is no version"),
        (lambda m: m["engine"]["plan"].update(version="9" * 4000 + ".0.0"), "is no version"),
        (lambda m: m["engine"]["plan"].update(driver="580"), "driver: '580' is no version"),
        (lambda m: m["engine"]["plan"].update(device="a\nb"), "device: 'a\\nb' is no name"),
        (lambda m: m["engine"]["plan"].update(device="NVIDIA A10"),
         "engine.plan.device: plans of TensorRT are for one device, those of TensorRT-RTX for any of their SM"),
        (lambda m: m["engine"].update(kind="tensorrt"), "engine.plan.device: plans of TensorRT are for one device"),
        (lambda m: m["engine"]["plan"].update(graph_sha256="12" * 32), "engine.plan.graph_sha256: is none of the graphs"),
        (lambda m: m["engine"]["plan"].update(plugins={"edge::PagedAttention": "12"}), "'12' is not 64 hexadecimal digits"),
        (lambda m: m["engine"]["plan"].update(plugins={"a\x1b[2J": "12" * 32}), "plugin: 'a\\x1b[2J' is no name"),
        (lambda m: m["engine"]["plan"].update(note="x" * 5000), "note: 5000 is outside 0 to 4096"),
    ],
)  # fmt: skip
def test_what_no_engine_has_is_damage(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(PackageError) as caught:
        read(change)
    line = str(caught.value)
    assert message in line and "\n" not in line
    assert line.startswith("a.edge/manifest.json: engine")
    assert line.endswith("The package is damaged. Copy it again, or rebuild: edge build tiny.gguf --tier int4 --target a10")


def test_versions_compare_as_numbers() -> None:
    assert version_numbers("10.15") > version_numbers("10.3.0.30")


def test_a_version_without_its_build_is_the_same_as_one_with_it() -> None:
    assert is_same_version("10.3.0", "10.3.0.30") and is_same_version("10.3.0.30", "10.3.0")
    assert not is_same_version("10.3.0.26", "10.3.0.30") and not is_same_version("10.3.0", "10.3.1.30")


@given(st.lists(st.integers(0, 999), min_size=4, max_size=4), st.lists(st.integers(0, 999), min_size=4, max_size=4))
def test_full_versions_are_the_same_only_where_they_are_equal(one: list[int], other: list[int]) -> None:
    texts = [".".join(map(str, numbers)) for numbers in (one, other)]
    assert is_same_version(*texts) == (one == other)
