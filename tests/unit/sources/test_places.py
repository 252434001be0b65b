"""Where tensors lie in a file: stacked ones, rows in the order of rotary, values that are finished after reading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.schemes import QuantTensor
from edge.spec import LayerSpec, ModelSpec, RopeSpec
from engines.sources.architectures import folder_places, gguf_places
from engines.sources.architectures.names import text_tensor_name
from engines.sources.architectures.places import Place

SPEC = ModelSpec(
    name="m", architecture="llama", vocab_size=9, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8,
    layers=(LayerSpec(0, 0),), ropes=(RopeSpec(8, 1e4, ()),), context_length=64, norm_epsilon=1e-5, activation="silu",
    attention_scale=8**-0.5, embedding_scale=1.0, qk_norm=False, post_norms=False, tied_head=False,
)  # fmt: skip


def rows_of(place: Place, begin: int, end: int) -> list[int]:
    return np.arange(1000)[place.file_rows(begin, end)].tolist()


def test_names_of_a_folder_are_those_of_transformers() -> None:
    places = folder_places(replace(SPEC, qkv_bias=True))
    assert places["layers.0.attn.k_proj.bias"].file_name == "model.layers.0.self_attn.k_proj.bias"
    assert places["layers.0.ffn_norm.weight"].file_name == "model.layers.0.post_attention_layernorm.weight"
    assert places["head.weight"].file_name == "lm_head.weight"
    assert "head.weight" not in folder_places(replace(SPEC, tied_head=True))


def test_stacked_tensors_follow_each_other_in_the_order_of_ours() -> None:
    places = folder_places(replace(SPEC, architecture="phi3"))
    q, k, v = (places[f"layers.0.attn.{role}_proj.weight"] for role in "qkv")
    assert {place.file_name for place in (q, k, v)} == {"model.layers.0.self_attn.qkv_proj.weight"}
    assert {place.file_shape for place in (q, k, v)} == {(32, 16)}
    assert (rows_of(q, 14, 16), rows_of(k, 0, 2), rows_of(v, 7, 8)) == ([14, 15], [16, 17], [31])
    up = gguf_places(replace(SPEC, architecture="phi3"))["layers.0.ffn.up_proj.weight"]
    assert (up.file_name, up.file_shape, up.shape, up.first_row) == ("blk.0.ffn_up.weight", (48, 16), (24, 16), 24)


def test_interleaved_heads_of_a_llama_gguf_are_read_into_halves() -> None:
    place = gguf_places(SPEC)["layers.0.attn.q_proj.weight"]
    assert rows_of(place, 0, 8) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert rows_of(place, 6, 10) == [5, 7, 8, 10]
    assert gguf_places(SPEC)["layers.0.attn.v_proj.weight"].head_rows == ()


def test_channels_that_stand_still_fill_both_halves_of_a_head() -> None:
    spec = replace(SPEC, architecture="phi3", ropes=(RopeSpec(4, 1e4, (), q_scale=1.5),))
    q, k = (folder_places(spec)[f"layers.0.attn.{role}_proj.weight"] for role in "qk")
    # The file turns 0 with 2 and 1 with 3; ours turns channel i with i + 4.
    assert rows_of(q, 0, 8) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert q.head_factors == (1.5, 1.5, 1.0, 1.0, 1.5, 1.5, 1.0, 1.0)
    assert rows_of(k, 0, 2) == [16, 17] and k.head_factors == ()


def test_values_get_their_factors_whatever_rows_are_read() -> None:
    spec = replace(SPEC, architecture="phi3", ropes=(RopeSpec(4, 1e4, (), q_scale=1.5),))
    place, values = folder_places(spec)["layers.0.attn.q_proj.weight"], np.ones((16, 16), np.float16)
    whole = place.finish(values, 0)
    assert isinstance(whole, np.ndarray) and whole.dtype == np.float32
    assert np.array_equal(whole[6:11], place.finish(values[6:11], 6))
    assert whole[:8, 0].tolist() == list(place.head_factors)
    scales = np.full((16, 1), 2.0, np.float16)
    quants = place.finish(QuantTensor(4, 16, np.zeros((16, 16), np.uint8), scales, scales), 0)
    assert isinstance(quants, QuantTensor) and quants.minima is not None
    assert quants.scales[:4, 0].tolist() == quants.minima[:4, 0].tolist() == [3.0, 3.0, 2.0, 2.0]


def test_gemmas_norms_get_their_one_from_folders_only() -> None:
    spec = replace(SPEC, architecture="gemma3", qk_norm=True, post_norms=True)
    for name in ("layers.0.attn_post_norm.weight", "layers.0.attn.q_norm.weight", "final_norm.weight"):
        assert (folder_places(spec)[name].added, gguf_places(spec)[name].added) == (1.0, 0.0)
    assert folder_places(spec)["layers.0.attn.q_proj.weight"].added == 0.0
    found = folder_places(spec)["final_norm.weight"].finish(np.array([0.5], np.float16), 0)
    assert isinstance(found, np.ndarray) and (found.dtype, found.tolist()) == (np.float32, [1.5])


def test_values_with_nothing_to_finish_are_the_very_same() -> None:
    values = np.ones((2, 2), np.float16)
    assert folder_places(SPEC)["layers.0.attn.q_proj.weight"].finish(values, 0) is values


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("vision_tower.vision_model.embeddings.weight", None),
        ("model.multi_modal_projector.mm_input_projection_weight", None),
    ],
)
def test_a_checkpoint_with_eyes_is_read_by_the_names_of_its_text(name: str, ours: str | None) -> None:
    assert text_tensor_name(name) == ours
