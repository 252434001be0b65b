"""The two verdicts of a package. Owns: windows of the text, the measuring loop, stored rows. Needs: reference, teacher.

Engine (or the graph that its builder is given) against the dequantised weights, and tier against the source's weights,
position by position over the same text. The reference is ONNX Runtime in float32 on the portable graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from calibration.build_text import NAME as TEXT
from calibration.tiers import Limits as TierLimits
from calibration.tiers import Tier
from edge.comparison import Comparison, best_logits
from edge.contract import SEAL_TOKENS
from edge.errors import BuildError
from edge.executors.native import available_threads
from edge.manifest import ReferencePrompt, Verdict, Verdicts
from edge.progress import Progress
from edge.spec import ModelSpec
from edge.text.tokenizer import Tokenizer
from engines.portable.export import write_portable
from engines.portable.metadata import ExportReport
from engines.reference.ort import OrtReference
from engines.sources.base import Source
from engines.sources.exact import ExactSource
from engines.texts import first_windows

FAR = 2 * SEAL_TOKENS  # where attention has merged blocks, at least; behind a window that is longer, behind the window


Role = Literal["engine", "graph"]  # which verdict of the manifest it is

# What logits that are not finite say, where those of the weights in float32 are.
_OVERFLOWS: dict[Role | Literal["tier"], str] = {
    "engine": "The weights in float32 give finite ones. Build another tier: --tier fp16",
    "graph": "The weights in float32 give finite ones. Build for the CPU, which computes in that: --target cpu",
    "tier": "The source's weights are damaged: fetch the model again",
}


class Tested(Protocol):
    """What is compared with the reference."""

    def rows(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Float32 [n, vocabulary] for consecutive runs of rows of `ids`, in chunks that end at seal borders."""


TestedOpener = Callable[[int], AbstractContextManager[Tested]]  # takes the tokens of the longest window


@dataclass(frozen=True, slots=True)
class Measured:
    """What one pass over the text gives."""

    tested: Comparison
    tier: Comparison
    windows: tuple[tuple[int, ...], ...]
    stored: dict[str, np.ndarray]  # the arrays of reference/logits.npz
    prompts: tuple[ReferencePrompt, ...]

    def verdicts(self, tier: Tier, role: Role) -> Verdicts:
        """All, under the limits of the tier; what was tested is the engine or its graph."""
        weights = _judge("tier", self.tier, tier.source_limits, self.windows)  # first: what overflows here overflows in both
        tested = _judge(role, self.tested, tier.engine_limits, self.windows)
        return Verdicts(
            engine=tested if role == "engine" else None,
            graph=tested if role == "graph" else None,
            tier=weights,
        )


def _measure(
    tested: Tested, tier: OrtReference, source: OrtReference, windows: tuple[tuple[int, ...], ...], progress: Progress
) -> Measured:
    """Runs all three over `windows`. `source` may be `tier` itself where the tier carries every weight as the source has it."""
    tested_result, tier_result = Comparison(), Comparison()
    stored: dict[str, np.ndarray] = {}
    prompts = []
    progress.start("comparing with the reference", sum(len(w) for w in windows), "tokens")
    kept = _stored_chunks(tier.spec, len(windows[0]))
    for number, window in enumerate(windows):
        begin = 0
        references = tier.logits(window, SEAL_TOKENS)
        sources = source.logits(window, SEAL_TOKENS) if source is not tier else None
        for tested_rows, reference_rows in zip(tested.rows(window), references, strict=True):
            end = begin + len(reference_rows)
            following = np.asarray(window[begin + 1 : end + 1], dtype=np.int64)
            tested_result.add(reference_rows, tested_rows, following)
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
    return Measured(tested_result, tier_result, windows, stored, tuple(prompts))


def _stored_chunks(spec: ModelSpec, tokens: int) -> set[int]:
    """Where the chunks begin whose rows are stored: the first, and one behind every window, which reads earlier pages."""
    far = max(FAR, -(-max(spec.group_windows) // SEAL_TOKENS) * SEAL_TOKENS)
    return {0, min(far, (tokens - 1) // SEAL_TOKENS * SEAL_TOKENS)}


def prove(
    tokenizer: Path,
    source: Source,
    tier: Tier,
    exported: ExportReport,
    open_tested: TestedOpener,
    *,
    tokens: int,
    window: int,
    progress: Progress,
) -> Measured:
    """Measures what `open_tested` gives over `tokens` tokens of the text, cut by the tokenizer in the folder `tokenizer`.

    `exported` is the portable ONNX of the tier. The source's own is written beside it where a weight
    differs, without the rounding that reading some formats brings.
    """
    windows = first_windows(Tokenizer.open(tokenizer), tokens, window)
    reference = OrtReference(exported.path, available_threads())
    original = reference
    if exported.rounded:
        path = exported.path.with_name("source.onnx")
        original = OrtReference(write_portable(ExactSource(source), None, path, progress=progress).path, available_threads())
    with open_tested(max(len(piece) for piece in windows)) as tested:
        return _measure(tested, reference, original, windows, progress)


def _judge(of: Role | Literal["tier"], found: Comparison, limits: TierLimits, windows: Sequence[Sequence[int]]) -> Verdict:
    """The verdict of a comparison under the limits of a tier. BuildError where there is no figure to judge."""
    figures = (found.kl_mean, found.top1, found.perplexity_ratio)
    if not all(math.isfinite(figure) for figure in figures):
        raise BuildError(
            f"verdict of the {of}: its logits overflow (KL {found.kl_mean}, perplexity x{found.perplexity_ratio}). "
            f"{_OVERFLOWS[of]}"
        )
    held = limits.of_verdict
    return Verdict(
        kl_mean=found.kl_mean,
        top1=found.top1,
        perplexity_ratio=found.perplexity_ratio,
        tokens=found.rows,
        limits=held,
        passed=not held.broken_by(*figures),
        text=TEXT,
        windows=len(windows),
        window_tokens=max(len(w) for w in windows),
    )
