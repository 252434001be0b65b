"""What a package says about itself: manifest.json. Owns: its keys, its limits of sense. Needs: jsons, hashes.
Never: other files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge import contract
from edge.engine_record import EngineRecord
from edge.errors import PackageError
from edge.hashes import check_sha256
from edge.jsons import JsonMismatch, parse_json, read_value, write_json
from edge.presets import presets_for
from edge.spec import MAX_CONTEXT, ModelSpec, check_range

FORMAT_VERSION = 4
FILE_NAME = "manifest.json"
REFERENCE_PROMPTS = "reference/logits.npz"

_LONGEST_NAME = 255  # characters of a file's or a tier's name


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest shapes that the engine takes."""

    max_context: int  # tokens of one sequence
    max_step_tokens: int  # tokens of one step, all sequences
    max_sequences: int  # sequences of one step
    max_logit_rows: int  # rows of logits of one step

    def __post_init__(self) -> None:
        check_range("max_context", self.max_context, 1, MAX_CONTEXT)
        check_range("max_step_tokens", self.max_step_tokens, 1, 1 << 20)
        check_range("max_sequences", self.max_sequences, 1, 1 << 16)
        check_range("max_logit_rows", self.max_logit_rows, 1, 1 << 20)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What may be asked of the engine; anything else is refused, never quietly replaced."""

    presets: tuple[str, ...]  # KV precision: exact ...
    prefixes: bool  # shared and baked prefix pages
    batch_invariant: bool  # equal bits alone, batched, chunked

    def __post_init__(self) -> None:
        if not self.presets or not all(_is_word(preset) for preset in self.presets):
            raise ValueError("presets: not one name at least")


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The model file that the package was built from."""

    name: str  # what `edge build` takes: a catalog name or a file name
    sha256: str
    licence: str  # SPDX name or the licence's own; "unknown" where the source does not say

    def __post_init__(self) -> None:
        check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class FileRecord:
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_range("bytes", self.bytes, 0, 1 << 48)
        check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class TensorReport:
    """How one tensor came into the engine."""

    name: str
    source_kind: str  # Q4_1, Q6_K, F16 ...
    kind: str  # int4, int8, fp16, fp32
    bytes: int
    rounding_error: float  # root mean square against the source's values, relative to theirs; 0.0: none
    scale_error: float  # largest relative error of the source's scales and minima, rounded to fp16; 0.0: none

    def __post_init__(self) -> None:
        check_range("bytes", self.bytes, 0, 1 << 48)
        check_range("rounding_error", self.rounding_error, 0.0, 1e9)
        check_range("scale_error", self.scale_error, 0.0, 1e9)

    @property
    def is_exact(self) -> bool:
        """Whether every weight has the source's value."""
        return self.rounding_error == 0.0 and self.scale_error == 0.0


@dataclass(frozen=True, slots=True)
class VerdictLimits:
    kl_mean: float  # at most
    top1: float  # at least
    perplexity_ratio: float  # at most

    def broken_by(self, kl_mean: float, top1: float, perplexity_ratio: float) -> tuple[str, ...]:
        """The figures that do not keep these limits, each beside its own; none where all hold."""
        ratio = f"perplexity x{perplexity_ratio:.4g} of at most x{self.perplexity_ratio:.4g}"
        measures = (
            (kl_mean <= self.kl_mean, f"KL {kl_mean:.4g} of at most {self.kl_mean:.4g}"),
            (top1 >= self.top1, f"top-1 {top1:.4g} of at least {self.top1:.4g}"),
            (perplexity_ratio <= self.perplexity_ratio, ratio),
        )
        return tuple(text for holds, text in measures if not holds)


def outcome(broken: Sequence[str]) -> str:
    """Of a verdict, from its figures beyond their limits."""
    return f"FAILED: {', '.join(broken)}" if broken else "passed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One comparison of next-token distributions over a text, position by position."""

    kl_mean: float  # nats, reference against tested
    top1: float  # share of positions with the same best token, 0 to 1
    perplexity_ratio: float  # tested / reference
    tokens: int  # positions compared
    limits: VerdictLimits
    passed: bool
    text: str  # name of the text
    windows: int  # the text was cut into so many windows ...
    window_tokens: int  # ... of so many tokens

    def __post_init__(self) -> None:
        check_range("kl_mean", self.kl_mean, -1e-3, 1e6)  # rounding can take the mean of near-equal rows below 0
        check_range("top1", self.top1, 0.0, 1.0)
        check_range("perplexity_ratio", self.perplexity_ratio, 0.0, 1e30)
        check_range("tokens", self.tokens, 0, 1 << 40)
        if self.passed != (not self.broken):
            raise ValueError(f"passed: {self.passed} is not what the figures and their limits say")

    @property
    def broken(self) -> tuple[str, ...]:
        """The figures beyond their limits, in words."""
        return self.limits.broken_by(self.kl_mean, self.top1, self.perplexity_ratio)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The engine against its own dequantised weights, and the tier against the source's weights. None: not measured.

    An engine that cannot run where it is built has the verdict `graph` instead: the very graph that the builder was given,
    in ONNX Runtime, against the same reference.
    """

    engine: Verdict | None
    graph: Verdict | None
    tier: Verdict | None


@dataclass(frozen=True, slots=True)
class ReferencePrompt:
    """One prompt whose reference logits are stored (best 64 and log-sum-exp of each row)."""

    name: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The packager writes, everyone reads."""

    format_version: int
    contract_version: int
    spec: ModelSpec
    tier: str
    requantised: bool  # built with --requantise
    target: str
    context: int | None  # built with --ctx-size, which chooses the frequencies of a model with long-rope; None: without
    seal_tokens: int
    limits: Limits
    capabilities: Capabilities
    libraries: dict[str, str]  # name: version of what built the engine
    source: SourceRecord
    files: dict[str, FileRecord]  # path inside the package, with "/", all files but the manifest
    bits_per_weight: float
    tensors: tuple[TensorReport, ...]
    verdicts: Verdicts
    preset_verdicts: dict[str, Verdict]  # by preset, against `exact` on the same engine; those that were measured
    reference: tuple[ReferencePrompt, ...]
    engine: EngineRecord | None  # None: a CPU plan, which runs on any CPU

    @property
    def build_command(self) -> str:
        """The command that makes this package again."""
        command = self.build_command_for(self.target)
        if self.engine is None:
            return command if self.context is None else f"{command} --ctx-size {self.context}"
        return f"{command} --engine {self.engine.kind} --ctx-size {self.limits.max_context}"

    def build_command_for(self, target: str, tier: str | None = None) -> str:
        """The command that makes a package of the same model for another target, in the same tier or another."""
        return _command(self.source.name, tier or self.tier, target, self.requantised)

    def __post_init__(self) -> None:
        self.spec.check()
        if self.context is not None:
            check_range("context", self.context, 1, MAX_CONTEXT)
        check_range("bits_per_weight", self.bits_per_weight, 0.0, 64.0)
        for name in self.files:
            check_file_name(name)
        known = presets_for(self.spec.head_dim)
        if wrong := [preset for preset in self.capabilities.presets if preset not in known]:
            raise ValueError(
                f"presets: {', '.join(wrong)} are not for heads of {self.spec.head_dim}, which have {', '.join(known)}"
            )
        for prompt in self.reference:
            if any(not 0 <= token < self.spec.vocab_size for token in prompt.token_ids):
                raise ValueError(f"reference: prompt {prompt.name!r} has token ids outside the vocabulary")


def to_json(manifest: Manifest) -> str:
    """The text of manifest.json."""
    return write_json(manifest)


def from_json(text: str, place: str) -> Manifest:
    """`text` of the manifest at `place` (for messages). PackageError where a key is unknown, missing, of a wrong type or
    absurd, and where the package is of another contract, which is looked at first: its keys may differ then."""
    plain: Any = None
    try:
        plain = parse_json(text)
        _check_versions(plain, place)
        manifest: Manifest = read_value(plain, Manifest, "")
        return manifest
    except ValueError as error:  # JsonMismatch is one
        fact, mend = " ".join(str(error).splitlines()), f"Copy it again, or rebuild: {_rebuild_command(plain)}"
        raise PackageError(f"{place}: {fact}. The package is damaged. {mend}") from error


def check_file_name(name: str) -> None:
    """ValueError where `name` could lead out of a folder, or names no file in it."""
    parts = name.split("/")
    if not name or "\\" in name or "\0" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"files: {name!r} is not a path inside the package")


def _check_versions(plain: Any, place: str) -> None:
    if not isinstance(plain, dict):
        raise JsonMismatch("expected keys and values")
    for key, word, ours in (
        ("format_version", "format", FORMAT_VERSION),
        ("contract_version", "contract", contract.VERSION),
        ("seal_tokens", "seal borders of", contract.SEAL_TOKENS),
    ):
        theirs = read_value(plain.get(key), int, key)
        if theirs != ours:
            raise PackageError(f"{place}: {word} {theirs}, this runtime has {ours}. Rebuild: {_rebuild_command(plain)}")


def _rebuild_command(plain: Any) -> str:
    """The command that makes a package again whose manifest, as plain values, cannot be read as one."""
    keys = plain if isinstance(plain, dict) else {}
    source = keys.get("source")
    model = source.get("name") if isinstance(source, dict) else None
    return _command(model, keys.get("tier"), keys.get("target"), keys.get("requantised") is True)


def _command(model: Any, tier: Any, target: Any, requantised: bool) -> str:
    """A word that the manifest does not tell, or that would break the line of a message, is left to the reader."""
    given = (("MODEL", model), ("TIER", tier), ("TARGET", target))
    words = [shlex.quote(word) if _is_word(word) else name for name, word in given]
    return f"edge build {words[0]} --tier {words[1]} --target {words[2]}" + (" --requantise" if requantised else "")


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST_NAME
