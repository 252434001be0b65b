"""Whether a model bears int8 activations with static scales. Owns: the scales, the measuring, the decision. Needs: ONNX
Runtime. Never: graphs.

TensorRT multiplies int8 by int8 only where the scale of the activations is a constant, one for all tokens. Language models have
a few activations hundreds of times larger than the rest, which such a scale must either clip or let set the step of all others:
SmolLM2-135M loses half of its best tokens (KL 0.85). So the graph is measured, and kept where it holds the limits of the tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.tiers import Limits
from edge.comparison import Comparison
from edge.executors.native import available_threads
from edge.progress import Progress
from edge.spec import ModelSpec
from edge.text.tokenizer import Tokenizer
from engines.reference.ort import OrtGraph, OrtReference
from engines.tensorrt.observe import input_scales
from engines.texts import first_windows, last_windows

OBSERVED_TOKENS = 2048  # of the end of the text
MEASURED_TOKENS = 512  # of its beginning


@dataclass(frozen=True, slots=True)
class Int8Inputs:
    """What was measured of a graph with int8 activations."""

    kl_mean: float
    top1: float
    perplexity_ratio: float
    holds: bool  # the limits of the tier

    @property
    def note(self) -> str:
        """For the manifest."""
        figures = f"KL {self.kl_mean:.3g}, top-1 {100 * self.top1:.1f} %, perplexity x{self.perplexity_ratio:.3f}"
        kept = "kept, to be tried first" if self.holds else "left out: beyond the limits of the tier"
        return f"graphs with int8 activations and static scales ({figures} over {MEASURED_TOKENS} tokens) are {kept}"


def observed_scales(portable: Path, tokenizer: Path, window: int, progress: Progress) -> Mapping[str, float]:
    """The scale of each value that int8 matrices read, over the end of the text."""
    windows = last_windows(Tokenizer.open(tokenizer), OBSERVED_TOKENS, window)
    return input_scales(portable, windows, available_threads(), progress)


def measure_int8_inputs(
    portable: Path, graph: Path, spec: ModelSpec, tokenizer: Path, window: int, limits: Limits, progress: Progress
) -> Int8Inputs:
    """Compares the lowered `graph` with the float32 portable ONNX, over the beginning of the text."""
    threads, found = available_threads(), Comparison()
    reference, tested = OrtReference(portable, threads), OrtGraph.open(graph, spec, threads)
    windows = first_windows(Tokenizer.open(tokenizer), MEASURED_TOKENS, window)
    progress.start("measuring int8 activations", sum(len(ids) for ids in windows), "tokens")
    for ids in windows:
        begin = 0
        for right, ours in zip(reference.rows(ids), tested.rows(ids), strict=True):
            end = begin + len(right)
            found.add(right, ours, np.asarray(ids[begin + 1 : end + 1], dtype=np.int64))
            progress.advance(end - begin)
            begin = end
    progress.done()
    held = limits.of_verdict
    figures = (found.kl_mean, found.top1, found.perplexity_ratio)
    return Int8Inputs(*figures, holds=bool(np.isfinite(figures).all()) and not held.broken_by(*figures))
