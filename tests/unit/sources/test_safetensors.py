"""A hostile or broken safetensors file gives one SourceError, quickly, and nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import SourceError
from engines.sources.safetensors import DTYPE_BYTES, MAX_HEADER_BYTES, read_header

PATH = Path("m.safetensors")


def file_of(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def entry(begin: int, end: int, dtype: str = "F32", shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def refused(data: bytes) -> str:
    with pytest.raises(SourceError) as error:
        read_header(PATH, data)
    message = str(error.value)
    assert message.startswith(f"{PATH}: ") and "\n" not in message and message.isprintable() and ". " in message
    return message


def test_a_valid_file_says_where_its_tensors_lie() -> None:
    data = file_of({"__metadata__": {"format": "pt"}, "b": entry(8, 12, "BF16"), "a": entry(0, 8)}, bytes(12))
    tensors = read_header(PATH, data)
    assert [(t.name, t.dtype, t.shape, t.offset - len(data) + 12, t.byte_count) for t in tensors.values()] == [
        ("b", "BF16", (2,), 8, 4),
        ("a", "F32", (2,), 0, 8),
    ]


def test_it_reads_what_the_library_writes(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy", reason="needs the library: pip install safetensors")
    rng = np.random.default_rng(0)
    tensors = {f"t{place}": rng.standard_normal((place + 1, 3)).astype(np.float16) for place in range(5)}
    library.save_file({**tensors, "scalar": np.array(2.0, np.float32)}, tmp_path / "m.safetensors", {"format": "pt"})
    data = (tmp_path / "m.safetensors").read_bytes()
    found = read_header(PATH, data)
    for name, values in tensors.items():
        place = found[name]
        stored = np.frombuffer(data, "<f2", values.size, place.offset).reshape(place.shape)
        np.testing.assert_array_equal(stored, values)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "has 0 bytes"),
        (b"\2\0\0", "has 3 bytes"),
        (file_of({}, length=1 << 60), "the header needs 1,152,921,504,606,846,976 bytes"),
        (file_of({}, length=(1 << 64) - 1), "the header needs 18,446,744,073,709,551,615 bytes"),
        (file_of(b" " * (MAX_HEADER_BYTES + 1)), "a header of 16,777,217 bytes, over"),
        (file_of(b"\xff\xfe"), "byte 8: the header is not UTF-8"),
        (file_of(b"{"), "the header: line 1: not JSON"),
        (file_of(b"[" * 100_000), "the header: nested too deeply"),
        (file_of([1]), "holds no tensors by name"),
        (file_of(b'{"a": 1, "a": 2}'), "the header: key 'a' stands there twice"),
        (file_of(b'{"a": {"shape": NaN}}'), "the header: NaN is not a number"),
        (file_of({"a": 1}), "tensor a: does not say"),
        (file_of({"a": {"dtype": "F32", "shape": [0]}}), "tensor a: does not say"),
        (file_of({"a": {**entry(0, 8), "more": 1}}, bytes(8)), "tensor a: does not say"),
        (file_of({"": entry(0, 8)}, bytes(8)), "the tensor name ''"),
        (file_of({"a\nb": entry(0, 8)}, bytes(8)), r"the tensor name 'a\nb'"),
        (file_of({"k" * 256: entry(0, 8)}, bytes(8)), "the tensor name 'kkkk"),
        (file_of(b'{"\\ud800": 1}'), r"the tensor name '\ud800'"),
        (file_of({"a": entry(0, 8, "F4")}, bytes(8)), "tensor a: has the dtype 'F4', which is not known"),
        (file_of({"a": entry(0, 8, "Q4_K")}, bytes(8)), "tensor a: has the dtype 'Q4_K', which is not known"),
        (file_of({"a": {**entry(0, 8), "dtype": [1]}}, bytes(8)), "tensor a: has the dtype '[1]'"),
        (file_of({"a": {**entry(0, 8), "shape": 2}}, bytes(8)), "its shape is not a list"),
        (file_of({"a": {**entry(0, 8), "shape": [2.0]}}, bytes(8)), "its shape is not a list"),
        (file_of({"a": {**entry(0, 8), "shape": [True, 2]}}, bytes(8)), "its shape is not a list"),
        (file_of({"a": entry(0, 8, shape=(-2,))}, bytes(8)), "its shape is not a list"),
        (file_of({"a": entry(0, 8, shape=(1,) * 8 + (2,))}, bytes(8)), "its shape is not a list of at most 8"),
        (file_of({"a": entry(0, 0, shape=(0,))}), "has a dimension of 0: [0]"),
        (file_of({"a": entry(0, 0, shape=(4, 0, 2))}), "has a dimension of 0: [4, 0, 2]"),
        (file_of({"a": {**entry(0, 8), "data_offsets": [0]}}, bytes(8)), "its data_offsets are not two"),
        (file_of({"a": {**entry(0, 8), "data_offsets": [0, "8"]}}, bytes(8)), "its data_offsets are not two"),
        (file_of({"a": entry(-8, 0)}, bytes(8)), "its data_offsets are not two"),
        (file_of({"a": entry(8, 0)}, bytes(8)), "has -8 bytes, F32 [2] takes 8"),
        (file_of({"a": entry(0, 4)}, bytes(4)), "has 4 bytes, F32 [2] takes 8"),
        (file_of({"a": entry(0, 0, shape=(1 << 32, 1 << 32))}), "has 0 bytes, F32"),  # the product wraps to 0 in 64 bits
        (file_of({"a": entry(0, 8)}, bytes(7)), "tensor a ends at byte"),
        (file_of({"a": entry(1 << 62, (1 << 62) + 8)}, bytes(8)), "tensor a ends at byte"),
        (file_of({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)), "tensor a and tensor b overlap"),
        (file_of({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "overlap"),
        (file_of({"a": entry(4, 12)}, bytes(12)), "4 bytes between the header and tensor a belong to neither"),
        (file_of({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)), "4 bytes between tensor a and tensor b belong to neither"),
        (file_of({"a": entry(0, 8)}, bytes(9)), "1 bytes behind tensor a belong to no tensor"),
        (file_of({}, b"x"), "1 bytes behind the header belong to no tensor"),
    ],
)
def test_a_spoilt_file_is_refused_by_its_fault(data: bytes, fact: str) -> None:
    assert fact in refused(data)


VALID = file_of({"x": entry(0, 8), "y": entry(8, 20, "F16", (2, 3))}, bytes(20))


@given(place=st.integers(0, len(VALID) - 1), patch=st.binary(max_size=8), cut=st.integers(0, 3))
def test_any_other_bytes_give_one_error_or_tensors_inside_the_file(place: int, patch: bytes, cut: int) -> None:
    data = VALID[:place] + patch + VALID[place + len(patch) + cut :]
    try:
        tensors = read_header(PATH, data)
    except SourceError:
        return
    assert sum(tensor.byte_count for tensor in tensors.values()) <= len(data)
    for tensor in tensors.values():
        assert tensor.offset + tensor.byte_count <= len(data)
        assert math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype] == tensor.byte_count
