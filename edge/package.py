"""A package on disk: NAME.edge/. Owns: what must be true of its files before anything is loaded. Needs: manifest, devices,
text. Never: writes, for a package may lie in a read-only folder; the machine, which engine_check looks at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge.devices import EngineKind, device_names, load_device
from edge.errors import PackageError
from edge.hashes import hash_file
from edge.manifest import FILE_NAME, Manifest, from_json
from edge.progress import Progress, SilentProgress
from edge.spec import ModelSpec

if TYPE_CHECKING:
    from edge.text.tokenizer import Tokenizer

PLAN = "engine/plan.json"
WEIGHTS = "engine/weights.bin"
TOKENIZER = "tokenizer/tables.bin"
TOKENIZER_CONFIG = "tokenizer/tokenizer_config.json"
CHAT_TEMPLATE = "tokenizer/chat_template.jinja"  # of models that have one

GRAPH_WEIGHTS = "engine/graphs/weights.data"  # of the graphs that TensorRT builds its plan from

_CPU_ENGINE = (PLAN, WEIGHTS)
_TEXT = (TOKENIZER, TOKENIZER_CONFIG)

# Files that are read as they are, bytes that somebody changed included: hashed whenever the package is opened, and so are the
# graphs, which have their weights elsewhere. 1 ms for a vocabulary of 49,152 tokens, 12 ms for one of 262,144. The weights and
# the plans of TensorRT, which have no limit, are hashed by `verify_hashes` only.
_HASHED = (PLAN, TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE)

_LARGEST_MANIFEST = 64 << 20  # bytes; ours are some 100 KiB


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose manifest, file names and sizes are right, and so is the content of all files but the weights and what
    is no part of running it; `verify_hashes` checks those."""

    path: Path  # the folder, absolute
    manifest: Manifest
    forced: bool = False  # used whatever its verdicts say

    @property
    def spec(self) -> ModelSpec:
        return self.manifest.spec

    @classmethod
    def open(cls, path: Path, *, force: bool = False) -> Package:
        """The package in the folder `path`. PackageError where it is damaged, foreign, of another contract, or where a
        verdict failed, unless `force`. Reads the small files only, so it is as quick for 4 GB as for 4 MB."""
        folder = path.expanduser().absolute()
        manifest = _read_manifest(folder)
        package = cls(folder, manifest, force)
        package._check_target()
        package._check_engine_files()
        for name in manifest.files:
            package._check_size(name)
        for name in (*_HASHED, *_graph_paths(manifest)):
            if name in manifest.files:
                package._check_hash(name, SilentProgress())
        if not force:
            package._check_verdicts()
        return package

    @property
    def engine_kind(self) -> EngineKind:
        return "cpu" if self.manifest.engine is None else self.manifest.engine.kind

    def file(self, name: str) -> Path:
        """Where the file `name` of the manifest lies; it is inside the folder."""
        assert name in self.manifest.files, f"{name} is not in the manifest"
        return self.path / name

    def verify_hashes(self, progress: Progress) -> None:
        """Reads every file and compares its SHA-256 with the manifest's. PackageError names the first that differs."""
        progress.start("checking hashes", sum(record.bytes for record in self.manifest.files.values()), "bytes")
        for name in self.manifest.files:
            self._check_size(name)
            self._check_hash(name, progress)
        progress.done()

    def open_tokenizer(self) -> Tokenizer:
        """Text to token ids of this model. PackageError where its vocabulary is not the model's."""
        from edge.text.tokenizer import Tokenizer

        tokenizer = Tokenizer.open(self.file(TOKENIZER).parent)
        if tokenizer.vocab_size != self.spec.vocab_size:
            fact = f"has {tokenizer.vocab_size:,} tokens, the model {self.spec.vocab_size:,}"
            raise self._damaged(self.file(TOKENIZER), fact)
        return tokenizer

    def _check_size(self, name: str) -> None:
        file, expected = self.path / name, self.manifest.files[name].bytes
        try:
            real = file.resolve(strict=True)
            found = real.stat().st_size
        except (OSError, RuntimeError) as error:  # RuntimeError: a cycle of links, before Python 3.13
            raise self._damaged(file, getattr(error, "strerror", None) or "links to itself") from error
        if not real.is_relative_to(self.path.resolve()):
            raise PackageError(f"{file}: leads out of the package, to {real}. Put the file itself there")
        if not real.is_file():
            raise self._damaged(file, "not a file")
        if found != expected:
            raise self._damaged(file, f"{found} bytes, the manifest says {expected}")

    def _check_hash(self, name: str, progress: Progress) -> None:
        file, expected = self.file(name), self.manifest.files[name].sha256
        try:
            digest = hash_file(file, progress)
        except OSError as error:
            raise PackageError(f"{file}: cannot be read: {error.strerror}. Check its permissions") from error
        if digest != expected:
            raise self._damaged(file, f"SHA-256 is {digest}, the manifest says {expected}")

    def _damaged(self, place: Path, fact: str) -> PackageError:
        return PackageError(f"{place}: {fact}. Copy the package again, or rebuild: {self.manifest.build_command}")

    def _check_target(self) -> None:
        target = self.manifest.target
        names = device_names()
        if target not in names:
            raise PackageError(
                f"{self.path}: built for {target!r}, this version knows: {', '.join(names)}. "
                f"Rebuild for one: {self.manifest.build_command_for('TARGET')}"
            )
        profile, engine = load_device(target), self.manifest.engine
        if self.engine_kind not in profile.engines:
            fact = f"holds a {self.engine_kind} engine, {target} runs: {', '.join(profile.engines)}"
            raise self._damaged(self.path / FILE_NAME, fact)
        if engine is not None and profile.gpu is not None and engine.sm != profile.gpu.sm:
            raise self._damaged(self.path / FILE_NAME, f"holds an engine for sm {engine.sm}, {target} has sm {profile.gpu.sm}")

    def _check_engine_files(self) -> None:
        manifest, engine = self.manifest, self.manifest.engine
        parts = _CPU_ENGINE if engine is None else engine.paths
        graphs = _graph_paths(manifest)
        for name in (*parts, *((GRAPH_WEIGHTS,) if graphs else ()), *_TEXT):
            if name not in manifest.files:
                raise self._damaged(self.path / FILE_NAME, f"names no {name}")
        if engine is None:
            return
        if engine.plan is None and None in (graph.path for graph in engine.graphs):
            raise self._damaged(self.path / FILE_NAME, "has no plan, and not all graphs to make it from")
        hashes = {graph.path: graph.sha256 for graph in engine.graphs if graph.path is not None}
        if graphs:
            hashes[GRAPH_WEIGHTS] = engine.weights_sha256
        for name, expected in hashes.items():
            if manifest.files[name].sha256 != expected:
                fact = f"SHA-256 is {manifest.files[name].sha256}, the engine is of {expected}"
                raise self._damaged(self.path / name, fact)

    def _check_verdicts(self) -> None:
        verdicts = self.manifest.verdicts
        proofs = {"engine": verdicts.engine, "tier": verdicts.tier}
        if self.manifest.engine is not None:
            # Such an engine runs on its device only: what is proved where it is built is the graph it is made of.
            proofs = {"graph": verdicts.graph, "tier": verdicts.tier}
            if verdicts.engine is not None:
                proofs["engine"] = verdicts.engine
        for name, verdict in proofs.items():
            if verdict is None:
                raise PackageError(
                    f"{self.path}: has no {name} verdict. Build it again: {self.manifest.build_command}; or use it "
                    "with --ignore-verdict"
                )
            if not verdict.passed:
                raise PackageError(
                    f"{self.path}: the {name} verdict failed ({', '.join(verdict.broken)}). "
                    f"Build another tier, or use it all the same with --ignore-verdict"
                )


def _graph_paths(manifest: Manifest) -> tuple[str, ...]:
    engine = manifest.engine
    return () if engine is None else tuple(graph.path for graph in engine.graphs if graph.path is not None)


def _read_manifest(folder: Path) -> Manifest:
    file = folder / FILE_NAME
    if not folder.is_dir():
        what = "not a package but a file" if folder.exists() else "no such folder"
        raise PackageError(f"{folder}: {what}. Make a package: edge build MODEL")
    try:
        if file.stat().st_size > _LARGEST_MANIFEST:
            raise PackageError(f"{file}: more than {_LARGEST_MANIFEST} bytes. The package is damaged: build or copy it again")
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PackageError(f"{folder}: no {FILE_NAME} in it, so it is not a package. Make one: edge build MODEL") from error
    except OSError as error:
        raise PackageError(f"{file}: {error.strerror}. Check its permissions") from error
    except UnicodeDecodeError as error:
        raise PackageError(f"{file}: not UTF-8. The package is damaged: build or copy it again") from error
    return from_json(text, str(file))
