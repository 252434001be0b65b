"""Places of external data: inside the model's folder and inside the file, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge.errors import SourceError
from engines.portable.external import EXTERNAL, external_extent, external_tensors


def tensor(**entries: str) -> Any:
    return SimpleNamespace(name="w", external_data=[SimpleNamespace(key=k, value=v) for k, v in entries.items()])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Rifé model"
    folder.mkdir()
    (folder / "m.onnx.data").write_bytes(bytes(100))
    (tmp_path / "secret").write_bytes(bytes(100))
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "location", ["../secret", "sub/../../secret", "/etc/passwd", "..", "", "..\\secret", "C:\\secret", "sub\\..\\m.onnx.data"]
)
def test_a_place_outside_the_folder_is_refused_by_name(model: Path, location: str) -> None:
    with pytest.raises(SourceError, match="not inside the model's folder") as caught:
        external_extent(model, tensor(location=location))
    assert str(model) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("location", ["a\0b", "loop", "loop/x", ".", b"\xff"])  # bytes: text in a protobuf that is no UTF-8
def test_a_place_that_is_none_is_refused_as_one_outside(model: Path, location: Any) -> None:
    (model.parent / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match=r"not inside the model's folder|cannot be read") as caught:
        external_extent(model, tensor(location=location))
    assert str(caught.value).isprintable()


def test_a_pipe_is_not_waited_for(model: Path) -> None:
    os.mkfifo(model.parent / "pipe")
    with pytest.raises(SourceError, match="cannot be read"):
        external_extent(model, tensor(location="pipe"))


def test_a_link_that_leads_outside_is_refused(model: Path) -> None:
    (model.parent / "link").symlink_to(model.parent.parent / "secret")
    with pytest.raises(SourceError, match="not inside the model's folder"):
        external_extent(model, tensor(location="link"))


def test_a_place_beside_the_model_is_found_whatever_the_current_folder(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent.parent)
    extent = external_extent(Path("Rifé model/m.onnx"), tensor(location="m.onnx.data", offset="10", length="90"))
    assert (extent.path, extent.offset, extent.nbytes) == (model.parent / "m.onnx.data", 10, 90)


def test_without_offset_and_length_it_is_the_whole_file(model: Path) -> None:
    extent = external_extent(model, tensor(location="m.onnx.data"))
    assert (extent.offset, extent.nbytes) == (0, 100)


@pytest.mark.parametrize(
    ("offset", "length"), [("10", "91"), ("-1", "5"), ("0", "-1"), ("101", "0"), ("99999999999999999999", "1"), ("x", "1")]
)
def test_bytes_that_the_file_does_not_have_are_refused(model: Path, offset: str, length: str) -> None:
    with pytest.raises(SourceError, match="w"):
        external_extent(model, tensor(location="m.onnx.data", offset=offset, length=length))


def test_a_missing_data_file_is_named(model: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.data: cannot be read"):
        external_extent(model, tensor(location="gone.data"))


def test_tensors_in_attributes_and_subgraphs_are_found() -> None:
    onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
    from onnx import helper

    inner, outer = (onnx.TensorProto(name=name, data_location=EXTERNAL) for name in ("inner", "outer"))
    subgraph = helper.make_graph([helper.make_node("Constant", [], ["c"], value=inner)], "g", [], [])
    graph = helper.make_graph([helper.make_node("If", ["x"], ["y"], then_branch=subgraph)], "g", [], [], [outer])
    assert sorted(found.name for found in external_tensors(graph)) == ["inner", "outer"]
