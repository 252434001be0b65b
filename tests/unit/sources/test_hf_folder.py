"""A Hugging Face folder as a Source: values, shards, ties, and what is missing or not read."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tiny"))  # the folders of the tiny models

from model_folders import LLAMA, llama_shapes, random_tensors, save_safetensors, write_folder

from edge.errors import SourceError
from engines.sources.base import TokenizerFiles, open_source

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
UNTIED = {**LLAMA, "tie_word_embeddings": False}
WEIGHTS = "model.safetensors"


def refused(folder: Path) -> str:
    with pytest.raises(SourceError) as error:
        open_source(folder)
    message = str(error.value)
    assert message.startswith(str(folder)) and "\n" not in message and ". " in message
    return message.removeprefix(str(folder))


def changed(folder: Path, **keys: Any) -> None:
    """config.json with other keys; None takes one out."""
    config = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def bfloat16(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


TYPES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda values: values,
    "F16": lambda values: values.astype(np.float16),
    "BF16": bfloat16,
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_every_value_comes_exactly_as_the_file_has_it(dtype: str, shards: int, tmp_path: Path) -> None:
    tensors = random_tensors(llama_shapes(UNTIED))
    source = open_source(write_folder(tmp_path / "m", UNTIED, tensors, dtype=dtype, shards=shards))
    ours = {
        "embed.weight": EMBEDDING, "final_norm.weight": "model.norm.weight", "head.weight": HEAD,
        "layers.1.attn.q_proj.weight": "model.layers.1.self_attn.q_proj.weight",
        "layers.0.ffn_norm.weight": "model.layers.0.post_attention_layernorm.weight",
        "layers.1.ffn.down_proj.weight": "model.layers.1.mlp.down_proj.weight",
    }  # fmt: skip
    for name, theirs in ours.items():
        read = source.read(name)
        np.testing.assert_array_equal(read.values, TYPES[dtype](tensors[theirs]))
        assert (read.source_type, read.rounding, read.relative_error) == (dtype, "", 0.0)
        assert read.values.dtype == (np.float16 if dtype == "F16" else np.float32)
        begin, end = len(read.values) // 3, len(read.values) // 2
        np.testing.assert_array_equal(source.read_rows(name, begin, end).values, read.values[begin:end])
        np.testing.assert_array_equal(source.read_exact(name, begin, end), np.asarray(read.values[begin:end], np.float32))
    assert source.tensor_names()[0] == "embed.weight" and source.tensor_names()[-1] == "head.weight"
    assert [source.shape(name) for name in source.tensor_names()] == [source.read(name).shape for name in source.tensor_names()]


def test_float32_values_are_a_view_of_the_file(tmp_path: Path) -> None:
    values = open_source(write_folder(tmp_path / "m")).read("layers.0.attn.o_proj.weight").values
    assert isinstance(values, np.ndarray) and not values.flags.owndata and not values.flags.writeable


def test_the_folder_says_what_it_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "My Model", shards=2)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    metadata = open_source(folder).metadata
    assert (metadata.name, metadata.licence, metadata.path) == ("My Model", "apache-2.0", folder)
    assert metadata.tokenizer == TokenizerFiles(folder, LLAMA["vocab_size"])
    assert [file.name for file in metadata.files] == [
        "config.json", "tokenizer.json", "tokenizer_config.json", "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]  # fmt: skip


def test_a_cached_snapshot_of_links_is_read_and_has_its_models_name(tmp_path: Path) -> None:
    blobs = write_folder(tmp_path / "models--org--Tiny-Llama" / "blobs")
    snapshot = tmp_path / "models--org--Tiny-Llama" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for file in blobs.iterdir():
        os.symlink(os.path.relpath(file, snapshot), snapshot / file.name)
    assert open_source(snapshot).metadata.name == "Tiny-Llama"


@pytest.mark.parametrize("says", [True, False])
def test_a_head_that_equals_the_embedding_is_the_embedding(says: bool, tmp_path: Path) -> None:
    tensors = random_tensors(llama_shapes(LLAMA))
    tensors[HEAD] = tensors[EMBEDDING]
    source = open_source(write_folder(tmp_path / "m", {**LLAMA, "tie_word_embeddings": says}, tensors))
    assert source.spec.tied_head and "head.weight" not in source.tensor_names()


def test_a_head_of_its_own_is_read(tmp_path: Path) -> None:
    assert not open_source(write_folder(tmp_path / "m", UNTIED)).spec.tied_head


def test_a_tied_model_with_another_head_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", LLAMA, random_tensors(llama_shapes(UNTIED)))
    assert "key tie_word_embeddings: is true, but lm_head.weight differs" in refused(folder)


def test_an_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", UNTIED, random_tensors(llama_shapes(LLAMA)))
    assert "key tie_word_embeddings: is false, and tensor lm_head.weight is missing" in refused(folder)


def lacks(*names: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def holds(*names: str, without: tuple[str, ...] = ()) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        lacks(*without)(folder)
        for name in names:
            (folder / name).touch()

    return spoil


def says(**keys: Any) -> Callable[[Path], None]:
    return lambda folder: changed(folder, **keys)


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    raw = content.encode() if isinstance(content, str) else content
    return lambda folder: folder.joinpath(name).write_bytes(raw) and None  # type: ignore[func-returns-value]


def has(name: str, values: np.ndarray, dtype: str = "F32") -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        tensors = random_tensors(llama_shapes(LLAMA)) | {name: values}
        save_safetensors(folder / WEIGHTS, tensors, dtype)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "fact"),
    [
        (lacks("config.json"), ": config.json is missing. Give a folder with config.json"),
        (lacks(WEIGHTS), ": model.safetensors is missing, and model.safetensors.index.json too"),
        (lacks("tokenizer.json"), ": tokenizer.json is missing. Fetch it"),
        (holds("tokenizer.model", without=("tokenizer.json",)), "Make it from tokenizer.model. Save it anew: python -c 'from"),
        (holds("pytorch_model.bin", without=(WEIGHTS,)), "pytorch_model.bin is a pickle, which can run code"),
        (holds("adapter_config.json", "adapter_model.safetensors", without=(WEIGHTS,)), "an adapter, not a model"),
        (holds("a b.gguf", without=(WEIGHTS, "config.json")), "a folder with GGUF files. Give the file: '"),
        (says(quantization_config={"quant_method": "gptq", "bits": 4}), "the weights are quantised (gptq)"),
        (says(model_type="mamba"), "/config.json: key model_type: is 'mamba'. Use a model of: llama"),
        (says(model_type=None), "/config.json: key model_type: is missing"),
        (says(model_type=["llama"]), "/config.json: key model_type: is a list of 1, not text"),
        (says(vocab_size=449), "tensor model.embed_tokens.weight (embed.weight) is [448, 64], config.json makes it [449, 64]"),
        (says(model_type="phi3", partial_rotary_factor=1e9), "/config.json: spec.ropes[0].dim: 16000000000 is outside"),
        (says(num_hidden_layers=3), ": tensor model.layers.2.input_layernorm.weight (layers.2.attn_norm.weight) is missing"),
        (says(num_hidden_layers=1), ": tensor model.layers.1.input_layernorm.weight is not one of a llama model (9 such)"),
        (says(**{"a": {"b": 1}, "a.b": 2}), "/config.json: key a.b stands there twice"),
        (text("config.json", "{"), "/config.json: line 1: not JSON"),
        (text("config.json", b"\xff"), "/config.json: byte 0 is not UTF-8"),
        (text("config.json", "[]"), "/config.json: does not hold keys and values"),
        (text("config.json", '{"a":' * 9 + "1" + "}" * 9), "too deep"),
        (text("config.json", '{"a\\u0000": 1}'), r"key 'a\x00': is unprintable"),
        (text(WEIGHTS, b""), "/model.safetensors: cannot be mapped"),
        (text(WEIGHTS, b"\0" * 8), "/model.safetensors: the header: line 1: not JSON"),
        (has("model.layers.0.self_attn.q_proj.bias", np.zeros(64)), "q_proj.bias is not one of a llama model"),
        (has("model.norm.weight", np.ones(64), "I64"), "(embed.weight) is I64, which is not read"),
    ],
)  # fmt: skip
def test_what_is_missing_or_not_read_is_named(spoil: Callable[[Path], None], fact: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    spoil(folder)
    assert fact in refused(folder)


def test_what_older_files_hold_besides_is_no_fault(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    has("model.layers.0.self_attn.rotary_emb.inv_freq", np.ones(8))(folder)
    assert len(open_source(folder).tensor_names()) == 20


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_value_that_is_no_number_is_named_when_it_is_read(value: float, dtype: str, tmp_path: Path) -> None:
    tensors = random_tensors(llama_shapes(LLAMA))
    tensors["model.layers.1.mlp.up_proj.weight"][7, 3] = value
    source = open_source(write_folder(tmp_path / "m", LLAMA, tensors, dtype=dtype))
    with pytest.raises(SourceError, match=r"model\.layers\.1\.mlp\.up_proj\.weight: holds a value that is not"):
        source.read("layers.1.ffn.up_proj.weight")


def index_of(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index)
        path.write_text(json.dumps(index))

    return spoil


def maps(name: str, file: object) -> Callable[[Path], None]:
    return index_of(lambda index: index["weight_map"].update({name: file}))


@pytest.mark.parametrize(
    ("spoil", "fact"),
    [
        (lacks("model-00002-of-00003.safetensors"), "1 of its 3 files are missing, model-00002-of-00003.safetensors first"),
        (maps(EMBEDDING, "../m/model-00001-of-00003.safetensors"), "'../m/model-00001-of-00003.safetensors', which is no"),
        (maps(EMBEDDING, "/etc/passwd"), "'/etc/passwd', which is no .safetensors file of its folder"),
        (maps(EMBEDDING, ".."), "'..', which is no"),
        (maps(EMBEDDING, "a\0.safetensors"), r"'a\x00.safetensors', which is no"),
        (maps(EMBEDDING, 3), "'3', which is no"),
        (maps(EMBEDDING, "model-00003-of-00003.safetensors"), "tensor 'model.embed_tokens.weight' is not in it"),
        (maps("model.more", "model-00001-of-00003.safetensors"), "tensor 'model.more' is not in it"),
        (index_of(lambda index: index.pop("weight_map")), "key weight_map: holds no file by tensor"),
        (index_of(lambda index: index.update(weight_map=[])), "key weight_map: holds no file by tensor"),
    ],
)
def test_an_index_that_does_not_fit_its_files_is_refused(spoil: Callable[[Path], None], fact: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", shards=3)
    spoil(folder)
    assert fact in refused(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", shards=2)
    twice = "model-00002-of-00002.safetensors"
    save_safetensors(folder / twice, random_tensors(llama_shapes(LLAMA)))
    assert "stands in model-00001-of-00002.safetensors too" in refused(folder)


def test_weights_alone_are_refused_with_the_way_to_give_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    with pytest.raises(SourceError, match=r"holds weights alone\. Give its folder"):
        open_source(folder / WEIGHTS)
