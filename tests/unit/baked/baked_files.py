"""A baked prefix without an engine. Owns: MODEL, PRESET, IDS, CUTS, write_prefix, packed, words_at."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from edge.baked.header import BORDER, FORMAT_VERSION, BakedCut, BakedEngine, BakedHeader, pack_ints
from edge.baked.prefix import BakedPrefix, rest_formats
from edge.baked.write import PrefixFile
from edge.contract import EMPTY, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS, VERSION, page_word
from edge.pages.geometry import page_groups
from edge.presets import PRESETS, PresetName
from edge.spec import LayerSpec, ModelSpec, RopeSpec

MODEL = ModelSpec(
    name="Tiny",
    architecture="gemma3",
    vocab_size=300,
    hidden_size=64,
    intermediate_size=64,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    layers=(LayerSpec(0, 0), LayerSpec(200, 0)),
    ropes=(RopeSpec(32, 10000.0, ()),),
    context_length=2048,
    norm_epsilon=1e-5,
    activation="silu",
    attention_scale=0.125,
    embedding_scale=1.0,
    qk_norm=False,
    post_norms=False,
    tied_head=True,
)
PRESET: PresetName = "balanced"
GROUPS = page_groups(MODEL, PRESETS[PRESET])
CUTS = (128, 416, 640)  # tokens; windows have been left and pages sealed between them
IDS = list(range(300)) * 2 + list(range(60))
POOL = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)

_ENGINE = BakedEngine("Tiny", "a" * 64, "b" * 64, VERSION, SEAL_TOKENS, PRESET, "avx2")


def words_at(tokens: int) -> np.ndarray:
    """int32 [groups, max_pages, 2]: the table of a sequence at rest, in POOL; a page stands elsewhere when it is sealed."""
    words = np.full((len(GROUPS), 64, 2), EMPTY, np.int32)
    for index, group in enumerate(GROUPS):
        for page, *kinds in rest_formats(group, tokens):
            for side, kind in enumerate(kinds):
                if kind is not None:
                    place = ((index * 64 + page) * 2 + side) * 2 + (kind.page_format == "fp16")
                    words[index, page, side] = page_word(PAGE_FORMATS[kind.page_format], place * 2048 % (POOL.size - 4096))
    return words


def draft(ids: list[int] = IDS, cuts: tuple[int, ...] = CUTS) -> BakedHeader:
    return BakedHeader(
        format_version=FORMAT_VERSION,
        name="manual",
        created_by="edge-zero",
        engine=_ENGINE,
        system="",
        document="a manual",
        text="<user>a manual",
        token_ids=pack_ints(ids),
        cuts=tuple(BakedCut(tokens, "Part 1" if tokens < cuts[-1] else "", "") for tokens in cuts),
        begin=BORDER,
        extent_bytes=BORDER,
        extents_sha256="0" * 64,
    )


def write_prefix(path: Path) -> BakedPrefix:
    with path.open("wb") as file:
        target = PrefixFile(file, draft(), GROUPS)
        for tokens in CUTS:
            target.add(words_at(tokens), POOL)
        target.finish()
    return BakedPrefix.open(path)


def packed(text: bytes) -> bytes:
    """A header of this text, with a hash that is right."""
    return b"EDGEPAGE" + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text


def extent(prefix: BakedPrefix, word: int, size: int) -> bytes:
    """What stands in the file at a word of one of its cuts."""
    with prefix.path.open("rb") as file:
        file.seek(prefix.header.begin + (word & ((1 << 28) - 1)) * 256)
        return file.read(size)


def pages(tokens: int) -> int:
    return tokens // PAGE_TOKENS
