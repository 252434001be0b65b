"""Tiers: which scheme each layer role of a model gets. Owns: yaml/tiers, the rules that carry or convert a tensor. Needs:
schemes, rtn. Never: model files, packed bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from calibration.rtn import FP16_MAX, quantise_rtn
from calibration.schemes import SCHEMES, ZEROS, QuantTensor
from edge.errors import SourceError
from edge.manifest import VerdictLimits
from edge.yamls import load_named

SchemeName = Literal["fp16", "int8", "int4"]
CHUNK_WEIGHTS = 1 << 21  # rows are converted and compared in runs of about this size


@dataclass(frozen=True, slots=True)
class Roles:
    """The scheme of each layer role. A tied model stores its embedding once, by `embedding`."""

    embedding: SchemeName
    head: SchemeName
    q_proj: SchemeName
    k_proj: SchemeName
    v_proj: SchemeName
    o_proj: SchemeName
    gate_proj: SchemeName
    up_proj: SchemeName
    down_proj: SchemeName
    norms: Literal["fp32"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verdict must keep: the reference's logits against ours, over all verified positions."""

    mean_kl: float  # at most, nats
    top1: float  # at least: share of positions with the same best token
    perplexity_ratio: float  # at most: ours / the reference's

    def __post_init__(self) -> None:
        if not (self.mean_kl > 0 and 0 < self.top1 <= 1 and self.perplexity_ratio >= 1):
            raise ValueError("mean_kl must be over 0, top1 in (0, 1], perplexity_ratio 1 or more")

    @property
    def of_verdict(self) -> VerdictLimits:
        """As a manifest states them."""
        return VerdictLimits(self.mean_kl, self.top1, self.perplexity_ratio)


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """How much text a verdict is measured on."""

    tokens: int
    window: int  # tokens of context each position has at most; windows do not overlap

    def __post_init__(self) -> None:
        if not 2 <= self.window <= self.tokens:
            raise ValueError("window must be 2 or more, and no more than tokens")


@dataclass(frozen=True, slots=True)
class Tier:
    """A named precision recipe for weights; a file of yaml/tiers."""

    name: SchemeName
    summary: str
    roles: Roles
    engine_limits: Limits  # engine against its dequantised weights
    source_limits: Limits  # tier against the source's weights
    verify: VerifySettings


def load_tier(name: str) -> Tier:
    """The tier of that name. ConfigError, with the names that there are, for an unknown one."""
    return load_named("tiers", name, Tier)


class ReadTensor(Protocol):
    """A tensor as read from a model file (engines.sources.base.SourceTensor)."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> np.ndarray | QuantTensor: ...
    @property
    def source_type(self) -> str: ...
    @property
    def rounding(self) -> str: ...
    @property
    def relative_error(self) -> float: ...


@dataclass(frozen=True, slots=True)
class TensorReport:
    """What a tier made of one tensor. Exact: every weight has the value that the file gives it."""

    name: str
    role: str
    source_type: str  # F32, Q4_K ...
    stored: str  # fp32, fp16, int8/32 (bits/group), int4/32+min ...
    weights: int
    bits_per_weight: float  # scales and minima included
    exact: bool
    scale_error: float  # largest relative error of scales and minima rounded to fp16 on reading; 0.0: none
    max_error: float  # largest |stored - read| of a weight; 0.0: carried
    rms_error: float  # rms(stored - read) / rms(read)
    note: str  # what was rounded, in words; "" when exact


def mean_bits(reports: Iterable[TensorReport]) -> float:
    """Bits a weight over all tensors."""
    lines = list(reports)
    return sum(line.bits_per_weight * line.weights for line in lines) / sum(line.weights for line in lines)


ROLE_OF_SUFFIX = {
    "attn.q_proj": "q_proj", "attn.k_proj": "k_proj", "attn.v_proj": "v_proj", "attn.o_proj": "o_proj",
    "ffn.gate_proj": "gate_proj", "ffn.up_proj": "up_proj", "ffn.down_proj": "down_proj",
}  # fmt: skip


def role_of(name: str) -> str:
    """The layer role (a field of Roles) of a canonical tensor name. Vectors, biases too, have that of norms."""
    stem = name.removesuffix(".weight")
    if stem in ("embed", "head"):
        return "embedding" if stem == "embed" else "head"
    suffix = ".".join(stem.split(".")[2:])
    return ROLE_OF_SUFFIX.get(suffix, "norms")


def apply_tier(
    role: str, tensor: ReadTensor, tier: Tier, requantise: bool = False
) -> tuple[QuantTensor | np.ndarray, TensorReport]:
    """`tensor` (or a run of its rows) as the tier stores it: a QuantTensor, a float16 matrix, or a float32 vector (norms).

    Carried as it is: what the file already quantised to no more bits than the scheme, and, unless `requantise`, also what
    has more (Q5, Q6 and Q8 stay int8 in int4). int4 goes into an int8 scheme exactly. Floats are rounded to nearest.
    """
    values = tensor.values
    if role == "norms":
        vector = values.dequantise() if isinstance(values, QuantTensor) else values.astype(np.float32)
        return vector, _report(role, tensor, "fp32", 32.0, (0.0, 0.0), "")
    scheme = SCHEMES[getattr(tier.roles, role)]
    if scheme.bits == 16:
        halves, errors = _to_fp16(values, tensor.name)
        note = "weights rounded to fp16" if errors[0] else ""
        return halves, _report(role, tensor, "fp16", 16.0, errors, note)
    if isinstance(values, QuantTensor) and (values.bits <= scheme.bits or not requantise):
        carried = _widen(values) if values.bits < scheme.bits else values
        return carried, _report(role, tensor, _stored(carried), carried.bits_per_weight, (0.0, 0.0), "")
    weights = values.dequantise() if isinstance(values, QuantTensor) else values
    quantised = quantise_rtn(weights, scheme.bits, scheme.group, scheme.symmetric, tensor.name)
    errors = _errors(quantised, weights)
    note = f"rounded to nearest in {_stored(quantised)}"
    return quantised, _report(role, tensor, _stored(quantised), quantised.bits_per_weight, errors, note)


def _report(
    role: str,
    tensor: ReadTensor,
    kind: str,
    bits: float,
    errors: tuple[float, float],
    note: str,
) -> TensorReport:
    return TensorReport(
        name=tensor.name,
        role=role,
        source_type=tensor.source_type,
        stored=kind,
        weights=int(np.prod(tensor.values.shape)),
        bits_per_weight=bits,
        exact=not tensor.rounding and errors[0] == 0.0,
        scale_error=tensor.relative_error,
        max_error=errors[0],
        rms_error=errors[1],
        note="; ".join(part for part in (tensor.rounding, note) if part),
    )


def _stored(tensor: QuantTensor) -> str:
    return f"int{tensor.bits}/{tensor.group}{'' if tensor.minima is None else '+min'}"


def _widen(tensor: QuantTensor) -> QuantTensor:
    """An int4 tensor as int8 with the same scales: exact."""
    quants = tensor.quants if tensor.minima is not None else tensor.quants + np.uint8(ZEROS[8] - ZEROS[4])
    return QuantTensor(8, tensor.group, quants, tensor.scales, tensor.minima)


def _to_fp16(values: QuantTensor | np.ndarray, name: str) -> tuple[np.ndarray, tuple[float, float]]:
    """float16 [N, K] and its (max, relative rms) error."""
    if isinstance(values, np.ndarray) and values.dtype == np.float16:
        return values, (0.0, 0.0)
    halves = np.empty(values.shape, np.float16)
    for part in _runs(values.shape):
        rows = _rows(values, part)
        if not np.abs(rows).max() <= FP16_MAX:  # also true for NaN
            raise SourceError(f"{name}: holds a value over 65,504, which fp16 cannot. Use another tier: --tier int8")
        halves[part] = rows
    return halves, _errors(halves, values)


def _runs(shape: tuple[int, ...]) -> Iterator[slice]:
    """Runs of rows of a matrix of that shape, so that float32 temporaries stay small."""
    step = max(1, CHUNK_WEIGHTS // shape[1])
    return (slice(begin, begin + step) for begin in range(0, shape[0], step))


def _rows(values: QuantTensor | np.ndarray, part: slice) -> np.ndarray:
    if isinstance(values, QuantTensor):
        return values.rows(part.start, part.stop).dequantise()
    return values[part].astype(np.float32, copy=False)


def _errors(stored: QuantTensor | np.ndarray, read: QuantTensor | np.ndarray) -> tuple[float, float]:
    """(largest |stored - read|, rms(stored - read) / rms(read)); the padding of K does not count."""
    largest = squares = of_read = 0.0
    for part in _runs(read.shape):
        theirs = _rows(read, part)
        difference = _rows(stored, part)[:, : theirs.shape[1]] - theirs
        largest = max(largest, float(np.abs(difference).max()))
        squares += float(np.square(difference, dtype=np.float64).sum())
        of_read += float(np.square(theirs, dtype=np.float64).sum())
    return largest, (squares / of_read) ** 0.5 if of_read else 0.0
