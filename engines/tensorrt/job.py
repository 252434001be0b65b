"""What a builder is asked for, and what it says. Owns: BuildJob, BuildOutcome, messages of a worker. Needs: jsons. Never:
processes, libraries.

The child writes one JSON object a line: {"KIND": {fields}}, KIND one of MESSAGES.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.engine_library import LibraryKind
from edge.engine_record import EngineProfile, EngineTensor
from edge.errors import BuildError
from edge.jsons import JsonMismatch, parse_json, read_value


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One graph, and the plan to make of it. The network is always strongly typed: each tensor keeps the graph's type."""

    library: LibraryKind
    graph: Path  # ONNX, its weights beside it
    plan: Path  # to be written; one that stands there is replaced
    sm: str  # compute capability that the plan is for: 8.6
    profiles: tuple[EngineProfile, ...]
    tensors: tuple[EngineTensor, ...]  # inputs and outputs as the graph was made, in any order
    workspace_bytes: int | None = None  # the most that one layer may use while the engine runs; None: the library's own limit
    tactic_dram_bytes: int | None = None  # the most that trying a kernel may use while building
    timing_cache: Path | None = None  # measurements of kernels, kept from build to build; None: none are kept

    def __post_init__(self) -> None:
        if self.library == "tensorrt-rtx" and self.timing_cache is not None:
            raise ValueError("timing_cache: TensorRT-RTX measures nothing while it builds, so it keeps no times")

    @property
    def grace_seconds(self) -> float:
        """How long a build that is stopped may take to keep its times; without a timing cache there are none."""
        return 0.0 if self.timing_cache is None else 30.0

    def to_json(self) -> str:
        """The job as one JSON object, paths absolute."""
        cache = None if self.timing_cache is None else str(self.timing_cache.absolute())
        paths = {"graph": str(self.graph.absolute()), "plan": str(self.plan.absolute()), "timing_cache": cache}
        return json.dumps(dataclasses.asdict(self) | paths)

    @staticmethod
    def from_json(text: str) -> BuildJob:
        """The job that to_json wrote."""
        plain = json.loads(text)
        cache = plain["timing_cache"]
        return BuildJob(
            **plain
            | {
                "graph": Path(plain["graph"]),
                "plan": Path(plain["plan"]),
                "timing_cache": None if cache is None else Path(cache),
                "profiles": read_value(plain["profiles"], tuple[EngineProfile, ...], "profiles"),
                "tensors": read_value(plain["tensors"], tuple[EngineTensor, ...], "tensors"),
            }
        )


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """A plan that was built."""

    version: str  # of the library: 1.7.1.116
    driver: str | None  # CUDA version of the driver with which it was built; None: without one (TensorRT-RTX)
    plan_bytes: int
    weights_bytes: int  # of the graph, as the library read them
    tensors: tuple[EngineTensor, ...]  # inputs, then outputs, as the library sees them
    peak_bytes: int  # resident memory of the builder at its highest
    seconds: float
    note: str  # what was done otherwise than asked, in words; "" for nothing


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """The library began a phase of `steps` steps; phases nest."""

    name: str
    steps: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """One step of the phase `name` is done."""

    name: str


@dataclass(frozen=True, slots=True)
class PhaseDone:
    """The phase `name` ended."""

    name: str


@dataclass(frozen=True, slots=True)
class Built:
    """The end: the plan stands under its partial name."""

    version: str
    plan_bytes: int
    weights_bytes: int
    tensors: tuple[EngineTensor, ...]
    peak_bytes: int
    note: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The end: a plan was deserialised, on its GPU, and says this of itself."""

    tensors: tuple[EngineTensor, ...]  # inputs and outputs
    profiles: tuple[EngineProfile, ...]  # named by their numbers: the plan keeps no names


class GraphRefused(BuildError):
    """The library does not take this graph; another form of it may be taken."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The end: there is no plan."""

    text: str  # one line for the user
    refused: bool  # the library does not take the graph: GraphRefused


Message = PhaseStarted | StepDone | PhaseDone | Built | Opened | Failed

MESSAGES: dict[str, Any] = {
    "phase_started": PhaseStarted,
    "step_done": StepDone,
    "phase_done": PhaseDone,
    "built": Built,
    "opened": Opened,
    "failed": Failed,
}
_KINDS = {cls: kind for kind, cls in MESSAGES.items()}


def write_message(message: Message) -> str:
    """The line for `message`, with its end."""
    return json.dumps({_KINDS[type(message)]: dataclasses.asdict(message)}) + "\n"


def read_message(line: str) -> Message:
    """The message of a line. JsonMismatch where it holds none."""
    plain = parse_json(line)
    kind = next(iter(plain), "") if isinstance(plain, dict) else ""
    if kind not in MESSAGES:
        raise JsonMismatch(f"no message: {line[:80]!r}")
    message: Message = read_value(plain[kind], MESSAGES[kind], kind)
    return message


def partial_path(plan: Path) -> Path:
    """Where a plan is written until it is whole."""
    return plan.with_name(f".{plan.name}.partial")
