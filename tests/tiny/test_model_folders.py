"""From a Hugging Face folder to an answer: the commands, on small random models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from edge_process import Edge
from family_models import FAMILIES, FolderSource, read_config, read_tensors
from family_models import FOLDER as FAMILY_FOLDER
from model_folders import LLAMA, TOKENIZERS, llama_shapes, random_tensors, stored, write_folder

from edge.package import Package
from engines.sources.base import open_source

pytestmark = pytest.mark.build
pytest.importorskip("edge._core", reason="needs the native core: pip install .")
pytest.importorskip("onnxruntime", reason="needs the build extra")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama in bfloat16, two shards, ChatML; do not change it."""
    folder = write_folder(tmp_path_factory.mktemp("hf") / "Tiny Llama", dtype="BF16", shards=2)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    return folder


@pytest.fixture(scope="module")
def built(edge: Edge, model: Path) -> Path:
    out = model.parent / "tiny.edge"
    edge.succeed("build", model, "--tier", "int8", "--verify-tokens", "64", "-o", out)
    return out


def test_a_folder_is_built_verified_and_answers(edge: Edge, built: Path, model: Path) -> None:
    assert "verified" in edge.succeed("verify", built, "--reference", model)
    answer = edge.succeed("run", built, "Hello", "-n", "4", "--temp", "0")
    assert edge.succeed("run", built, "Hello", "-n", "4", "--temp", "0") == answer


def test_the_package_knows_the_folder_that_it_is_of(built: Path) -> None:
    manifest = Package.open(built).manifest
    assert (manifest.spec.name, manifest.spec.architecture, manifest.source.licence) == ("Tiny Llama", "llama", "apache-2.0")
    assert {tensor.source_kind for tensor in manifest.tensors} == {"BF16"}
    template = (built / "tokenizer" / "chat_template.jinja").read_text()
    assert "<|im_start|>" in template


def test_another_folder_is_not_the_one_that_it_was_built_from(edge: Edge, built: Path, model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other"))
    (other / "config.json").write_text(json.dumps({**LLAMA, "rope_theta": 20000.0}))
    assert "built from a model with SHA-256" in edge.refuse("verify", built, "--reference", other)


def test_a_plan_reads_no_weights(edge: Edge, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    broken = np.full(llama_shapes(LLAMA)["model.layers.1.mlp.down_proj.weight"], np.nan, np.float32)
    raw = bytearray((folder / "model.safetensors").read_bytes())
    values = random_tensors(llama_shapes(LLAMA))["model.layers.1.mlp.down_proj.weight"]
    place = raw.index(stored(values[1:], "F32"))  # all but its first row
    raw[place : place + values[1:].nbytes] = stored(broken[1:], "F32")
    (folder / "model.safetensors").write_bytes(raw)
    assert "fits" in edge.succeed("plan", folder)
    assert "model.layers.1.mlp.down_proj.weight: holds a value that is not a finite" in edge.refuse("build", folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_folder_of_a_family_reads_as_its_fixture_does(family: str, tmp_path: Path) -> None:
    """The logits of these fixtures are those of transformers (test_family_logits.py)."""
    folder = Path(shutil.copytree(FAMILY_FOLDER / family, tmp_path / family))
    shutil.copyfile(TOKENIZERS / "gpt2" / "tokenizer.json", folder / "tokenizer.json")
    source, fixture = open_source(folder), FolderSource(family)
    assert (source.spec, source.tensor_names()) == (fixture.spec, fixture.tensor_names())
    for name in source.tensor_names():
        np.testing.assert_array_equal(source.read(name).to_float32(), fixture.read(name).to_float32())


FOUR = [("qwen2", "qwen2"), ("phi3", "phi3"), ("mistral", "mistral"), ("gemma2", "gemma")]


@pytest.mark.parametrize(("family", "tokenizer"), FOUR)
def test_a_family_answers_from_its_folder(family: str, tokenizer: str, edge: Edge, tmp_path: Path) -> None:
    ends = {"vocab_size": 640, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
    shapes = {name: values.shape for name, values in read_tensors(FAMILY_FOLDER / family / "model.safetensors").items()}
    shapes |= {name: (640, shapes[name][1]) for name in shapes if name in ("model.embed_tokens.weight", "lm_head.weight")}
    write_folder(tmp_path / family, read_config(family) | ends, random_tensors(shapes), dtype="BF16", tokenizer=tokenizer)
    package = tmp_path / f"{family}.edge"
    edge.succeed("build", tmp_path / family, "--tier", "fp16", "--verify-tokens", "64", "-o", package)
    assert "verified" in edge.succeed("verify", package)
    edge.succeed("run", package, "Café déjà vu — 123 😊", "-n", "3")


def test_the_same_folder_as_a_gguf_gives_the_same_export(edge: Edge, tmp_path: Path) -> None:
    """Two ways of the same weights: rows of q and k turned as converters turn them, and read back."""
    gguf = pytest.importorskip("gguf", reason="needs the build extra: gguf")
    tensors = random_tensors(llama_shapes(LLAMA))
    folder = write_folder(tmp_path / "m", LLAMA, tensors)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_name("m")
    writer.add_block_count(LLAMA["num_hidden_layers"])
    writer.add_context_length(LLAMA["max_position_embeddings"])
    writer.add_embedding_length(LLAMA["hidden_size"])
    writer.add_feed_forward_length(LLAMA["intermediate_size"])
    writer.add_head_count(LLAMA["num_attention_heads"])
    writer.add_head_count_kv(LLAMA["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(LLAMA["rms_norm_eps"])
    writer.add_rope_freq_base(LLAMA["rope_theta"])
    names = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip
    for name, values in tensors.items():
        if "q_proj" in name or "k_proj" in name:  # as convert_hf_to_gguf.py of llama.cpp permutes them
            heads = len(values) // 16
            values = values.reshape(heads, 2, 8, 64).swapaxes(1, 2).reshape(values.shape)
        parts = name.removesuffix(".weight").split(".")
        if parts[:2] == ["model", "layers"]:
            writer.add_tensor(f"blk.{parts[2]}.{names['.'.join(parts[3:])]}.weight", np.ascontiguousarray(values))
        else:
            writer.add_tensor({"embed_tokens": "token_embd", "norm": "output_norm"}[parts[1]] + ".weight", values)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    edge.succeed("export", folder, "-o", tmp_path / "folder.onnx")
    edge.succeed("export", tmp_path / "m.gguf", "-o", tmp_path / "file.onnx")
    assert (tmp_path / "folder.onnx.data").read_bytes() == (tmp_path / "file.onnx.data").read_bytes()
