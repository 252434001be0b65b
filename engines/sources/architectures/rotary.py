"""Rotary positions of a file. Owns: the kinds of scaling and where each kind of file says them. Needs: keys. Never: graphs.

    linear   every frequency is divided by a factor
    llama3   long waves are divided by a factor, short ones are kept, those between are mixed (Llama 3.1; in a GGUF a vector)
    longrope one factor for each frequency, of two sets: short up to the original context, long beyond; q and k also grow by
             sqrt(1 + ln(context / original) / ln(original)) (LongRoPE, arXiv 2402.13753; Phi-3)

Which set of longrope holds is decided by the context that a package is built for: keys that are cached turned by one set cannot
be read by queries that are turned by the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from edge.spec import RopeSpec
from engines.sources.architectures.dimensions import Dimensions, GgufFile
from engines.sources.keys import Keys

ROPE_FREQS = "rope_freqs.weight"  # of a GGUF: divisors of frequencies
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
DEFAULT_BASE = 10_000.0  # of the RoFormer and Llama papers
NO_ROPE = RopeSpec(dim=0, base=1.0, divisors=())  # a layer that does not see positions

_STEP = "Use another model"


@dataclass(frozen=True, slots=True)
class LongRope:
    """Both sets of longrope and what chooses between them."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int  # positions that the short set is good for
    magnitude: float  # factor on what turns, of q and of k


def read_gguf_rope(file: GgufFile, base: float = DEFAULT_BASE) -> RopeSpec:
    """The rope of a GGUF whose heads turn whole: plain, linear, or with a vector of divisors."""
    keys, dims = file.keys, file.dims
    prefix = dims.architecture + "."
    turned = keys.count_or(prefix + "rope.dimension_count", dims.head_dim)
    if turned != dims.head_dim:
        raise keys.error(
            prefix + "rope.dimension_count", f"is {turned}, heads are {dims.head_dim} wide; only equal ones work", _STEP
        )
    refuse_vectors(file, SHORT_FACTORS, LONG_FACTORS)
    rope = RopeSpec(dims.head_dim, keys.real_or(prefix + "rope.freq_base", base), file.vectors.get(ROPE_FREQS, ()))
    check_divisors(keys, ROPE_FREQS, rope.divisors, turned)
    kind = keys.text_or(prefix + "rope.scaling.type", "none")
    factor = keys.real_or(prefix + "rope.scaling.factor", 1.0) * keys.real_or(prefix + "rope.scale_linear", 1.0)
    if factor == 1.0:
        return rope
    if kind not in ("none", "linear"):
        raise keys.error(prefix + "rope.scaling.type", f"scaled rotary positions of kind {kind} cannot be built yet", _STEP)
    return linear(rope, factor)


def read_config_rope(
    keys: Keys,
    dims: Dimensions,
    prefix: str = "",
    base: float = DEFAULT_BASE,
    part: str = "",
    base_key: str = "rope_theta",
) -> RopeSpec:
    """The rope of a config.json whose heads turn whole. `part`: full_attention or sliding_attention where each has its own.
    `base`: where the file says none, neither with what scales nor outside as `base_key`.

    Files of transformers 5 have everything in rope_parameters, older ones rope_scaling, and rope_theta beside it.
    """
    inside = scaling_section(keys, prefix, part)
    outside = keys.real_or(prefix + base_key, base)
    kind = keys.text_or(inside + "rope_type", keys.text_or(inside + "type", "default"))
    rope = RopeSpec(dims.head_dim, keys.real_or(inside + "rope_theta", outside), ())
    partial = keys.real_or(inside + "partial_rotary_factor", keys.real_or(prefix + "partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise keys.error(inside + "partial_rotary_factor", f"is {partial:g}; heads of {dims.architecture} turn whole", _STEP)
    if kind == "default":
        return rope
    if kind == "linear":
        return linear(rope, keys.real(inside + "factor"))
    if kind == "llama3":
        original = keys.count_or(inside + "original_max_position_embeddings", dims.context_length)
        waves = keys.real(inside + "low_freq_factor"), keys.real(inside + "high_freq_factor")
        if not waves[0] < waves[1]:
            raise keys.error(inside + "low_freq_factor", f"is {waves[0]:g}, not below high_freq_factor {waves[1]:g}")
        return llama3(rope, keys.real(inside + "factor"), *waves, original)
    raise keys.error(inside + "rope_type", f"scaled rotary positions of kind {kind} cannot be built yet", _STEP)


def scaling_section(keys: Keys, prefix: str, part: str = "") -> str:
    """The prefix of the keys that say how rotary is scaled."""
    parameters = prefix + "rope_parameters."
    if part and keys.has_any(f"{parameters}{part}."):
        return f"{parameters}{part}."
    return parameters if keys.has_any(parameters) else prefix + "rope_scaling."


def linear(rope: RopeSpec, factor: float) -> RopeSpec:
    """Positions divided by `factor`, beside what divides the frequencies already."""
    return replace(rope, divisors=tuple(factor * each for each in rope.divisors or (1.0,) * (rope.dim // 2)))


def llama3(rope: RopeSpec, factor: float, low: float, high: float, original: int) -> RopeSpec:
    """Waves longer than original / low are divided by `factor`, shorter than original / high kept, others mixed between."""
    divisors = []
    for pair in range(rope.dim // 2):
        turns = original * rope.base ** (-2 * pair / rope.dim) / (2 * math.pi)  # over the original context
        share = min(max((turns - low) / (high - low), 0.0), 1.0)  # of the frequency as it was
        divisors.append(1 / (share + (1 - share) / factor))
    return replace(rope, divisors=tuple(divisors))


def magnitude(stretch: float, original: int) -> float:
    """The factor on q and on k that goes with a context of `stretch` times the original one."""
    return math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0


def refuse_vectors(file: GgufFile, *names: str) -> None:
    """SourceError where the file has factors that its architecture does not use."""
    for name in names:
        if name in file.vectors:
            raise file.keys.error(name, f"factors of frequencies that a {file.dims.architecture} model does not use", _STEP)


def check_divisors(keys: Keys, name: str, divisors: tuple[float, ...], turned: int) -> None:
    """SourceError where there are divisors, but not one for each pair of channels."""
    if divisors and len(divisors) != turned // 2:
        raise keys.error(name, f"has {len(divisors)} factors for {turned // 2} pairs of channels that turn")
