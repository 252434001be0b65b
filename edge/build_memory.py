"""What building an engine with TensorRT takes, and may take. Owns: the formulas, BuildStep. Needs: profiles. Never: looks at
this machine.

TensorRT-RTX 1.7.1 on x86-64, VmHWM of the builder's process, two optimization profiles: SmolLM2-135M int4, 97 MB
of weights, 0.99 to 1.02 GB; Gemma-3-270M int4, 275 MB, 1.51 to 1.66 GB. The formula is a little above all of them. TensorRT was
not run: its figure is an estimate, the same and what the profiles of boards count for CUDA's context and an engine's kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.devices import BuildLimits, DeviceProfile, EngineKind, Gpu

_LIBRARY_BYTES = {"tensorrt-rtx": 800_000_000, "tensorrt": 1_300_000_000}  # interpreter, library, what it compiles with
LARGEST_MEASURED = 275_000_000  # bytes of weights
_OF_WEIGHTS = 3.2  # as they are read, in the network, in the plan
BASIS = (
    "TensorRT-RTX measured on x86-64 (0.8 GB and 3.2 x the weights); TensorRT, which was not run, the same and 0.5 GB for CUDA "
    "and its kernels"
)

# What a builder leaves of the memory at hand, so that the system goes on: the kernel's own reserve (min_free_kbytes, some 45 MB
# on a board of 8 GB) is not in MemAvailable, and other programs allocate while a build runs. Chosen, not measured.
MARGIN_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class BuildStep:
    """The step that makes the plan."""

    on_device: bool  # False: any x86-64 machine does it, without a GPU
    builder: int  # bytes of the builder's process, its copies of the weights counted; an estimate
    workspace: int  # bytes of the same memory that kernels may have while they are timed, at most
    limit: int | None  # TACTIC_DRAM of a board, which counts all of the above; None: not a board, or no kernel runs
    available: int | None  # None: the device is elsewhere, and its host's memory is not known

    @property
    def total(self) -> int:
        return self.builder + self.workspace

    @property
    def fits(self) -> bool | None:
        if self.available is None:
            return None
        return self.total <= (self.available if self.limit is None else min(self.limit, self.available))


def builder_bytes(kind: EngineKind, weight_bytes: int) -> int:
    """Host bytes of the process that builds an engine of `kind` from so many bytes of weights, about."""
    return _LIBRARY_BYTES[kind] + round(_OF_WEIGHTS * weight_bytes)


def limits_at_hand(profile: DeviceProfile, memory: int) -> BuildLimits:
    """What a builder may take on the device at hand, which has `memory` for it: of a board what is available now, of a card
    all. No more than the profile says, unless that is of a board that nobody knows: what it has is all that is known of it."""
    assert profile.gpu is not None, f"{profile.title}: no GPU"
    limits, room = profile.gpu.build, max(0, memory - MARGIN_BYTES)
    most = room if profile.generic and profile.gpu.unified else min(room, limits.tactic_dram_bytes)
    return BuildLimits(min(limits.workspace_bytes, most), most)


def build_step(
    kind: EngineKind, gpu: Gpu, weight_bytes: int, *, here: int, there: int | None, limits: BuildLimits
) -> BuildStep:
    """The step for an engine of `kind`. `here` is the memory that this machine has available, `there` what the host of the
    device has; None: unknown."""
    builder = builder_bytes(kind, weight_bytes)
    if kind == "tensorrt-rtx":
        return BuildStep(on_device=False, builder=builder, workspace=0, limit=None, available=here)
    if gpu.unified:
        return BuildStep(True, builder, limits.workspace_bytes, limits.tactic_dram_bytes, there)
    return BuildStep(True, builder, workspace=0, limit=None, available=there)
