"""The readers under fuzz, by name. Owns: the registry. Needs: one file a kind of target. Never: how they are run."""

from __future__ import annotations

from pathlib import Path

from reader import Reader, Target

from edge.errors import ConfigError, PackageError, RequestError, SourceError


def _gguf(folder: Path) -> Target:
    from target_gguf import GgufTarget

    return GgufTarget(folder)


def _folder(folder: Path) -> Target:
    from target_folder import FolderTarget

    return FolderTarget(folder)


def _vocabulary(folder: Path) -> Target:
    from target_vocabulary import VocabularyTarget

    return VocabularyTarget(folder)


def _onnx(folder: Path) -> Target:
    from target_onnx import OnnxTarget

    return OnnxTarget(folder)


def _manifest(folder: Path) -> Target:
    from target_manifest import ManifestTarget

    return ManifestTarget(folder)


def _plan(folder: Path) -> Target:
    from target_plan import PlanTarget

    return PlanTarget(folder)


def _template(folder: Path) -> Target:
    from target_template import TemplateTarget

    return TemplateTarget(folder)


def _chat(folder: Path) -> Target:
    from target_template import ChatTarget

    return ChatTarget(folder)


def _tables(folder: Path) -> Target:
    from target_tokenizer import TablesTarget

    return TablesTarget(folder)


def _text(folder: Path) -> Target:
    from target_tokenizer import TextTarget

    return TextTarget(folder)


def _faulty(folder: Path) -> Target:
    from target_faulty import FaultyTarget

    return FaultyTarget(folder)


def _yaml(folder: Path) -> Target:
    from target_yaml import YamlTarget

    return YamlTarget(folder)


READERS = {
    reader.name: reader
    for reader in (
        Reader("gguf", _gguf, (SourceError,), share=3, needs_build=True),
        Reader("folder", _folder, (SourceError,), share=4),
        Reader("vocabulary", _vocabulary, (SourceError,), share=1),
        Reader("onnx", _onnx, (SourceError,), share=2, needs_build=True),
        Reader("manifest", _manifest, (PackageError,), share=4),
        Reader("plan", _plan, (PackageError,), share=3, needs_build=True),
        # A template may take ten seconds by its own limits; what is right takes milliseconds.
        Reader("template", _template, (RequestError,), share=2, cpu_seconds=12),
        Reader("chat", _chat, (RequestError,), share=3, cpu_seconds=12),
        Reader("tables", _tables, (PackageError, RequestError), share=3),
        Reader("text", _text, (RequestError,), share=4),
        Reader("yaml", _yaml, (ConfigError,), share=1),
    )
}

# With one that only the tests of the driver run.
ALL = {**READERS, "faulty": Reader("faulty", _faulty, (SourceError,), share=1, cpu_seconds=1, megabytes=32)}
