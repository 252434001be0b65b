"""Small random models as GGUF files, with small but working vocabularies. Owns: TinyModel, VARIANTS, write_tiny. Needs: gguf.

A file is what a converter would have written: q and k rows of a llama in interleaved order, Gemma's norms with their + 1, the
tokenizer's keys complete. Weights are drawn so that logits differ by a few units, as those of trained models do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import vocabulary

BLOCK_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")  # gguf quantises these itself
SUPER_BLOCK_TYPES = ("Q4_K", "Q5_K", "Q6_K")  # for these it only reads; we draw their bytes


@dataclass(frozen=True)
class TinyModel:
    """A model to write. Tensor types: by role (embed, head, q_proj, ffn_norm ...), else `type`; vectors are F32."""

    architecture: str = "llama"
    hidden: int = 64
    feed_forward: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    layers: int = 3
    context: int = 512
    tied: bool = True
    window: int = 0  # gemma3 only, where every `full_every`-th layer is full
    full_every: int = 3
    rope_base: float = 10000.0
    attention_soft_cap: float = 0.0  # gemma3 only, as the next
    logit_soft_cap: float = 0.0
    type: str = "F32"
    types: dict[str, str] = field(default_factory=dict)
    chat_template: str = vocabulary.CHATML
    seed: int = 0

    @property
    def vocabulary(self) -> vocabulary.Vocabulary:
        return vocabulary.SENTENCE_PIECE if self.architecture == "gemma3" else vocabulary.BYTE_LEVEL


LLAMA = TinyModel()
GEMMA = TinyModel(architecture="gemma3", window=8, rope_base=1e6, kv_heads=1, layers=4, chat_template="")
WIDE = replace(LLAMA, hidden=256, feed_forward=256, heads=4, head_dim=64)  # super blocks hold 256 inputs

VARIANTS = {
    "llama": LLAMA,
    "llama_untied": replace(LLAMA, tied=False),
    "llama_one_kv_head": replace(LLAMA, kv_heads=1),
    "llama_no_shared_heads": replace(LLAMA, kv_heads=4),
    # 48 and 72 inputs are no multiple of 32, so that groups are padded.
    "llama_odd_widths": replace(LLAMA, hidden=48, feed_forward=72, heads=3, kv_heads=1),
    "llama_f16": replace(LLAMA, type="F16"),
    "llama_bf16": replace(LLAMA, type="BF16"),
    **{f"llama_{name.lower()}": replace(LLAMA, type=name) for name in BLOCK_TYPES},
    **{f"llama_{name.lower()}": replace(WIDE, type=name) for name in SUPER_BLOCK_TYPES},
    # As the published SmolLM2 file: Q4_1 with a Q8_0 table.
    "llama_published": replace(LLAMA, type="Q4_1", types={"embed": "Q8_0"}),
    "gemma": GEMMA,
    "gemma_soft_caps": replace(GEMMA, attention_soft_cap=5.0, logit_soft_cap=3.0),
    "gemma_odd_widths": replace(GEMMA, hidden=48, feed_forward=72, heads=3),
    # As the published Gemma file: types mixed within a layer.
    "gemma_published": replace(
        GEMMA, hidden=64, feed_forward=256, type="Q5_0", types={"embed": "Q8_0", "v_proj": "Q8_0", "down_proj": "Q6_K"}
    ),
}


def write_tiny(path: Path, model: TinyModel) -> Path:
    """Writes `model` to `path`, the same bytes for the same model, and returns `path`."""
    writer = _started(path, model)
    rng = np.random.default_rng(model.seed)
    for name, role, shape in _tensors(model):
        _add_tensor(writer, rng, name, shape, model.types.get(role, model.type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_hollow(path: Path, model: TinyModel) -> Path:
    """Writes `model` with weights that are all 0 and lie in a hole of the file: gigabytes that take no room and no time."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    writer = _started(path, model)
    data_bytes = 0
    for name, role, shape in _tensors(model):
        kind = GGMLQuantizationType["F32" if len(shape) == 1 else model.types.get(role, model.type)]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        nbytes = int(np.prod(shape, dtype=np.int64)) // block * block_bytes
        # A quantised tensor is announced by the shape of its bytes.
        raw = (*shape[:-1], shape[-1] // block * block_bytes) if block > 1 else shape
        writer.add_tensor_info(name, raw, np.dtype(np.uint8 if block > 1 else np.float32), nbytes, raw_dtype=kind)
        data_bytes += writer.ggml_pad(nbytes, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = writer.fout[0]
    file.truncate(writer.ggml_pad(file.tell(), writer.data_alignment) + data_bytes)
    writer.close()
    return path


def _started(path: Path, model: TinyModel) -> Any:
    """A GGUFWriter that has everything but the tensors."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, model.architecture)
    _add_keys(writer, model)
    model.vocabulary.add_to(writer)
    if model.chat_template:
        writer.add_chat_template(model.chat_template)
    return writer


def _add_keys(writer: Any, model: TinyModel) -> None:
    writer.add_name(f"Tiny {model.architecture}")
    writer.add_license("apache-2.0")
    writer.add_block_count(model.layers)
    writer.add_context_length(model.context)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.feed_forward)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(model.rope_base)
    if model.architecture == "llama":
        writer.add_vocab_size(len(model.vocabulary.tokens))
        writer.add_rope_dimension_count(model.head_dim)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    if model.window:
        writer.add_sliding_window(model.window)
        writer.add_sliding_window_pattern(model.full_every)
    if model.attention_soft_cap:
        writer.add_attn_logit_softcapping(model.attention_soft_cap)
    if model.logit_soft_cap:
        writer.add_final_logit_softcapping(model.logit_soft_cap)


def _tensors(model: TinyModel) -> list[tuple[str, str, tuple[int, ...]]]:
    """(name in the file, role, shape) of every tensor; matrices are [N outputs, K inputs]."""
    hidden, ffn, vocab = model.hidden, model.feed_forward, len(model.vocabulary.tokens)
    q_width, kv_width = model.heads * model.head_dim, model.kv_heads * model.head_dim
    found: list[tuple[str, str, tuple[int, ...]]] = [("token_embd", "embed", (vocab, hidden))]
    for index in range(model.layers):
        layer: list[tuple[str, str, tuple[int, ...]]] = [
            ("attn_norm", "attn_norm", (hidden,)),
            ("attn_q", "q_proj", (q_width, hidden)),
            ("attn_k", "k_proj", (kv_width, hidden)),
            ("attn_v", "v_proj", (kv_width, hidden)),
            ("attn_output", "o_proj", (hidden, q_width)),
            ("ffn_norm", "ffn_norm", (hidden,)),
            ("ffn_gate", "gate_proj", (ffn, hidden)),
            ("ffn_up", "up_proj", (ffn, hidden)),
            ("ffn_down", "down_proj", (hidden, ffn)),
        ]
        if model.architecture == "gemma3":
            layer += [
                ("attn_q_norm", "q_norm", (model.head_dim,)),
                ("attn_k_norm", "k_norm", (model.head_dim,)),
                ("post_attention_norm", "attn_post_norm", (hidden,)),
                ("post_ffw_norm", "ffn_post_norm", (hidden,)),
            ]
        found += [(f"blk.{index}.{name}", role, shape) for name, role, shape in layer]
    found.append(("output_norm", "final_norm", (hidden,)))
    if not model.tied:
        found.append(("output", "head", (vocab, hidden)))
    return [(f"{name}.weight", role, shape) for name, role, shape in found]


def _add_tensor(writer: Any, rng: np.random.Generator, name: str, shape: tuple[int, ...], type_name: str) -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    if len(shape) == 1:
        writer.add_tensor(name, (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32))
        return
    kind = GGMLQuantizationType[type_name]
    if type_name in SUPER_BLOCK_TYPES:
        writer.add_tensor(name, _super_blocks(rng, shape, type_name), raw_dtype=kind)
        return
    # Embedding rows of about unit size keep the residual stream, and so the logits, in the range of trained models.
    spread = 0.5 if name.startswith("token_embd") else 1.0 / np.sqrt(shape[1])
    weights = (spread * rng.standard_normal(shape)).astype(np.float32)
    if type_name == "F32":
        writer.add_tensor(name, weights)
    elif type_name == "F16":
        writer.add_tensor(name, weights.astype(np.float16))
    else:
        writer.add_tensor(name, quantize(weights, kind), raw_dtype=kind)


def _super_blocks(rng: np.random.Generator, shape: tuple[int, int], type_name: str) -> np.ndarray:
    """Random bytes [N, K / 256 * block bytes] of a K type, its fp16 factors such that weights are about 1 / sqrt(K)."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    assert shape[1] % block == 0, f"{type_name} needs rows of {block}"
    raw = rng.integers(0, 256, (shape[0], shape[1] // block, block_bytes), dtype=np.uint8)
    spread = 1.0 / np.sqrt(shape[1])

    def factors(place: int, mean: float) -> None:
        values = (mean * (0.5 + rng.random(raw.shape[:2]))).astype(np.float16)
        raw[..., place : place + 2] = values.view(np.uint8).reshape(*raw.shape[:2], 2)

    if type_name == "Q6_K":  # d is last; weight = d * int8 scale * (q - 32)
        factors(block_bytes - 2, spread / (64 * 16))
    else:  # d, dmin first; weight = d * scale * q - dmin * minimum, scale and minimum 0..63, q 0..15 or 0..31
        top = 15 if type_name == "Q4_K" else 31
        factors(0, 2 * spread / (32 * top))
        factors(2, spread / 32)
    return raw.reshape(shape[0], -1)
