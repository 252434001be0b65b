"""GGUF files: header, keys, tensor entries, values of every block format. Owns: small valid files with the places of their
numbers. Needs: mutations. Never: the reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mutations import INVALID_TEXT, Layout, mutate_bytes, mutate_spots

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
BLOCKS = {0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144),
          13: (256, 176), 14: (256, 210)}  # fmt: skip
# type code -> weights, bytes of a block: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K
TOKENS = ("<s>", "</s>", "<unk>", "a", "b", "ab", " ", "\u2581", "c", "abc", "\u00e9", "d")
WIDTH, HEAD, MIDDLE = 256, 2, 4  # a super block is 256 inputs wide
ALIGNMENT = 32
ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3", "smollm3", "gemma2", "gemma3")


@dataclass(slots=True)
class _Key:
    name: bytes
    type_code: int
    payload: Layout


@dataclass(slots=True)
class _Tensor:
    name: bytes
    dims: tuple[int, ...]  # fastest first
    type_code: int


class GgufTarget:
    """Opens a file, reads every tensor that it has."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "model.gguf"
        self._seeds = [model_file(Random(seed), architecture) for seed in range(2) for architecture in ARCHITECTURES]

    def make(self, random: Random) -> bytes:
        keys, tensors = _model(random.choice(ARCHITECTURES))
        if random.random() < 0.6:
            _damage(random, keys, tensors)
        layout = _written(random, keys, tensors)
        data = layout.data()
        if random.random() < 0.5:
            data = mutate_spots(random, data, layout.spots)
        return mutate_bytes(random, data, self._seeds) if random.random() < 0.3 else data

    def run(self, data: bytes) -> None:
        from engines.sources.base import open_source

        self._path.write_bytes(data)
        source = open_source(self._path)
        for name in source.tensor_names():
            source.read(name).to_float32()
            source.read_exact(name, 0, 1)


def model_file(random: Random, architecture: str) -> bytes:
    """A file that is right."""
    return _written(random, *_model(architecture)).data()


def _model(architecture: str) -> tuple[list[_Key], list[_Tensor]]:
    keys = [_text("general.architecture", architecture), _text("general.name", "Fuzz"), _number("general.alignment", ALIGNMENT)]
    for name, value in (
        ("embedding_length", WIDTH), ("attention.head_count", 2), ("attention.head_count_kv", 1),
        ("feed_forward_length", MIDDLE), ("block_count", 2), ("context_length", 64), ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
    ):  # fmt: skip
        keys.append(_number(f"{architecture}.{name}", value))
    if architecture != "smollm3":  # whose files have none; of Qwen's only one that holds the whole context is taken
        keys.append(_number(f"{architecture}.attention.sliding_window", 64 if architecture.startswith("qwen") else 8))
    keys.append(_real(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5))
    keys.append(_real(f"{architecture}.rope.freq_base", 10000.0))
    keys.append(_text("tokenizer.ggml.model", "llama"))
    keys.append(_array("tokenizer.ggml.tokens", STRING, [_packed(token.encode()) for token in TOKENS]))
    keys.append(_array("tokenizer.ggml.scores", FLOAT32, [struct.pack("<f", -i) for i in range(len(TOKENS))]))
    keys.append(_array("tokenizer.ggml.token_type", UINT32, [struct.pack("<I", 1)] * len(TOKENS)))
    keys.append(_array("tokenizer.ggml.merges", STRING, [_packed(b"a b"), _packed(b"ab c")]))
    keys.append(_number("tokenizer.ggml.eos_token_id", 1))
    keys.append(_Key(b"tokenizer.ggml.add_bos_token", BOOL, _raw(b"\1")))
    keys.append(_text("tokenizer.chat_template", "{{ messages[0].content }}"))
    shapes = [("token_embd.weight", (WIDTH, len(TOKENS))), ("output_norm.weight", (WIDTH,))]
    shapes += [(f"blk.{index}.{name}", dims) for index in range(2) for name, dims in _layer(architecture)]
    return keys, [_Tensor(name.encode(), dims, 0) for name, dims in shapes]


def _layer(architecture: str) -> list[tuple[str, tuple[int, ...]]]:
    """Tensors of a layer: (name, dims)."""
    weights: dict[str, tuple[int, ...]] = {
        "attn_norm": (WIDTH,), "attn_output": (2 * HEAD, WIDTH), "ffn_norm": (WIDTH,), "ffn_down": (MIDDLE, WIDTH),
    }  # fmt: skip
    if architecture == "phi3":
        weights |= {"attn_qkv": (WIDTH, 4 * HEAD), "ffn_up": (WIDTH, 2 * MIDDLE)}
    else:
        weights |= {"attn_q": (WIDTH, 2 * HEAD), "attn_k": (WIDTH, HEAD), "attn_v": (WIDTH, HEAD),
                    "ffn_gate": (WIDTH, MIDDLE), "ffn_up": (WIDTH, MIDDLE)}  # fmt: skip
    if architecture in ("qwen3", "gemma3"):
        weights |= {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
    if architecture.startswith("gemma"):
        weights |= {"post_attention_norm": (WIDTH,), "post_ffw_norm": (WIDTH,)}
    tensors = [(f"{name}.weight", dims) for name, dims in weights.items()]
    if architecture == "qwen2":
        tensors += [("attn_q.bias", (2 * HEAD,)), ("attn_k.bias", (HEAD,)), ("attn_v.bias", (HEAD,))]
    return tensors


def _damage(random: Random, keys: list[_Key], tensors: list[_Tensor]) -> None:
    """Keys and entries that are whole, but wrong together."""
    for _ in range(random.randint(1, 3)):
        key, other, tensor = random.choice(keys), random.choice(keys), random.choice(tensors)
        match random.randrange(10):
            case 0 if len(keys) > 1:
                keys.remove(key)
            case 1:
                keys.append(key)
            case 2:
                key.type_code, key.payload = other.type_code, other.payload
            case 3:
                key.name = random.choice((other.name, b"llama.unknown", b"", b"k" * 300, *INVALID_TEXT))
            case 4:
                key.type_code = random.randrange(14)
            case 5:
                items = [_packed(random.choice((b"x", b"", b"y" * 70_000, *INVALID_TEXT))) for _ in range(random.randrange(20))]
                key.type_code, key.payload = ARRAY, _array("", STRING, items).payload
            case 6 if len(tensors) > 1:
                tensors.remove(tensor)
            case 7:
                tensors.append(tensor)
            case 8:
                tensor.name = random.choice((random.choice(tensors).name, b"output.weight", b"rope_freqs.weight", b"x"))
            case _:
                tensor.dims = random.choice((tensor.dims[::-1], (), (*tensor.dims, 1), (0, 4), random.choice(tensors).dims))


def _written(random: Random, keys: Sequence[_Key], tensors: Sequence[_Tensor]) -> Layout:
    """The file, each matrix in a type that divides its rows, its values random."""
    layout, body = Layout(), bytearray()
    layout.raw(b"GGUF")
    for width, value in ((4, 3), (8, len(tensors)), (8, len(keys))):
        layout.number(width, value)
    for key in keys:
        layout.text(key.name)
        layout.number(4, key.type_code)
        layout.append(key.payload)
    for tensor in tensors:
        matrix = len(tensor.dims) == 2
        fitting = [code for code, (weights, _) in BLOCKS.items() if matrix and tensor.dims[0] % weights == 0]
        code = random.choice(fitting) if fitting else tensor.type_code
        body += bytes(-len(body) % ALIGNMENT)
        layout.text(tensor.name)
        layout.number(4, len(tensor.dims))
        for size in tensor.dims:
            layout.number(8, size)
        layout.number(4, code)
        layout.number(8, len(body))
        body += _values(random, tensor.dims, code)
    layout.align(ALIGNMENT)
    layout.raw(bytes(body))
    return layout


def _values(random: Random, dims: tuple[int, ...], code: int) -> bytes:
    """Blocks whose 16-bit words are small positive fp16 numbers: good scales, and anything as quants."""
    weights, block = BLOCKS[code]
    count = 1
    for size in dims:
        count *= size
    word = random.choice((b"\x00\x2c", b"\x01\x28", b"\xff\x2f"))
    return (word * (count // weights * block // 2 + 1))[: count // weights * block]


def _raw(data: bytes) -> Layout:
    layout = Layout()
    layout.raw(data)
    return layout


def _packed(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _text(name: str, value: str) -> _Key:
    layout = Layout()
    layout.text(value.encode())
    return _Key(name.encode(), STRING, layout)


def _number(name: str, value: int) -> _Key:
    layout = Layout()
    layout.number(4, value)
    return _Key(name.encode(), UINT32, layout)


def _real(name: str, value: float) -> _Key:
    return _Key(name.encode(), FLOAT32, _raw(struct.pack("<f", value)))


def _array(name: str, type_code: int, items: Sequence[bytes]) -> _Key:
    layout = Layout()
    layout.number(4, type_code)
    layout.number(8, len(items))
    layout.raw(b"".join(items))
    return _Key(name.encode(), ARRAY, layout)
