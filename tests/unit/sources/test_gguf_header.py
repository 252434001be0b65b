"""A hostile or broken GGUF file gives one SourceError, quickly, and nothing else."""

from __future__ import annotations

import contextlib
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.errors import SourceError
from engines.sources.base import open_source

ARRAY, STRING, UINT8, UINT64 = 9, 8, 0, 10
PATCHES = (b"\0", b"\xff", b"\x80", b"\n", b"\xff" * 8, b"\0" * 8, (1 << 60).to_bytes(8, "little"), b"\1\0\0\0")
Draft = Any  # conftest.Draft, which a test cannot import


def refused(draft: Draft, path: Path) -> str:
    with pytest.raises(SourceError) as error:
        open_source(draft.write(path))
    message = str(error.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and message.count(". ") >= 1
    return message.removeprefix(f"{path}: ")


def test_a_valid_file_opens(llama: Draft, tmp_path: Path) -> None:
    assert open_source(llama.write(tmp_path / "m.gguf")).spec.vocab_size == 12


@pytest.mark.parametrize("count", ["tensor_count", "key_count"])
def test_a_count_of_two_to_the_sixty_fails_without_allocating(llama: Draft, tmp_path: Path, count: str) -> None:
    setattr(llama, count, 1 << 60)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "1,152,921,504,606,846,976" in refused(llama, tmp_path / "m.gguf")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def spoil_key(value_type: int, payload: bytes, key: str = "spoilt") -> Callable[[Draft], None]:
    def spoil(draft: Draft) -> None:
        draft.keys[key] = (value_type, payload)

    return spoil


def spoil_strings(*texts: bytes, length: int | None = None) -> Callable[[Draft], None]:
    """An array of strings; `length` is what the last one says of itself."""
    lengths = [len(text) for text in texts[:-1]] + [len(texts[-1]) if length is None else length]
    packed = b"".join(struct.pack("<Q", size) + text for size, text in zip(lengths, texts, strict=True))
    return spoil_key(ARRAY, struct.pack("<IQ", STRING, len(texts)) + packed)


def spoil_tensor(**changes: object) -> Callable[[Draft], None]:
    def spoil(draft: Draft) -> None:
        for name, value in changes.items():
            setattr(draft.tensor("blk.0.attn_q.weight"), name, value)

    return spoil


def repeat_tensor(draft: Draft) -> None:
    draft.tensors.append(draft.tensor("output_norm.weight"))


def repeat_key(draft: Draft) -> None:
    raw = struct.pack("<Q", 6) + b"double" + struct.pack("<I", UINT8) + b"\1"
    # The second copy hides in the payload of the first.
    draft.keys["double"] = (UINT8, b"\1" + raw)
    draft.key_count = len(draft.keys) + 1


@pytest.mark.parametrize(
    ("spoil", "fact"),
    [
        (spoil_key(STRING, struct.pack("<Q", 1 << 60) + b"x"), "spoilt needs 1,152,921,504,606,846,976 bytes"),
        (spoil_key(STRING, struct.pack("<Q", 2) + b"\xff\xfe"), "spoilt is not valid UTF-8"),
        (spoil_key(99, b"1234"), "spoilt has the unknown value type 99"),
        (spoil_key(ARRAY, struct.pack("<IQ", 77, 4) + bytes(16)), "spoilt is an array of the unknown type 77"),
        (spoil_key(ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(16)), "spoilt is an array of arrays"),
        (spoil_key(ARRAY, struct.pack("<IQ", UINT64, 1 << 61)), "spoilt needs"),
        (spoil_key(ARRAY, struct.pack("<IQ", UINT64, (1 << 64) - 1)), "spoilt needs"),
        (spoil_key(ARRAY, struct.pack("<IQ", STRING, 1 << 60)), "spoilt needs"),
        (spoil_strings(b"a", b"\xff", b"c"), "spoilt[1] is not valid UTF-8"),
        (spoil_strings(b"a", b"b", length=1 << 60), "spoilt[1] needs 1,152,921,504,606,846,976 bytes"),
        (spoil_key(7, b"\x02"), "spoilt holds a truth value that is neither 0 nor 1"),
        (spoil_key(UINT8, b"\1", key=""), "is 0 bytes long"),
        (spoil_key(UINT8, b"\1", key="k" * 70_000), "is 70,000 bytes long"),
        (spoil_key(UINT8, b"\1", key="two\nlines\x1b[2J"), r"has unprintable characters: 'two\nlines\x1b[2J'"),
        (spoil_key(4, struct.pack("<I", 48), key="general.alignment"), "general.alignment is 48"),
        (spoil_key(4, struct.pack("<I", 0), key="general.alignment"), "general.alignment is 0"),
        (spoil_key(STRING, struct.pack("<Q", 2) + b"32", key="general.alignment"), "general.alignment is '32'"),
        (repeat_key, "the key double stands twice"),
        (repeat_tensor, "the tensor output_norm.weight stands twice"),
        (spoil_tensor(dims=()), "has 0 dimensions"),
        (spoil_tensor(dims=(1,) * 5), "has 5 dimensions"),
        (spoil_tensor(dims=(16, 0)), "has a dimension of 0"),
        (spoil_tensor(dims=(1 << 32, 1 << 32)), "ends at"),  # the product wraps to 0 in 64 bits
        (spoil_tensor(dims=((1 << 62) + 4, 16)), "ends at"),  # and here to 1,024 bytes
        (spoil_tensor(type_code=4), "has the unknown tensor type 4"),  # Q4_2, removed long ago
        (spoil_tensor(type_code=9999), "has the unknown tensor type 9999"),
        (spoil_tensor(type_code=12), "rows of 16, which the blocks of Q4_K (256) do not divide"),
        (spoil_tensor(offset=7), "does not start on 32 bytes"),
        (spoil_tensor(offset=1 << 40), "ends at"),
        (spoil_tensor(offset=(1 << 64) - 32), "ends at"),  # start + offset wraps
        (spoil_tensor(offset=0), "overlap"),
        (lambda draft: setattr(draft, "version", 1), "of GGUF version 1"),
        (lambda draft: setattr(draft, "version", 3 << 24), "is big-endian"),
        (lambda draft: setattr(draft, "magic", b"GGML"), "starts with b'GGML'"),
    ],
)  # fmt: skip
def test_a_spoilt_file_is_refused_by_its_fault(llama: Draft, tmp_path: Path, spoil: Callable[[Draft], None], fact: str) -> None:
    spoil(llama)
    assert fact in refused(llama, tmp_path / "m.gguf")


def test_a_file_cut_in_its_last_tensor_is_refused_by_name(llama: Draft, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(llama.build()[:-1])
    with pytest.raises(SourceError, match=r"blk\.1\.ffn_down\.weight ends at .* Fetch the file again"):
        open_source(path)


def test_bytes_behind_the_last_tensor_are_padding(llama: Draft, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(llama.build() + bytes(100))
    assert open_source(path).spec.hidden_size == 16


def test_a_string_that_ends_behind_the_file_is_refused_where_all_of_it_is_text(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    key = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", ARRAY, STRING, 1)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<Q", 100) + b"abc")
    with pytest.raises(SourceError, match=r"k\[0\] needs 100 bytes, the file has 3 more"):
        open_source(path)


def test_a_header_that_grows_without_end_is_refused(llama: Draft, tmp_path: Path) -> None:
    count = (64 << 20) // 8
    llama.keys["many"] = (ARRAY, struct.pack("<IQ", STRING, count) + bytes(8 * count))
    assert "many the header grows over 67,108,864 bytes" in refused(llama, tmp_path / "m.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"GGUF", b"GGUF\3\0\0\0"])
def test_a_file_of_a_few_bytes_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(SourceError):
        open_source(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        open_source(tmp_path / "none.gguf")
    with pytest.raises(SourceError, match=r"config\.json is missing"):
        open_source(tmp_path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_or_cut_file_opens_or_is_refused(llama: Draft, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(llama.build())
    header = len(content) - sum(-(-len(tensor.data) // 32) * 32 for tensor in llama.tensors)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header))
        patch = data.draw(st.sampled_from(PATCHES))
        content[place : place + len(patch)] = patch
    path = tmp_path / "m.gguf"
    path.write_bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    with contextlib.suppress(SourceError):
        source = open_source(path)
        for name in source.tensor_names():
            source.read(name)
