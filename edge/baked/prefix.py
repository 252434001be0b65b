"""A baked prefix, read and checked. Owns: BakedPrefix, what must be true of it for a package and its pages. Needs: header,
geometry. Never: maps or writes."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge.baked.header import BAKE_AGAIN, BAKE_COMMAND, BakedEngine, BakedHeader, read_header, unpack_ints
from edge.contract import EMPTY, FORMAT_SHIFT, PAGE_FORMATS, PAGE_TOKENS, SEAL_TOKENS, VERSION, word_offset
from edge.errors import PackageError
from edge.executors.pool_memory import FileIdentity, PoolFile, file_identity
from edge.pages.geometry import ExtentKind, GroupPages, first_page, page_groups, sealed_end
from edge.presets import PRESETS, PresetName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge.manifest import Manifest
    from edge.progress import Progress
    from edge.spec import ModelSpec

_CHUNK = 4 << 20  # bytes hashed at once


class CutWords(NamedTuple):
    """The pages of a cut."""

    tokens: int
    words: np.ndarray  # int32 [groups, tokens / PAGE_TOKENS, 2]; offsets count from the first extent of the file


@dataclass(frozen=True)
class BakedPrefix:
    """A file whose header is whole. `check_engine` says whether a package's engine can read its pages."""

    path: Path
    header: BakedHeader
    identity: FileIdentity

    @classmethod
    def open(cls, path: Path) -> BakedPrefix:
        """PackageError where there is no such file, or its header is damaged. Extents are not read."""
        try:
            with path.open("rb") as file:
                header = read_header(file, str(path))
                return cls(path, header, file_identity(file.fileno()))
        except OSError as error:
            raise PackageError(f"{path}: cannot be read: {error.strerror}. Check it. {BAKE_AGAIN}") from error

    @cached_property
    def token_ids(self) -> list[int]:
        """Of the text that the header has; the pages hold the first `header.tokens` of them."""
        ids: list[int] = unpack_ints(self.header.token_ids, "token_ids").tolist()
        return ids

    def cuts(self, spec: ModelSpec) -> tuple[CutWords, ...]:
        """The pages of each cut, by length. PackageError where they are not those that a sequence of this model has."""
        groups = page_groups(spec, PRESETS[self.header.engine.preset])  # check_engine knows the preset
        try:
            return tuple(self._cuts(spec, groups))
        except ValueError as error:
            raise PackageError(f"{self.path}: damaged: {error}. {BAKE_AGAIN}") from None

    def cut_bytes(self, spec: ModelSpec) -> list[int]:
        """Of each cut, bytes of the extents that no other cut has. PackageError as `cuts`."""
        groups = page_groups(spec, PRESETS[self.header.engine.preset])
        kinds: list[dict[int, int]] = []  # of each cut: offset of an extent, its bytes
        for cut in self.cuts(spec):
            kinds.append({})
            for group, words in zip(groups, cut.words, strict=True):
                for page, *sides in rest_formats(group, cut.tokens):
                    kinds[-1] |= {
                        word_offset(word): kind.bytes
                        for word, kind in zip(words[page].tolist(), sides, strict=True)
                        if kind is not None
                    }
        holders = Counter(offset for of_cut in kinds for offset in of_cut)
        return [sum(size for offset, size in of_cut.items() if holders[offset] == 1) for of_cut in kinds]

    def _cuts(self, spec: ModelSpec, groups: tuple[GroupPages, ...]) -> Iterator[CutWords]:
        ids, places = self.token_ids, dict[int, ExtentKind]()
        if len(ids) < self.header.tokens:
            raise ValueError(f"{len(ids)} tokens, pages for {self.header.tokens}")
        if wrong := [token for token in ids if not 0 <= token < spec.vocab_size]:
            raise ValueError(f"token id {wrong[0]} is outside the vocabulary of {spec.vocab_size}")
        for cut in self.header.cuts:
            pages = cut.tokens // PAGE_TOKENS
            words = unpack_ints(cut.words, "words", len(groups) * pages * 2).reshape(len(groups), pages, 2)
            for group, of_group in zip(groups, words, strict=True):
                _check_words(group, of_group, cut.tokens, self.header.extent_bytes, places)
            yield CutWords(cut.tokens, words)

    def check_engine(self, manifest: Manifest, preset: PresetName | None) -> None:
        """PackageError where another engine, contract or preset computed the pages than the one of `manifest` with this preset
        (None: whichever)."""
        theirs, ours = self.header.engine, engine_of(manifest, preset or self.header.engine.preset, self.header.engine.isa)
        for word, baked, here, way in (
            ("contract", theirs.contract_version, ours.contract_version, BAKE_AGAIN),
            ("seal borders of", theirs.seal_tokens, ours.seal_tokens, BAKE_AGAIN),
            ("the model", theirs.model, ours.model, f"Use the package that it was baked for. {BAKE_AGAIN}"),
            ("weights", theirs.weights_sha256, ours.weights_sha256, f"The package was built anew. {BAKE_AGAIN}"),
            ("the plan", theirs.plan_sha256, ours.plan_sha256, f"The package was built anew. {BAKE_AGAIN}"),
            ("the preset", theirs.preset, ours.preset, f"Leave --kv-preset out, or bake it again with --kv-preset {preset}"),
        ):
            if baked != here:
                short = (str(baked)[:64], str(here)[:64])
                raise PackageError(f"{self.path}: baked with {word} {short[0]}, this is {short[1]}. {way}")
        if theirs.preset not in manifest.capabilities.presets:
            offered = ", ".join(manifest.capabilities.presets)
            raise PackageError(f"{self.path}: baked with the preset {theirs.preset}, the engine has: {offered}. {BAKE_AGAIN}")

    @property
    def pool_file(self) -> PoolFile:
        """As an executor maps it."""
        return PoolFile(self.path, self.identity, f"bake it again: {BAKE_COMMAND}")

    def check_unchanged(self) -> None:
        """PackageError where another file lies at the path by now, or none, or it was written to."""
        try:
            found = file_identity(self.path)
        except OSError as error:
            raise PackageError(f"{self.path}: {error.strerror}, while it was in use. {BAKE_AGAIN}, and start again") from error
        if (found.device, found.inode) != (self.identity.device, self.identity.inode):
            raise PackageError(f"{self.path}: was replaced while it was in use. Start again, which takes the new one")
        if found.bytes != self.identity.bytes:
            fact = f"has {found.bytes:,} bytes, {self.identity.bytes:,} when it was opened"
            raise PackageError(f"{self.path}: {fact}. {BAKE_AGAIN}, and start again")
        if found != self.identity:
            raise PackageError(f"{self.path}: was written to while it was in use. {BAKE_AGAIN}, and start again")

    def check_uncut(self) -> None:
        """The same of the file that was opened: one that was replaced or removed since is mapped as it was."""
        with suppress(FileNotFoundError):
            found = file_identity(self.path)
            if (found.device, found.inode) == (self.identity.device, self.identity.inode):
                self.check_unchanged()

    def verify(self, progress: Progress) -> None:
        """Reads the extents and compares their SHA-256. PackageError where it differs."""
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                file.seek(self.header.begin)
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    progress.advance(len(chunk))
        except OSError as error:
            raise PackageError(f"{self.path}: cannot be read: {error.strerror}. Check the disk") from error
        if digest.hexdigest() != self.header.extents_sha256:
            fact = f"SHA-256 of its pages is {digest.hexdigest()}, its header says {self.header.extents_sha256}"
            raise PackageError(f"{self.path}: {fact}. {BAKE_AGAIN}")


def engine_of(manifest: Manifest, preset: PresetName, isa: str) -> BakedEngine:
    """What pages that the engine of a CPU package computes now are known by."""
    from edge.package import PLAN, WEIGHTS

    files = manifest.files
    return BakedEngine(manifest.spec.name, files[WEIGHTS].sha256, files[PLAN].sha256, VERSION, SEAL_TOKENS, preset, isa)


def rest_formats(group: GroupPages, tokens: int) -> Iterator[tuple[int, ExtentKind | None, ExtentKind | None]]:
    """Of a sequence at rest with `tokens` tokens, a multiple of PAGE_TOKENS: each page, and its K and V; None: no later query
    sees it."""
    first, sealed = first_page(group.window, tokens), sealed_end(tokens - 1)
    for page in range(tokens // PAGE_TOKENS):
        kind = group.sealed if 1 <= page < sealed else group.open
        yield (page, None, None) if page < first else (page, kind.key, kind.value)


def _check_words(group: GroupPages, words: np.ndarray, tokens: int, extent_bytes: int, places: dict[int, ExtentKind]) -> None:
    for page, *kinds in rest_formats(group, tokens):
        for word, kind in zip(words[page].tolist(), kinds, strict=True):
            if kind is None:
                if word != EMPTY:
                    raise ValueError(f"page {page} of {tokens} tokens is there, behind a window of {group.window}")
            elif word < 0 or word >> FORMAT_SHIFT != PAGE_FORMATS[kind.page_format]:
                raise ValueError(f"page {page} of {tokens} tokens is not {kind.page_format}")
            elif word_offset(word) + kind.bytes > extent_bytes:
                raise ValueError(f"page {page} of {tokens} tokens lies outside of the file")
            elif places.setdefault(word_offset(word), kind) != kind:
                raise ValueError(f"page {page} of {tokens} tokens lies where another kind of page does")
