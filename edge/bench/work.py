"""What a model must read and compute at least. Owns: the counting. Needs: a CPU plan, page geometry. Never: a clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edge.contract import PAGE_TOKENS
from edge.executors.cpu_plan import CpuPlan
from edge.pages.geometry import GroupPages, page_groups, pages_for, sealed_end, span_count
from edge.presets import Preset
from edge.spec import ModelSpec

_MATRIX_FIELDS = ("weight0", "weight1", "weight2")


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes that must come from memory, and multiplications and additions by the kind of dot product that does them."""

    weight_bytes: float
    kv_bytes: float
    int8_operations: float  # matrices of int4 and int8 weights, whose activations are int8
    fp32_operations: float  # matrices of fp16 weights
    attention_operations: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes

    @property
    def operations(self) -> float:
        return self.int8_operations + self.fp32_operations + self.attention_operations


def decode_work(plan: CpuPlan, spec: ModelSpec, preset: Preset, first: int, count: int) -> Work:
    """A decoded token on average, of `count` tokens at the positions from `first` on: every weight once, and the keys and
    values that a query there sees, in the form in which it reads them."""
    positions = range(first, first + count)
    int8, fp32 = _matrix_operations(plan, ("project", "add", "gated", "head"))
    return Work(
        weight_bytes=plan.weight_bytes_per_token,
        kv_bytes=_kv_bytes(spec, preset, positions) / count,
        int8_operations=int8,
        fp32_operations=fp32,
        attention_operations=_attention_operations(spec, positions) / count,
    )


def without_pages(work: Work, spec: ModelSpec, preset: Preset, pages: float) -> Work:
    """`work` of a token that leaves out so many sealed pages, on average, of layer groups without a window: of these it reads
    the minima and scales of the keys alone, fp16, by which it chose."""
    groups = [group for group in page_groups(spec, preset) if not group.window]
    if not groups or not pages:
        return work
    layers = sum(not layer.window for layer in spec.layers) / len(groups)
    page_bytes = sum(group.sealed.bytes for group in groups) / len(groups)
    bounds = 4 * spec.num_kv_heads * spec.head_dim * layers
    operations = 4 * spec.num_heads * spec.head_dim * layers * PAGE_TOKENS
    return replace(
        work,
        kv_bytes=work.kv_bytes - pages * (page_bytes - bounds),
        attention_operations=work.attention_operations - pages * operations,
    )


def prefill_work(plan: CpuPlan, spec: ModelSpec, preset: Preset, tokens: int) -> Work:
    """A prompt of `tokens` tokens in all. Weights, keys and values count once, as they would for a machine with enough cache;
    the head is for the last token alone."""
    layers, head = _matrix_operations(plan, ("project", "add", "gated")), _matrix_operations(plan, ("head",))
    positions = range(tokens)
    return Work(
        weight_bytes=plan.weight_bytes_per_token,
        kv_bytes=_kv_bytes(spec, preset, (tokens - 1,)),
        int8_operations=layers[0] * tokens + head[0],
        fp32_operations=layers[1] * tokens + head[1],
        attention_operations=_attention_operations(spec, positions),
    )


def _matrix_operations(plan: CpuPlan, ops: tuple[str, ...]) -> tuple[int, int]:
    """Operations of one row through the matrices of these steps: with int8 activations, and with fp32 ones."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    int8 = fp32 = 0
    for step in plan.steps:
        if step.op not in ops:
            continue
        for field in _MATRIX_FIELDS:
            if field not in step.tensors:
                continue
            tensor = tensors[step.tensors[field]]
            operations = 2 * tensor.outputs * tensor.inputs
            if tensor.kind == "fp16":
                fp32 += operations
            else:
                int8 += operations
    return int8, fp32


def _seen(window: int, position: int) -> int:
    """Positions that a query at `position` sees."""
    return min(position + 1, window) if window else position + 1


def _kv_bytes(spec: ModelSpec, preset: Preset, positions: Iterable[int]) -> float:
    """Bytes of keys and values that queries at these positions see, all layers."""
    groups = page_groups(spec, preset)
    return sum(_group_bytes(group, position) for position in positions for group in groups)


def _group_bytes(group: GroupPages, position: int) -> float:
    """Of one layer group. Of open pages the tokens that are seen count, sealed ones are read whole."""
    seen = _seen(group.window, position)
    if not group.seals:
        return group.open.bytes / PAGE_TOKENS * seen
    oldest = position + 1 - seen
    sealed = span_count(oldest // PAGE_TOKENS, pages_for(position + 1), sealed_end(position)).sealed
    hidden = oldest % PAGE_TOKENS if sealed and oldest >= PAGE_TOKENS else 0  # of the oldest sealed page
    open_tokens = seen - (sealed * PAGE_TOKENS - hidden)
    return group.sealed.bytes * sealed + group.open.bytes / PAGE_TOKENS * open_tokens


def _attention_operations(spec: ModelSpec, positions: Iterable[int]) -> int:
    """Of q.k and of the weighted values, for what each query sees."""
    seen = sum(_seen(layer.window, position) for position in positions for layer in spec.layers)
    return 4 * spec.num_heads * spec.head_dim * seen
