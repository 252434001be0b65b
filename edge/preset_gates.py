"""What a KV preset may lose against exact pages. Owns: GATES, the verdict of a preset. Needs: manifest, comparison. Never:
engines, texts.

Limits: mean KL and top-1 agreement as measured in float32 on a small model, perplexity as for anything lossy. An engine that
rounds its activations answers any change, however small, with a change of its own; what that is, the floor, is measured beside
the presets, and a gate is what a preset may lose beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.comparison import Comparison
from edge.contract import SEAL_TOKENS
from edge.errors import RequestError
from edge.manifest import Manifest, Verdict, VerdictLimits
from edge.presets import PRESETS, PresetName

GATES: dict[PresetName, VerdictLimits] = {
    "safe": VerdictLimits(kl_mean=0.001, top1=0.985, perplexity_ratio=1.02),
    "balanced": VerdictLimits(kl_mean=0.006, top1=0.96, perplexity_ratio=1.02),
    "tight": VerdictLimits(kl_mean=0.02, top1=0.94, perplexity_ratio=1.02),
}

FIRST_SEALED = 2 * SEAL_TOKENS  # the first position at which anything is read sealed


def limits_over(preset: PresetName, floor: Comparison) -> VerdictLimits:
    """The gate of a preset on an engine with this floor."""
    gate = GATES[preset]
    return VerdictLimits(gate.kl_mean + floor.kl_mean, gate.top1 + floor.top1 - 1.0, gate.perplexity_ratio)


def judge_preset(
    preset: PresetName, found: Comparison, floor: Comparison, *, text: str, windows: int, window_tokens: int
) -> Verdict:
    """The verdict of a preset against `exact` on the same engine; both comparisons have a row at least."""
    limits = limits_over(preset, floor)
    figures = (found.kl_mean, found.top1, found.perplexity_ratio)
    return Verdict(
        kl_mean=figures[0],
        top1=figures[1],
        perplexity_ratio=figures[2],
        tokens=found.rows,
        limits=limits,
        passed=not limits.broken_by(*figures),
        text=text,
        windows=windows,
        window_tokens=window_tokens,
    )


def passing_presets(manifest: Manifest) -> tuple[str, ...]:
    """The presets of the engine less those whose gate failed."""
    verdicts = manifest.preset_verdicts
    return tuple(name for name in manifest.capabilities.presets if name not in verdicts or verdicts[name].passed)


def check_gate(manifest: Manifest, place: str, preset: str) -> None:
    """RequestError, with the next safer preset, where the gate of `preset` failed when the package was built."""
    verdict = manifest.preset_verdicts.get(preset)
    if verdict is None or verdict.passed:
        return
    safer = next_safer(preset, passing_presets(manifest))
    raise RequestError(
        f"{place}: the preset {preset} failed its gate when the package was built ({', '.join(verdict.broken)}). "
        f"Take the next safer one: --kv-preset {safer}; or this one all the same: --ignore-verdict"
    )


def next_safer(preset: str, passing: Sequence[str]) -> str:
    """The next more exact preset that passed; `exact`, which is what the others are held against, where none did."""
    names = [str(name) for name in PRESETS]
    return next((name for name in reversed(names[: names.index(preset)]) if name in passing), "exact")
