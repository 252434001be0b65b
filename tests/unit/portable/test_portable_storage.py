"""How weights lie in a portable ONNX: names, sizes, int4 packing, writing by blocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.schemes import QuantTensor
from engines.portable.data import ALIGN, TensorWriter, pack_int4, plan_layout, unpack_int4
from engines.portable.storage import Piece, StoredTensor, node_path, stored_form


def quantised(outputs: int, inputs: int, bits: int, minima: bool, group: int = 32, top: int | None = None) -> QuantTensor:
    rng = np.random.default_rng(outputs * 1000 + inputs)
    quants = rng.integers(0, (1 << bits) if top is None else top + 1, (outputs, inputs)).astype(np.uint8)
    scales = rng.random((outputs, inputs // group)).astype(np.float16)
    return QuantTensor(bits, group, quants, scales, -scales if minima else None)


@pytest.mark.parametrize(
    ("tensor", "path"),
    [
        ("layers.3.attn.q_proj.weight", "/layers.3/attn/q_proj"),
        ("layers.12.attn_norm.weight", "/layers.12/attn_norm"),
        ("embed.weight", "/embed"),
        ("final_norm.weight", "/final_norm"),
    ],
)
def test_nodes_are_named_by_the_path_of_their_tensor(tensor: str, path: str) -> None:
    assert node_path(tensor) == path


def test_inputs_are_padded_to_whole_groups_and_the_shape_stays_as_it_is() -> None:
    form = stored_form("layers.0.attn.q_proj.weight", (10, 48), quantised(10, 64, 4, minima=True), 15)
    assert form.shape == (10, 48)
    assert [(piece.name.split(".")[-1], piece.shape, piece.nbytes) for piece in form.pieces] == [
        ("quants", (64, 10), 320),
        ("scales", (2, 10), 40),
        ("minima", (2, 10), 40),
    ]


@pytest.mark.parametrize(("top", "zero"), [(15, 8), (31, 16), (200, 128), (255, 128)])
def test_int8_with_minima_is_counted_from_the_middle_of_its_quants(top: int, zero: int) -> None:
    assert stored_form("head.weight", (4, 32), quantised(4, 32, 8, minima=True), top).zero == zero


def test_int8_without_minima_is_counted_from_128_whatever_its_quants_are() -> None:
    assert stored_form("head.weight", (4, 32), quantised(4, 32, 8, minima=False), 0).zero == 128


@given(st.lists(st.integers(0, 15), min_size=1, max_size=41))
def test_packed_int4_comes_back(values: list[int]) -> None:
    nibbles = np.array(values, np.uint8)
    packed = pack_int4(nibbles)
    assert packed.nbytes == Piece("q", "int4", (len(values),)).nbytes
    assert np.array_equal(unpack_int4(packed, len(values)), nibbles)


def test_onnx_reads_our_int4_bytes() -> None:
    onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
    from onnx import numpy_helper

    values = np.arange(-8, 7, dtype=np.int8).reshape(3, 5)
    tensor = onnx.TensorProto(
        data_type=onnx.TensorProto.INT4, dims=values.shape, raw_data=pack_int4(values.view(np.uint8)).tobytes()
    )
    assert np.array_equal(numpy_helper.to_array(tensor).astype(np.int8), values)


@pytest.mark.parametrize("outputs", [6, 7, 200])
@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_rows_give_the_bytes_of_the_whole_tensor(tmp_path: Path, outputs: int, bits: int) -> None:
    values = quantised(outputs, 64, bits, minima=True)
    form = stored_form("head.weight", values.shape, values, 255)
    written = []
    # Odd outputs of int4 share a byte across rows of [K, N], so they are written as one block.
    for step in (outputs, outputs if bits == 4 and outputs % 2 else 64):
        layout, path = plan_layout([form]), tmp_path / f"{step}.data"
        path.write_bytes(bytes(layout.nbytes))
        writer = TensorWriter(path, layout, form)
        for begin in range(0, outputs, step):
            writer.write(begin, values.rows(begin, min(begin + step, outputs)))
        del writer
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert any(written[0])


def test_every_piece_starts_where_it_can_be_mapped_and_none_overlap() -> None:
    forms = [StoredTensor(f"layers.{i}.ffn.up_proj.weight", "int4", (7, 33), 32, True, 8) for i in range(3)]
    layout = plan_layout(forms)
    pieces = [piece for form in forms for piece in form.pieces]
    ends = 0
    for piece in pieces:
        assert layout.offsets[piece.name] % ALIGN == 0
        assert layout.offsets[piece.name] >= ends
        ends = layout.offsets[piece.name] + piece.nbytes
    assert layout.nbytes >= ends


def test_bytes_of_a_piece_do_not_wrap() -> None:
    assert Piece("w", "float32", (1 << 32, 1 << 32)).nbytes == 1 << 66
    assert Piece("w", "int4", (1 << 62, 4)).nbytes == 1 << 63


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"kind": "int3"}, "no tensor is so"),
        ({"kind": "fp16"}, "no tensor is so"),
        ({"group": 0}, "no tensor is so"),
        ({"group": -32}, "no tensor is so"),
        ({"shape": ()}, "no tensor is so"),
        ({"shape": (7,)}, "no tensor is so"),
        ({"shape": (7, 33, 1)}, "no tensor is so"),
        ({"shape": (0, 33)}, "an axis: 0 is outside"),
        ({"shape": (1 << 40, 33)}, "an axis: 1099511627776 is outside"),
        ({"zero": 16}, "zero: 16 is outside 0 to 15"),
    ],
)
def test_a_form_that_no_tensor_has_is_a_value_error(change: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        replace(StoredTensor("w", "int4", (7, 33), 32, True, 8), **change)
