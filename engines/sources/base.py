"""What a model file offers to an exporter. Owns: Source, SourceTensor, TokenizerParts, open_source. Needs: nothing but numpy.
Never: the layout of a file format (gguf.py has that)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from calibration.schemes import QuantTensor
from edge.errors import SourceError
from edge.spec import ModelSpec

GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """A tokenizer as the source file holds it. Empty strings, tuples and dicts stand for what the file does not say."""

    model: str  # gpt2 (byte-level BPE), llama (SentencePiece), ...
    pre: str  # pre-tokenizer: smollm, default, ...
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]  # 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    merges: tuple[str, ...]  # "left right", best first
    ids: dict[str, int]  # bos, eos, eot, eom, unknown, padding, separator, mask, ...: only those that the file names
    flags: dict[str, bool]  # add_bos, add_space_prefix, remove_extra_whitespaces: only those that the file names
    chat_template: str


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Where a tokenizer's files lie; they are read when a package's are made of them."""

    folder: Path  # of tokenizer.json and what stands beside it
    vocab_size: int  # rows of the embedding


@dataclass(frozen=True, slots=True)
class SourceMetadata:
    """What a file says about itself, apart from the numbers of the model."""

    path: Path
    name: str  # general.name, else the stem of the path
    licence: str  # "" when the file names none
    licence_link: str
    tokenizer: TokenizerParts | TokenizerFiles
    files: tuple[Path, ...]  # that make the model what it is


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """One tensor, or a run of its rows, as read. A vector is [N], a matrix [N outputs, K inputs]."""

    name: str  # canonical: layers.0.attn.q_proj.weight ...
    values: np.ndarray | QuantTensor  # float16 or float32 array, or the file's own quantisation
    source_type: str  # the file's name of its type: F32, Q4_K ...
    rounding: str  # "" when `values` holds exactly what the file does; else what was rounded
    relative_error: float  # largest |rounded - exact| / |exact| over the rounded scales and minima; 0.0 when exact

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def to_float32(self) -> np.ndarray:
        """The values as float32, quantised ones dequantised."""
        if isinstance(self.values, QuantTensor):
            return self.values.dequantise()
        return self.values.astype(np.float32)


class Source(Protocol):
    """An opened model file. Tensors are read one at a time from the mapped file; nothing is kept."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def metadata(self) -> SourceMetadata: ...

    def tensor_names(self) -> tuple[str, ...]:
        """Canonical names in model order: embed, layers ascending, final_norm, head (absent when tied)."""

    def shape(self, name: str) -> tuple[int, ...]:
        """[N] or [N outputs, K inputs]; reads no values."""

    def read(self, name: str) -> SourceTensor:
        """The whole tensor."""

    def read_rows(self, name: str, begin: int, end: int) -> SourceTensor:
        """Rows [begin, end) of a matrix: what read() gives, a piece at a time."""

    def read_exact(self, name: str, begin: int, end: int) -> np.ndarray:
        """Rows [begin, end) as float32 exactly as the file means them, for verdicts against the source."""


def open_source(path: Path, context: int | None = None) -> Source:
    """Opens the model file or folder at `path`. Raises SourceError for what is not a model that we can read.

    `context`: positions that will be used at most, None for all that the model has. It decides between the two sets of
    frequencies of a model with longrope (Phi-3), and nothing else.
    """
    if path.is_dir():
        from engines.sources.hf_folder import open_folder

        return open_folder(path, context)
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror}). Check the path and its permissions") from error
    if magic == GGUF_MAGIC:
        from engines.sources.gguf import open_gguf

        return open_gguf(path, context)
    if path.suffix == ".safetensors":
        raise SourceError(f"{path}: holds weights alone. Give its folder, which has config.json and tokenizer.json too")
    raise SourceError(f"{path}: starts with {magic!r}, not with {GGUF_MAGIC!r}. Give a GGUF file, or fetch it again")
