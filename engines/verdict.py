"""The two verdicts of a package. Owns: windows of the text, the measuring loop, stored rows. Needs: reference, teacher.

Engine against its dequantised weights, and tier against the source's weights, position by position over the same text. The
reference is ONNX Runtime in float32 on the portable graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.tiers import Limits as TierLimits
from calibration.tiers import Tier
from edge.comparison import Comparison, best_logits
from edge.contract import SEAL_TOKENS
from edge.errors import BuildError, ConfigError
from edge.executors.native import available_threads
from edge.manifest import ReferencePrompt, Verdict, VerdictLimits, Verdicts
from edge.progress import Progress
from edge.spec import ModelSpec
from edge.teacher import Teacher, open_teacher
from edge.text.tokenizer import Tokenizer
from engines.portable.export import write_portable
from engines.portable.metadata import ExportReport
from engines.reference.ort import OrtReference
from engines.sources.base import Source
from engines.sources.exact import ExactSource

TEXT = "factbook"  # calibration/texts
FAR = 2 * SEAL_TOKENS  # where attention has merged blocks, at least; behind a window that is longer, behind the window


@dataclass(frozen=True, slots=True)
class Measured:
    """What one pass over the text gives."""

    engine: Comparison
    tier: Comparison
    windows: tuple[tuple[int, ...], ...]
    stored: dict[str, np.ndarray]  # the arrays of reference/logits.npz
    prompts: tuple[ReferencePrompt, ...]

    def verdicts(self, tier: Tier) -> Verdicts:
        """Both, under the limits of the tier."""
        return Verdicts(
            engine=_judge(self.engine, tier.engine_limits, self.windows),
            graph=None,
            tier=_judge(self.tier, tier.source_limits, self.windows),
        )


def text_path(name: str) -> Path:
    """A text that ships with the calibration package."""
    import calibration.tiers

    return Path(calibration.tiers.__file__).parent / "texts" / f"{name}.txt"


def text_windows(tokenizer: Tokenizer, tokens: int, window: int) -> tuple[tuple[int, ...], ...]:
    """Consecutive windows of the text, `tokens` ids in all, each framed as the model expects a prompt (BOS in front)."""
    ids = tokenizer.encode(text_path(TEXT).read_text("utf-8"), specials=False)
    if tokens > len(ids):
        raise ConfigError(f"--verify-tokens {tokens}: the text has {len(ids)} tokens for this model. Use at most that")
    ids = ids[:tokens]
    room = window - len(tokenizer.frame([]))  # BOS takes a place
    pieces = [ids[begin : begin + room] for begin in range(0, len(ids), room)]
    return tuple(tuple(tokenizer.frame(piece)) for piece in pieces if len(piece) > 1)


def text_tokens(verdict: Verdict, tokenizer: Tokenizer) -> int:
    """The `tokens` of text_windows that gave this verdict."""
    return verdict.tokens - verdict.windows * len(tokenizer.frame([]))


def _measure(
    teacher: Teacher, tier: OrtReference, source: OrtReference, windows: tuple[tuple[int, ...], ...], progress: Progress
) -> Measured:
    """Runs all three over `windows`. `source` may be `tier` itself where the tier carries every weight as the source has it."""
    engine_result, tier_result = Comparison(), Comparison()
    stored: dict[str, np.ndarray] = {}
    prompts = []
    progress.start("comparing with the reference", sum(len(w) for w in windows), "tokens")
    kept = _stored_chunks(teacher.spec, len(windows[0]))
    for number, window in enumerate(windows):
        begin = 0
        references = tier.logits(window, SEAL_TOKENS)
        sources = source.logits(window, SEAL_TOKENS) if source is not tier else None
        for engine_rows, reference_rows in zip(teacher.rows(window), references, strict=True):
            end = begin + len(reference_rows)
            following = np.asarray(window[begin + 1 : end + 1], dtype=np.int64)
            engine_result.add(reference_rows, engine_rows, following)
            source_rows = reference_rows if sources is None else next(sources)
            tier_result.add(source_rows, reference_rows, following)
            if number == 0 and begin in kept:
                name = f"{TEXT}.{begin}"
                prompts.append(ReferencePrompt(name, tuple(window[:end])))
                keys = (f"{name}.ids", f"{name}.logits", f"{name}.log_sum_exp")
                stored.update(zip(keys, best_logits(reference_rows), strict=True))
            progress.advance(end - begin)
            begin = end
    progress.done()
    return Measured(engine_result, tier_result, windows, stored, tuple(prompts))


def _stored_chunks(spec: ModelSpec, tokens: int) -> set[int]:
    """Where the chunks begin whose rows are stored: the first, and one behind every window, which reads earlier pages."""
    far = max(FAR, -(-max(spec.group_windows) // SEAL_TOKENS) * SEAL_TOKENS)
    return {0, min(far, (tokens - 1) // SEAL_TOKENS * SEAL_TOKENS)}


def prove(
    folder: Path, source: Source, tier: Tier, exported: ExportReport, tokens: int, window: int, progress: Progress
) -> Measured:
    """Measures the package in `folder` (engine and tokenizer are enough) over `tokens` tokens of the text.

    `exported` is the portable ONNX of the tier. The source's own is written beside it where a weight
    differs, without the rounding that reading some formats brings.
    """
    windows = text_windows(Tokenizer.open(folder / "tokenizer"), tokens, window)
    reference = OrtReference(exported.path, available_threads())
    original = reference
    if exported.rounded:
        path = exported.path.with_name("source.onnx")
        original = OrtReference(write_portable(ExactSource(source), None, path, progress=progress).path, available_threads())
    with open_teacher(folder / "engine", source.spec, window) as teacher:
        return _measure(teacher, reference, original, windows, progress)


def _judge(found: Comparison, limits: TierLimits, windows: Sequence[Sequence[int]]) -> Verdict:
    """The verdict of a comparison under the limits of a tier. BuildError where there is no figure to judge."""
    figures = (found.kl_mean, found.top1, found.perplexity_ratio)
    if not all(math.isfinite(figure) for figure in figures):
        raise BuildError(
            f"verdict: the logits overflow (KL {found.kl_mean}, perplexity x{found.perplexity_ratio}). "
            "The source's weights are damaged: fetch the model again"
        )
    held = VerdictLimits(limits.mean_kl, limits.top1, limits.perplexity_ratio)
    return Verdict(
        kl_mean=found.kl_mean,
        top1=found.top1,
        perplexity_ratio=found.perplexity_ratio,
        tokens=found.rows,
        limits=held,
        passed=held.hold(*figures),
        text=TEXT,
        windows=len(windows),
        window_tokens=max(len(w) for w in windows),
    )
