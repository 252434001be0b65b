"""What the keys of a file make of a model, and which keys are never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.errors import SourceError
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.architectures import GGUF_READERS, gemma3, qwen
from engines.sources.architectures.dimensions import GgufFile, read_gguf_dimensions
from engines.sources.base import open_source
from engines.sources.keys import Keys

Draft = Any  # conftest.Draft, which a test cannot import


def spec_of(draft: Draft, folder: Path) -> ModelSpec:
    return open_source(draft.write(folder / "m.gguf")).spec


def refused(draft: Draft, folder: Path) -> str:
    with pytest.raises(SourceError) as error:
        spec_of(draft, folder)
    return str(error.value)


def test_a_llama_is_what_its_keys_say(llama: Draft, tmp_path: Path) -> None:
    llama.real("llama.rope.freq_base", 100_000.0)
    spec = spec_of(llama, tmp_path)
    assert (spec.hidden_size, spec.intermediate_size, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (16, 24, 4, 2, 4)
    assert spec.layers == (LayerSpec(0, 0),) * 2 and spec.ropes == (RopeSpec(4, 100_000.0, ()),) and spec.group_windows == (0,)
    assert (spec.attention_scale, spec.embedding_scale, spec.activation) == (0.5, 1.0, "silu")
    assert not spec.qk_norm and not spec.post_norms


def test_a_llama_without_a_rotary_base_has_that_of_the_paper(llama: Draft, tmp_path: Path) -> None:
    assert spec_of(llama, tmp_path).ropes == (RopeSpec(4, 10_000.0, ()),)


def test_a_head_width_in_the_file_is_never_derived(llama: Draft, tmp_path: Path) -> None:
    llama.number("llama.attention.key_length", 8)
    llama.number("llama.rope.dimension_count", 8)
    assert "attn_q.weight (layers.0.attn.q_proj.weight) is [16, 16], the keys of the file make it [32, 16]" in refused(
        llama, tmp_path
    )


def test_gemma3_has_five_local_layers_for_each_full_one(gemma3: Draft, tmp_path: Path) -> None:
    spec = spec_of(gemma3, tmp_path)
    local, full = LayerSpec(8, 0), LayerSpec(0, 1)
    assert spec.ropes == (RopeSpec(8, 10_000.0, ()), RopeSpec(8, 1e6, ()))
    assert spec.layers == (local,) * 5 + (full, local)
    assert spec.groups == ((5,), (0, 1, 2, 3, 4, 6))
    assert (spec.activation, spec.embedding_scale, spec.attention_scale) == ("gelu_tanh", 4.0, 8**-0.5)
    assert spec.qk_norm and spec.post_norms and spec.tied_head


def test_gemma3_takes_a_pattern_that_its_file_names(gemma3: Draft, tmp_path: Path) -> None:
    key = "gemma3.attention.sliding_window_pattern"
    gemma3.number(key, 3)
    assert [layer.window for layer in spec_of(gemma3, tmp_path).layers] == [8, 8, 0, 8, 8, 0, 8]
    gemma3.array(key, 7, np.array([0, 1, 1, 1, 1, 1, 0], np.uint8))
    assert [layer.window for layer in spec_of(gemma3, tmp_path).layers] == [0, 8, 8, 8, 8, 8, 0]
    gemma3.array(key, 7, np.array([0, 1], np.uint8))
    assert "sliding_window_pattern: has 2 entries for 7 layers" in refused(gemma3, tmp_path)


def test_gemma3_takes_caps_and_a_local_base_that_its_file_names(gemma3: Draft, tmp_path: Path) -> None:
    gemma3.real("gemma3.rope.freq_base_swa", 5000.0)
    gemma3.real("gemma3.attn_logit_softcapping", 50.0)
    gemma3.real("gemma3.final_logit_softcapping", 30.0)
    spec = spec_of(gemma3, tmp_path)
    assert (spec.attention_soft_cap, spec.logit_soft_cap, spec.ropes[0].base) == (50.0, 30.0, 5000.0)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_a_window_in_a_qwen_gguf_is_not_dropped_unless_it_holds_the_whole_context(name: str) -> None:
    def read(**own: int) -> ModelSpec:
        sizes = {"embedding_length": 64, "attention.head_count": 4, "feed_forward_length": 96, "block_count": 2,
                 "context_length": 256, "attention.layer_norm_rms_epsilon": 1e-6}  # fmt: skip
        values = {f"{name}.{key}": value for key, value in sizes.items()}
        more = {f"{name}.attention.{key}": value for key, value in own.items()}
        keys = Keys(Path("qwen.gguf"), {"general.architecture": name, **values, **more})
        return qwen.read_gguf(GgufFile(keys, read_gguf_dimensions(keys, "qwen", 300, True), {}, None))

    assert read().group_windows == read(sliding_window=256).group_windows == (0,)
    with pytest.raises(SourceError, match=r"sliding_window: is 24; nothing says which layers.*Build from the model's folder"):
        read(sliding_window=24)
    with pytest.raises(SourceError, match="max_window_layers: is 1 and not known"):
        read(max_window_layers=1)


def test_gemma3_27b_scales_scores_by_its_width_per_head() -> None:
    keys = Keys(
        Path("27b.gguf"),
        {
            "general.architecture": "gemma3", "gemma3.embedding_length": 5376, "gemma3.attention.head_count": 32,
            "gemma3.attention.head_count_kv": 16, "gemma3.feed_forward_length": 21504, "gemma3.block_count": 62,
            "gemma3.context_length": 131072, "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
            "gemma3.attention.key_length": 128, "gemma3.attention.sliding_window": 1024,
        },
    )  # fmt: skip
    file = GgufFile(keys, read_gguf_dimensions(keys, "27b", 262144, True), {}, None)
    assert gemma3.read_gguf(file).attention_scale == 168**-0.5


@pytest.mark.parametrize(
    "key",
    [
        "embedding_length", "block_count", "attention.head_count", "feed_forward_length", "context_length",
        "attention.layer_norm_rms_epsilon",
    ],
)  # fmt: skip
def test_a_missing_key_is_named(llama: Draft, tmp_path: Path, key: str) -> None:
    del llama.keys["llama." + key]
    assert f"key llama.{key}: is missing" in refused(llama, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "fact"),
    [
        ("attention.head_count", 0, "is 0, not a whole number from 1"),
        ("attention.head_count_kv", 3, "is 3, which does not divide 4 heads"),
        ("attention.head_count", 3, "is missing, and 3 heads do not divide a width of 16"),
        ("block_count", 1 << 31, "is 2147483648, not a whole number from 1 to 10,000"),
        ("rope.dimension_count", 2, "is 2, heads are 4 wide"),
        ("attention.value_length", 8, "is 8, heads are 4 wide"),
        ("vocab_size", 13, "is 13, the embedding has 12 rows"),
        ("something_new", 1, "is 1 and not known; the model may compute what we do not"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_key(llama: Draft, tmp_path: Path, key: str, value: int, fact: str) -> None:
    llama.drop("blk.1.attn_norm.weight")  # the keys are judged before the tensors are looked for
    if key == "attention.head_count" and value == 3:
        del llama.keys["llama.attention.head_count_kv"]
    llama.number("llama." + key, value)
    message = refused(llama, tmp_path)
    assert fact in message and "m.gguf: key llama." in message


def test_a_mixture_of_experts_is_refused_and_no_experts_are_none(llama: Draft, tmp_path: Path) -> None:
    llama.number("llama.expert_count", 0)
    assert spec_of(llama, tmp_path).num_heads == 4
    llama.number("llama.expert_count", 8)
    assert "mixtures of experts cannot be built yet" in refused(llama, tmp_path)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_linear_scaling_divides_frequencies_and_other_kinds_are_refused(
    llama: Draft, gemma3: Draft, tmp_path: Path, name: str
) -> None:
    draft = {"llama": llama, "gemma3": gemma3}[name]
    draft.text(f"{name}.rope.scaling.type", "none")
    draft.real(f"{name}.rope.scaling.factor", 1.0)
    assert spec_of(draft, tmp_path).ropes[-1].divisors == ()
    draft.text(f"{name}.rope.scaling.type", "linear")
    draft.real(f"{name}.rope.scaling.factor", 8.0)
    spec = spec_of(draft, tmp_path)
    assert spec.ropes[-1].divisors == (8.0,) * (spec.head_dim // 2)
    assert name == "llama" or spec.ropes[0].divisors == ()  # Gemma's local layers turn as they did
    draft.text(f"{name}.rope.scaling.type", "yarn")
    assert "scaled rotary positions of kind yarn cannot be built yet" in refused(draft, tmp_path)


def test_a_count_written_once_a_layer_is_taken_when_all_agree(llama: Draft, tmp_path: Path) -> None:
    llama.array("llama.attention.head_count_kv", 5, np.array([2, 2], "<i4"))
    assert spec_of(llama, tmp_path).num_kv_heads == 2
    llama.array("llama.attention.head_count_kv", 5, np.array([2, 1], "<i4"))
    assert "is a list of 2, not a whole number" in refused(llama, tmp_path)


def test_every_architecture_is_known_by_the_name_in_its_files() -> None:
    assert set(GGUF_READERS) == {"llama", "qwen2", "qwen3", "phi3", "smollm3", "gemma2", "gemma3"}
