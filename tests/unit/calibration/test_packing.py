"""The packed layout, byte by byte as edge/contract.py words it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.packing import Geometry, pack, plan_geometry, unpack
from calibration.schemes import QuantTensor
from edge.contract import ALIGN, STEP, STRIP


def random_tensor(bits: int, group: int, outputs: int, inputs: int, minima: bool, seed: int = 0) -> QuantTensor:
    rng = np.random.default_rng(seed)
    shape = (outputs, inputs // group)
    return QuantTensor(
        bits,
        group,
        rng.integers(0, 1 << bits, (outputs, inputs)).astype(np.uint8),
        rng.standard_normal(shape).astype(np.float16),
        rng.standard_normal(shape).astype(np.float16) if minima else None,
    )


def pack_by_loops(tensor: QuantTensor, geometry: Geometry) -> np.ndarray:
    """The words of the contract as plain loops."""
    strips = -(-tensor.shape[0] // STRIP)
    out = np.zeros((strips, geometry.strip_bytes), np.uint8)
    for output in range(tensor.shape[0]):
        strip, o = divmod(output, STRIP)
        for k in range(tensor.shape[1]):
            block, inside = divmod(k, STEP)
            quant = tensor.quants[output, k]
            if tensor.bits == 8:
                j, i = divmod(inside, 4)
                out[strip, block * 8 * 64 + 64 * j + 4 * o + i] = quant
            else:
                high, low_inside = divmod(inside, 16)
                j, i = divmod(low_inside, 4)
                out[strip, block * 4 * 64 + 64 * j + 4 * o + i] |= quant << (4 * high)
        for g in range(tensor.scales.shape[1]):
            place = (g * STRIP + o) * 2
            sections = [(geometry.scales_offset, tensor.scales)]
            sections += [] if tensor.minima is None else [(geometry.minima_offset, tensor.minima)]
            for offset, values in sections:
                out[strip, offset + place : offset + place + 2] = np.frombuffer(values[output, g].tobytes(), np.uint8)
    return out.reshape(-1)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([16, 32]),
    outputs=st.integers(1, 40),
    groups=st.integers(1, 5),
    minima=st.booleans(),
    seed=st.integers(0, 99),
)
def test_packed_bytes_are_those_of_plain_loops_and_unpack_gives_the_tensor_back(
    bits: int, group: int, outputs: int, groups: int, minima: bool, seed: int
) -> None:
    tensor = random_tensor(bits, group, outputs, groups * group, minima, seed)
    packed, geometry = pack(tensor)
    np.testing.assert_array_equal(packed, pack_by_loops(tensor, geometry))
    again = unpack(packed, geometry)
    assert isinstance(again, QuantTensor) and (again.bits, again.group) == (bits, group)
    inputs = tensor.shape[1]
    np.testing.assert_array_equal(again.quants[:, :inputs], tensor.quants)
    np.testing.assert_array_equal(again.dequantise()[:, :inputs], tensor.dequantise())
    assert not again.scales[:, inputs // group :].any()  # whole groups of padding weigh nothing


@pytest.mark.parametrize(("bits", "group", "minima"), [(4, 32, True), (4, 32, False), (8, 32, True), (8, 16, False)])
def test_sections_and_strips_start_on_64_bytes(bits: int, group: int, minima: bool) -> None:
    geometry = plan_geometry(random_tensor(bits, group, 17, 96, minima))
    assert geometry.kind == f"int{bits}" and (geometry.outputs, geometry.inputs) == (17, 96)
    assert not any(value % ALIGN for value in (geometry.strip_bytes, geometry.scales_offset, geometry.minima_offset))
    assert geometry.byte_count == 2 * geometry.strip_bytes
    assert geometry.scales_offset == 96 * 16 * bits // 8
    assert (geometry.minima_offset > geometry.scales_offset) == minima


def test_fp16_is_inputs_by_outputs_with_nothing_behind() -> None:
    values = np.random.default_rng(1).standard_normal((18, 40)).astype(np.float16)
    packed, geometry = pack(values)
    assert geometry == Geometry("fp16", 18, 64, 0, 64 * 16 * 2, 0, 0)
    strips = packed.view(np.float16).reshape(2, 64, 16)
    assert strips[1, 39, 1] == values[17, 39] and strips[0, 5, 7] == values[7, 5]
    assert not strips[:, 40:].any() and not strips[1, :, 2:].any()
    again = unpack(packed, geometry)
    assert isinstance(again, np.ndarray)
    np.testing.assert_array_equal(again[:, :40], values)


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_pieces_cut_at_strips_join_to_the_whole(kind: str) -> None:
    whole: QuantTensor | np.ndarray
    if kind == "fp16":
        whole = np.random.default_rng(2).standard_normal((50, 64)).astype(np.float16)
        pieces = [pack(whole[begin : begin + 16])[0] for begin in range(0, 50, 16)]
    else:
        whole = random_tensor(int(kind[3:]), 32, 50, 64, minima=True)
        pieces = [pack(whole.rows(begin, begin + 16))[0] for begin in range(0, 50, 16)]
    np.testing.assert_array_equal(np.concatenate(pieces), pack(whole)[0])
