"""What an engine for a GPU will weigh, before it is built. Owns: sizes of lowered weights, the plan of a model for a GPU.
Needs: source, tiers, target_plan. Never: writes."""

from __future__ import annotations

from calibration.tiers import Tier
from edge.devices import EngineKind, load_device
from edge.machine import device_now
from edge.monitors.memory import machine_memory
from edge.target_plan import TargetPlan, Weights, plan_target
from engines.contexts import wanted_context
from engines.portable.convert import Converter
from engines.portable.storage import StoredTensor
from engines.sizes import planned_forms
from engines.sources.base import Source

_HALF = 2  # bytes of a float16


def model_target_plan(
    source: Source, tier: Tier, target: str, kind: EngineKind, *, context: int | None, requantise: bool = False
) -> TargetPlan:
    """The plan of an engine of `kind` that would be built from `source` for `target`. Reads one row of every tensor."""
    spec, profile = source.spec, load_device(target)
    assert profile.gpu is not None and profile.defaults is not None, f"{target}: no GPU"
    wanted = wanted_context(spec, context, profile.defaults.context)
    return plan_target(
        profile,
        kind,
        spec,
        planned_weights(source, tier, requantise),
        context=wanted,
        longest_context=spec.context_length,
        here=machine_memory().available,
        now=device_now(target, profile.gpu),
    )


def planned_weights(source: Source, tier: Tier, requantise: bool) -> Weights:
    """Bytes of the weights as lowering stores them, and of those what one decoded token reads."""
    stored = read = 0
    for form in planned_forms(source, Converter(source, tier, requantise, "float16")):
        size = lowered_bytes(form)
        stored += size
        only_embeds = form.name == "embed.weight" and not source.spec.tied_head
        read += size // form.shape[0] if only_embeds else size
    return Weights(stored, read)


def lowered_bytes(form: StoredTensor) -> int:
    """Bytes of a tensor in a TensorRT graph (engines/tensorrt/weight_forms.py): int8 has one float16 scale an output, int4 has
    float16 scales and offsets for each group, the latter without minima too, since scales of both signs need them."""
    if form.kind == "int8":
        outputs, inputs = form.shape
        return outputs * (inputs + _HALF)
    if form.kind == "int4":
        return form.quants.nbytes + 2 * form.scales.nbytes
    return form.nbytes
