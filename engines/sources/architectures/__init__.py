"""Model architectures that can be read. Owns: the registry. Needs: one file an architecture. Never: file formats."""

from __future__ import annotations

from collections.abc import Callable

from edge.spec import ModelSpec
from engines.sources.architectures.gemma3 import read_gemma3
from engines.sources.architectures.layout import Dimensions
from engines.sources.architectures.llama import read_llama
from engines.sources.keys import Keys

READERS: dict[str, Callable[[Keys, Dimensions], ModelSpec]] = {
    "llama": read_llama,
    "gemma3": read_gemma3,
}

# Converters interleave the two halves of each q and k head for these; we read them back into half-rotation order.
INTERLEAVED_ROTARY = frozenset({"llama"})
