"""Every GGUF block format becomes the QuantTensor that gguf's own dequantiser gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge.errors import SourceError
from engines.sources.gguf_blocks import BLOCK_FORMATS, decode_rows, dequantise_rows

gguf: Any = pytest.importorskip("gguf", reason="needs the build extra: gguf")

HALVES = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}  # bytes of a block's fp16 numbers; the others: 0 and 2
ROUNDED = {"Q4_K", "Q5_K", "Q6_K"}


def random_rows(type_name: str, rows: int, blocks: int, scale: float = 0.01, seed: int = 3) -> np.ndarray:
    """uint8 [rows, blocks * block bytes]: any bits as quants and sub-scales, sane fp16 numbers."""
    rng = np.random.default_rng(seed)
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]][1]
    raw = rng.integers(0, 256, (rows, blocks, block_bytes), dtype=np.uint8)
    for place in HALVES.get(type_name, (0, 2)):
        numbers = np.clip(rng.standard_normal((rows, blocks, 1)) * scale, -60_000, 60_000)
        raw[..., place : place + 2] = numbers.astype("<f2").view(np.uint8)
    return raw.reshape(rows, -1)


def by_gguf(type_name: str, raw: np.ndarray) -> np.ndarray:
    return gguf.dequantize(raw, gguf.GGMLQuantizationType[type_name])


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_the_exact_values_are_those_of_gguf(type_name: str) -> None:
    raw = random_rows(type_name, rows=33, blocks=3)
    np.testing.assert_array_equal(dequantise_rows(type_name, raw, np.arange(33)), by_gguf(type_name, raw))


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_a_quant_tensor_holds_them_exactly_or_within_its_reported_rounding(type_name: str) -> None:
    raw = random_rows(type_name, rows=33, blocks=3)
    tensor, rounding = decode_rows(type_name, raw, np.arange(33), "t")
    if type_name not in ROUNDED:
        np.testing.assert_array_equal(tensor.dequantise(), by_gguf(type_name, raw))
        assert (rounding.count, rounding.note, rounding.relative_error) == (0, "", 0.0)
        return
    assert 0 < rounding.relative_error <= 2.0**-11 and "rounded to fp16" in rounding.note
    # A weight is scale * quant + minimum, and each of the two moves by at most its 2^-11.
    scales = np.abs(tensor.scales.astype(np.float32)).repeat(tensor.group, axis=1)
    bound = scales * np.abs(tensor.quants.astype(np.float32) - (0 if tensor.minima is not None else tensor.zero)) * 2.0**-11
    if tensor.minima is not None:
        bound += np.abs(tensor.minima.astype(np.float32)).repeat(tensor.group, axis=1) * 2.0**-11
    assert (np.abs(tensor.dequantise() - by_gguf(type_name, raw)) <= bound * 1.01).all()


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_rows_come_in_the_asked_order(type_name: str) -> None:
    raw = random_rows(type_name, rows=5, blocks=1)
    rows = np.array([3, 0, 4])
    tensor, _ = decode_rows(type_name, raw, rows, "t")
    whole, _ = decode_rows(type_name, raw, np.arange(5), "t")
    np.testing.assert_array_equal(tensor.dequantise(), whole.dequantise()[rows])
    np.testing.assert_array_equal(dequantise_rows(type_name, raw, rows), by_gguf(type_name, raw)[rows])


@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_a_tensor_longer_than_a_run_of_rows_is_read_whole(type_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = random_rows(type_name, rows=11, blocks=1)
    whole, _ = decode_rows(type_name, raw, np.arange(11), "t")
    monkeypatch.setattr("engines.sources.gguf_blocks.CHUNK_WEIGHTS", 2 * whole.shape[1])
    pieces, _ = decode_rows(type_name, raw, np.arange(11), "t")
    np.testing.assert_array_equal(pieces.dequantise(), whole.dequantise())
    np.testing.assert_array_equal(dequantise_rows(type_name, raw, np.arange(11)), by_gguf(type_name, raw))


@pytest.mark.parametrize("type_name", sorted(ROUNDED))
def test_a_scale_product_over_fp16_is_refused_with_the_tensors_name(type_name: str) -> None:
    with pytest.raises(SourceError, match=r"blk\.7\.attn_v\.weight .* over 65,504"):
        decode_rows(type_name, random_rows(type_name, 4, 2, scale=30_000.0), np.arange(4), "blk.7.attn_v.weight")


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type_name", BLOCK_FORMATS)
def test_a_scale_that_is_no_number_is_refused(type_name: str, broken: float) -> None:
    raw = random_rows(type_name, rows=4, blocks=2)
    place = HALVES.get(type_name, (0,))[0]
    raw[2, place : place + 2] = np.array([broken], "<f2").view(np.uint8)
    with pytest.raises(SourceError, match="not a number"):
        decode_rows(type_name, raw, np.arange(4), "t")


@pytest.mark.parametrize("type_name", sorted(ROUNDED))
def test_products_below_fp16s_normal_range_are_exact(type_name: str) -> None:
    raw = random_rows(type_name, rows=8, blocks=2, scale=2e-7)
    tensor, rounding = decode_rows(type_name, raw, np.arange(8), "t")
    assert 0 < np.abs(tensor.scales).max() < 2.0**-14 and rounding.count == 0
    np.testing.assert_array_equal(tensor.dequantise(), by_gguf(type_name, raw))
