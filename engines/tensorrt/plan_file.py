"""What a plan of TensorRT-RTX says of itself. Owns: its header. Needs: a file, no GPU, no library. Never: the rest of the plan.

The header is not documented. What is read here was found by building for each compute capability of TensorRT-RTX 1.7 and for
two at once, and a test builds for them again; a plan of another form is None, never a guess. Little-endian:

    0x00  "vtrt"            0x18  u8[4] version    0x20  u32 compute capabilities, a bit each
    0x10  u64 plan bytes    0x1c  "vtrt"           0x38  u64 bytes of the weights
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<4s12xQ4B4sI20xQ")
_MAGIC = b"vtrt"
_SMS = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")  # bit 0, bit 1 ...


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The header of a plan of TensorRT-RTX."""

    version: str  # of the library that built it: 1.7.1.116
    sms: tuple[str, ...]  # compute capabilities that it runs on: 8.6
    plan_bytes: int  # that the whole file must have
    weights_bytes: int  # of the weights in it


def plan_facts(path: Path) -> PlanFacts | None:
    """What the header of the plan at `path` says, or None where it is none that this version of ours knows. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    magic, plan_bytes, *version, inner, mask, weights_bytes = _HEADER.unpack(head)
    if magic != _MAGIC or inner != _MAGIC or mask >> len(_SMS):
        return None
    sms = tuple(sm for bit, sm in enumerate(_SMS) if mask >> bit & 1)
    return PlanFacts(".".join(str(part) for part in version), sms, plan_bytes, weights_bytes)
