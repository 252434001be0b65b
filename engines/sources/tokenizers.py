"""A package's tokenizer from a source's. Owns: which kind of source writes it how. Needs: both kinds. Never: what they read."""

from __future__ import annotations

from pathlib import Path

from edge.text.tokenizer_config import TokenizerConfig
from engines.sources.base import SourceMetadata, TokenizerFiles
from engines.sources.gguf_tokenizer import write_tokenizer
from engines.sources.hf_tokenizer import write_folder_tokenizer


def write_source_tokenizer(metadata: SourceMetadata, folder: Path) -> TokenizerConfig:
    """Writes the files of a package's tokenizer folder into `folder`, which exists. SourceError where a part is missing or is
    not read."""
    if isinstance(metadata.tokenizer, TokenizerFiles):
        return write_folder_tokenizer(metadata.tokenizer, folder)
    return write_tokenizer(metadata.tokenizer, folder, str(metadata.path))
