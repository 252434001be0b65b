"""A GGUF file as a Source: names, order of rows, ties, and what does not fit together."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import SourceError
from engines.sources.base import Source, open_source

Draft = Any  # conftest.Draft, which a test cannot import
HEAD_DIM, VOCAB, HIDDEN = 4, 12, 16


def opened(draft: Draft, folder: Path) -> Source:
    return open_source(draft.write(folder / "m.gguf"))


def refused(draft: Draft, folder: Path) -> str:
    with pytest.raises(SourceError) as error:
        opened(draft, folder)
    return str(error.value)


def stored(draft: Draft, name: str) -> np.ndarray:
    tensor = draft.tensor(name)
    return np.frombuffer(tensor.data, "<f4").reshape(tuple(reversed(tensor.dims)))


def replace(draft: Draft, name: str, values: np.ndarray) -> None:
    tensor = draft.tensor(name)
    tensor.dims, tensor.data = tuple(reversed(values.shape)), values.astype("<f4").tobytes()


def test_names_are_canonical_and_in_model_order(llama: Draft, tmp_path: Path) -> None:
    source = opened(llama, tmp_path)
    names = source.tensor_names()
    assert names[0] == "embed.weight" and names[-1] == "final_norm.weight"
    assert names[1:10] == tuple(
        f"layers.0.{part}.weight"
        for part in (
            "attn_norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj",
            "ffn_norm", "ffn.gate_proj", "ffn.up_proj", "ffn.down_proj",
        )
    )  # fmt: skip
    assert [source.shape(name) for name in names] == [source.read(name).shape for name in names]


def test_a_gemma_has_head_norms_and_norms_behind(gemma3: Draft, tmp_path: Path) -> None:
    names = set(opened(gemma3, tmp_path).tensor_names())
    for part in ("attn.q_norm", "attn.k_norm", "attn_post_norm", "ffn_post_norm"):
        assert f"layers.6.{part}.weight" in names


@pytest.mark.parametrize(("name", "file_name"), [("q_proj", "attn_q"), ("k_proj", "attn_k")])
def test_llama_rows_of_q_and_k_come_in_half_rotation_order(llama: Draft, tmp_path: Path, name: str, file_name: str) -> None:
    file_rows = stored(llama, f"blk.1.{file_name}.weight")
    heads = len(file_rows) // HEAD_DIM
    # What llama.cpp's converter does to rows in half-rotation order, applied to what we read, gives the file again.
    ours = opened(llama, tmp_path).read(f"layers.1.attn.{name}.weight").values
    converted = np.asarray(ours).reshape(heads, 2, HEAD_DIM // 2, HIDDEN).swapaxes(1, 2).reshape(file_rows.shape)
    np.testing.assert_array_equal(converted, file_rows)
    assert not np.array_equal(np.asarray(ours), file_rows)


@pytest.mark.parametrize("name", ["attn_v", "attn_output", "ffn_down"])
def test_other_rows_stay_in_the_order_of_the_file(llama: Draft, tmp_path: Path, name: str) -> None:
    ours = {"attn_v": "attn.v_proj", "attn_output": "attn.o_proj", "ffn_down": "ffn.down_proj"}[name]
    values = opened(llama, tmp_path).read(f"layers.0.{ours}.weight").values
    np.testing.assert_array_equal(np.asarray(values), stored(llama, f"blk.0.{name}.weight"))


def test_gemma_rows_of_q_stay_in_the_order_of_the_file(gemma3: Draft, tmp_path: Path) -> None:
    values = opened(gemma3, tmp_path).read("layers.0.attn.q_proj.weight").values
    np.testing.assert_array_equal(np.asarray(values), stored(gemma3, "blk.0.attn_q.weight"))


def test_quantised_q_rows_are_ordered_too(llama: Draft, tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    widths = {"llama.embedding_length": 32, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 4}
    for key, value in widths.items():
        llama.number(key, value)
    for tensor in llama.tensors:  # widen every 16 to 32, so that a block fits a row
        tensor.dims = tuple({16: 32, 8: 16}.get(size, size) for size in tensor.dims)
        values = np.random.default_rng(5).standard_normal(tuple(reversed(tensor.dims)))
        tensor.data = values.astype("<f4").tobytes()
    q = llama.tensor("blk.0.attn_q.weight")
    q.data, q.type_code = gguf.quantize(stored(llama, "blk.0.attn_q.weight"), gguf.GGMLQuantizationType.Q8_0).tobytes(), 8
    source = opened(llama, tmp_path)
    ours = source.read("layers.0.attn.q_proj.weight")
    raw = np.frombuffer(q.data, np.uint8).reshape(32, -1)
    file_rows = gguf.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
    ordered = ours.to_float32().reshape(8, 2, HEAD_DIM // 2, 32).swapaxes(1, 2).reshape(32, 32)
    np.testing.assert_array_equal(ordered, file_rows)
    assert ours.source_type == "Q8_0"
    np.testing.assert_array_equal(source.read_exact("layers.0.attn.q_proj.weight", 3, 9), ours.to_float32()[3:9])


def test_pieces_of_a_tensor_join_to_the_whole(llama: Draft, tmp_path: Path) -> None:
    source = opened(llama, tmp_path)
    for name in ("embed.weight", "layers.0.attn.q_proj.weight", "final_norm.weight"):
        rows = source.shape(name)[0]
        pieces = [source.read_rows(name, begin, min(begin + 5, rows)).to_float32() for begin in range(0, rows, 5)]
        np.testing.assert_array_equal(np.concatenate(pieces), source.read(name).to_float32())
        np.testing.assert_array_equal(source.read_exact(name, 0, rows), source.read(name).to_float32())


def test_bfloat16_is_read_as_the_float32_it_stands_for(llama: Draft, tmp_path: Path) -> None:
    exact = np.linspace(-3, 3, VOCAB * HIDDEN, dtype=np.float32).reshape(VOCAB, HIDDEN)
    upper = (exact.view(np.uint32) >> 16).astype("<u2")
    embedding = llama.tensor("token_embd.weight")
    embedding.data, embedding.type_code = upper.tobytes(), 30
    values = opened(llama, tmp_path).read("embed.weight").values
    np.testing.assert_array_equal(np.asarray(values), (upper.astype(np.uint32) << 16).view(np.float32))


def test_float16_stays_float16(llama: Draft, tmp_path: Path) -> None:
    halves = stored(llama, "token_embd.weight").astype("<f2")
    embedding = llama.tensor("token_embd.weight")
    embedding.data, embedding.type_code = halves.tobytes(), 1
    values = np.asarray(opened(llama, tmp_path).read("embed.weight").values)
    assert values.dtype == np.float16
    np.testing.assert_array_equal(values, halves)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_refused_when_read(llama: Draft, tmp_path: Path, broken: float) -> None:
    values = stored(llama, "blk.1.ffn_up.weight").copy()
    values[3, 5] = broken
    replace(llama, "blk.1.ffn_up.weight", values)
    source = opened(llama, tmp_path)
    with pytest.raises(SourceError, match=r"blk\.1\.ffn_up\.weight: holds a value that is not a finite number"):
        source.read("layers.1.ffn.up_proj.weight")


def test_without_a_head_the_embedding_is_the_head(llama: Draft, tmp_path: Path) -> None:
    source = opened(llama, tmp_path)
    assert source.spec.tied_head and "head.weight" not in source.tensor_names()


def with_head(draft: Draft, values: np.ndarray) -> Draft:
    embedding = draft.tensor("token_embd.weight")
    draft.tensors.append(type(embedding).of("output.weight", values))
    return draft


def test_a_head_equal_to_the_embedding_is_tied(llama: Draft, tmp_path: Path) -> None:
    source = opened(with_head(llama, stored(llama, "token_embd.weight")), tmp_path)
    assert source.spec.tied_head and "head.weight" not in source.tensor_names()


def test_a_head_that_differs_is_kept(llama: Draft, tmp_path: Path) -> None:
    values = stored(llama, "token_embd.weight").copy()
    values[-1, -1] += 1
    source = opened(with_head(llama, values), tmp_path)
    assert not source.spec.tied_head and source.tensor_names()[-1] == "head.weight"
    np.testing.assert_array_equal(np.asarray(source.read("head.weight").values), values)


def test_a_missing_tensor_is_named_both_ways(llama: Draft, tmp_path: Path) -> None:
    llama.drop("blk.1.ffn_down.weight")
    assert "tensor blk.1.ffn_down.weight (layers.1.ffn.down_proj.weight) is missing" in refused(llama, tmp_path)


def test_a_missing_embedding_is_refused(llama: Draft, tmp_path: Path) -> None:
    llama.drop("token_embd.weight")
    assert "token_embd.weight (embed.weight) is missing" in refused(llama, tmp_path)


def test_a_shape_against_the_keys_is_refused_with_both(llama: Draft, tmp_path: Path) -> None:
    llama.number("llama.feed_forward_length", 48)
    message = refused(llama, tmp_path)
    assert "blk.0.ffn_gate.weight (layers.0.ffn.gate_proj.weight) is [24, 16], the keys of the file make it [48, 16]" in message


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "blk.0.ffn_gate_inp.weight", "blk.2.attn_q.weight"])
def test_a_tensor_that_we_would_not_compute_is_refused(llama: Draft, tmp_path: Path, name: str) -> None:
    llama.tensors.append(type(llama.tensors[0]).of(name, np.ones(16)))
    assert f"tensor {name} is not one of a llama model" in refused(llama, tmp_path)


def test_rotary_frequencies_are_divided_by_the_factors_in_the_file(llama: Draft, tmp_path: Path) -> None:
    llama.tensors.append(type(llama.tensors[0]).of("rope_freqs.weight", np.array([1, 8])))
    source = opened(llama, tmp_path)
    assert source.spec.ropes[0].divisors == (1.0, 8.0)
    assert "rope_freqs.weight" not in source.tensor_names()


@pytest.mark.parametrize(
    ("name", "factors", "fact"),
    [
        ("rope_freqs.weight", [1, 2, 3], "has 3 factors for 2 pairs of channels that turn"),
        ("rope_freqs.weight", [1, 0], "holds a factor that is not over 0"),
        ("rope_freqs.weight", [1, np.nan], "holds a factor that is not over 0"),
        ("rope_factors_long.weight", [1, 2], "factors of frequencies that a llama model does not use"),
    ],
)
def test_factors_of_frequencies_that_do_not_fit_are_refused(
    llama: Draft, tmp_path: Path, name: str, factors: list[float], fact: str
) -> None:
    llama.tensors.append(type(llama.tensors[0]).of(name, np.array(factors)))
    message = refused(llama, tmp_path)
    assert name in message and fact in message


def test_a_type_that_we_do_not_read_is_refused_with_those_that_we_do(llama: Draft, tmp_path: Path) -> None:
    v = llama.tensor("blk.0.attn_v.weight")
    v.type_code, v.data = 24, bytes(v.dims[0] * v.dims[1])  # I8
    message = refused(llama, tmp_path)
    assert "blk.0.attn_v.weight is I8" in message and "F32, F16, BF16, Q4_0" in message and "Q6_K" in message


def test_an_unknown_architecture_is_refused_with_the_known_ones(llama: Draft, tmp_path: Path) -> None:
    llama.text("general.architecture", "mamba")
    assert "is 'mamba'. Use a model of: llama, qwen2, qwen3, phi3, smollm3, gemma2, gemma3" in refused(llama, tmp_path)


def test_one_part_of_a_split_file_is_refused(llama: Draft, tmp_path: Path) -> None:
    llama.keys["split.count"] = (2, struct.pack("<H", 3))
    assert "one part of several" in refused(llama, tmp_path)


def test_metadata_carries_the_tokenizer_as_the_file_has_it(llama: Draft, tmp_path: Path) -> None:
    llama.texts("tokenizer.ggml.merges", ["t 1", "t 2"])
    llama.text("tokenizer.chat_template", "{{ messages }}")
    metadata = opened(llama, tmp_path).metadata
    parts = metadata.tokenizer
    assert (metadata.name, metadata.licence, metadata.licence_link) == ("Draft", "apache-2.0", "")
    assert (parts.model, parts.pre, len(parts.tokens), parts.types) == ("gpt2", "", VOCAB, (1,) * VOCAB)
    assert (parts.ids, parts.flags) == ({"eos": 2}, {"add_bos": False})
    assert (parts.merges, parts.chat_template, parts.scores) == (("t 1", "t 2"), "{{ messages }}", ())


def test_tokens_must_be_as_many_as_the_embedding_has_rows(llama: Draft, tmp_path: Path) -> None:
    llama.texts("tokenizer.ggml.tokens", ["a", "b"])
    assert "tokenizer.ggml.tokens: has 2 entries, the embedding 12 rows" in refused(llama, tmp_path)


def test_a_token_id_outside_the_vocabulary_is_refused(llama: Draft, tmp_path: Path) -> None:
    llama.number("tokenizer.ggml.eos_token_id", VOCAB)
    assert "tokenizer.ggml.eos_token_id: is 12, not a whole number from 0 to 11" in refused(llama, tmp_path)


@pytest.mark.parametrize("kind", [-1, 7])
def test_a_token_type_outside_the_format_is_refused(llama: Draft, tmp_path: Path, kind: int) -> None:
    llama.array("tokenizer.ggml.token_type", 5, np.array([1] * (VOCAB - 1) + [kind], "<i4"))
    assert "holds a type outside 0 to 6" in refused(llama, tmp_path)


def test_tokens_of_undefined_type_are_read(llama: Draft, tmp_path: Path) -> None:
    types = [index % 7 for index in range(VOCAB)]
    llama.array("tokenizer.ggml.token_type", 5, np.array(types, "<i4"))
    assert opened(llama, tmp_path).metadata.tokenizer.types == tuple(types)


def test_a_path_with_spaces_and_accents_opens(llama: Draft, tmp_path: Path) -> None:
    folder = tmp_path / "Rif\u00e9 f\u00fcr alle"
    folder.mkdir()
    assert opened(llama, folder).spec.name == "Draft"
