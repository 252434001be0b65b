"""A GGUF file as a draft whose every byte a test may spoil."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs the build extra: gguf")

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
F32 = 0
HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, LAYERS = 16, 4, 2, 24, 12, 2


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def strings(values: list[str]) -> bytes:
    return struct.pack("<IQ", STRING, len(values)) + b"".join(text(value) for value in values)


@dataclass
class Tensor:
    name: str
    dims: tuple[int, ...]  # as a file has them: fastest first
    data: bytes
    type_code: int = F32
    offset: int | None = None  # None: behind the one before

    @classmethod
    def of(cls, name: str, values: np.ndarray) -> Tensor:
        return cls(name, tuple(reversed(values.shape)), values.astype("<f4").tobytes())


@dataclass
class Draft:
    """Keys and tensors, to be written as they are: right or wrong."""

    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    key_count: int | None = None
    alignment: int = 32

    def number(self, key: str, value: int) -> None:
        self.keys[key] = (UINT32, struct.pack("<I", value))

    def real(self, key: str, value: float) -> None:
        self.keys[key] = (FLOAT32, struct.pack("<f", value))

    def flag(self, key: str, value: bool) -> None:
        self.keys[key] = (BOOL, bytes([value]))

    def text(self, key: str, value: str) -> None:
        self.keys[key] = (STRING, text(value))

    def texts(self, key: str, values: list[str]) -> None:
        self.keys[key] = (ARRAY, strings(values))

    def array(self, key: str, item_type: int, values: np.ndarray) -> None:
        self.keys[key] = (ARRAY, struct.pack("<IQ", item_type, values.size) + values.tobytes())

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def drop(self, name: str) -> None:
        self.tensors.remove(self.tensor(name))

    def build(self) -> bytes:
        key_count = len(self.keys) if self.key_count is None else self.key_count
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        out = self.magic + struct.pack("<IQQ", self.version, tensor_count, key_count)
        for key, (value_type, payload) in self.keys.items():
            out += text(key) + struct.pack("<I", value_type) + payload
        body = b""
        for tensor in self.tensors:
            body += bytes(-len(body) % self.alignment)
            offset = len(body) if tensor.offset is None else tensor.offset
            out += text(tensor.name) + struct.pack("<I", len(tensor.dims)) + struct.pack(f"<{len(tensor.dims)}Q", *tensor.dims)
            out += struct.pack("<IQ", tensor.type_code, offset)
            body += tensor.data
        return out + bytes(-len(out) % self.alignment) + body

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def llama_draft() -> Draft:
    """A valid llama of two layers with random weights and a tokenizer of twelve tokens."""
    draft = Draft()
    draft.text("general.architecture", "llama")
    draft.text("general.name", "Draft")
    draft.text("general.license", "apache-2.0")
    for key, value in (
        ("embedding_length", HIDDEN), ("attention.head_count", HEADS), ("attention.head_count_kv", KV_HEADS),
        ("feed_forward_length", FFN), ("block_count", LAYERS), ("context_length", 64),
        ("rope.dimension_count", HIDDEN // HEADS),
    ):  # fmt: skip
        draft.number("llama." + key, value)
    draft.real("llama.attention.layer_norm_rms_epsilon", 1e-5)
    draft.text("tokenizer.ggml.model", "gpt2")
    draft.texts("tokenizer.ggml.tokens", [f"t{index}" for index in range(VOCAB)])
    draft.array("tokenizer.ggml.token_type", 5, np.ones(VOCAB, "<i4"))
    draft.number("tokenizer.ggml.eos_token_id", 2)
    draft.flag("tokenizer.ggml.add_bos_token", False)
    rng = np.random.default_rng(1)
    kv_width = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        for part, shape in (
            ("attn_norm", (HIDDEN,)), ("attn_q", (HIDDEN, HIDDEN)), ("attn_k", (kv_width, HIDDEN)),
            ("attn_v", (kv_width, HIDDEN)), ("attn_output", (HIDDEN, HIDDEN)), ("ffn_norm", (HIDDEN,)),
            ("ffn_gate", (FFN, HIDDEN)), ("ffn_up", (FFN, HIDDEN)), ("ffn_down", (HIDDEN, FFN)),
        ):  # fmt: skip
            shapes[f"blk.{layer}.{part}"] = shape
    draft.tensors = [Tensor.of(f"{name}.weight", rng.standard_normal(shape)) for name, shape in shapes.items()]
    return draft


def gemma3_draft(layers: int = 7) -> Draft:
    """A valid gemma3, sliding window 8."""
    draft = Draft()
    draft.text("general.architecture", "gemma3")
    for key, value in (
        ("embedding_length", HIDDEN), ("attention.head_count", HEADS), ("attention.head_count_kv", 1),
        ("feed_forward_length", FFN), ("block_count", layers), ("context_length", 64), ("attention.key_length", 8),
        ("attention.value_length", 8), ("attention.sliding_window", 8),
    ):  # fmt: skip
        draft.number("gemma3." + key, value)
    draft.real("gemma3.attention.layer_norm_rms_epsilon", 1e-6)
    draft.real("gemma3.rope.freq_base", 1e6)
    rng = np.random.default_rng(2)
    shapes = {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(layers):
        for part, shape in (
            ("attn_norm", (HIDDEN,)), ("attn_q", (32, HIDDEN)), ("attn_k", (8, HIDDEN)), ("attn_v", (8, HIDDEN)),
            ("attn_q_norm", (8,)), ("attn_k_norm", (8,)), ("attn_output", (HIDDEN, 32)), ("post_attention_norm", (HIDDEN,)),
            ("ffn_norm", (HIDDEN,)), ("ffn_gate", (FFN, HIDDEN)), ("ffn_up", (FFN, HIDDEN)), ("ffn_down", (HIDDEN, FFN)),
            ("post_ffw_norm", (HIDDEN,)),
        ):  # fmt: skip
            shapes[f"blk.{layer}.{part}"] = shape
    draft.tensors = [Tensor.of(f"{name}.weight", rng.standard_normal(shape)) for name, shape in shapes.items()]
    return draft


@pytest.fixture
def llama() -> Draft:
    return llama_draft()


@pytest.fixture
def gemma3() -> Draft:
    return gemma3_draft()
