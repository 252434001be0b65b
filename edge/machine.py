"""Which target this machine is. Owns: Machine, DeviceNow. Needs: board, gpu, memory readings. Never: a guess; an unknown device
gets the generic profile of its compute capability and is told so, another none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edge.board import GENERIC, Board, find_board
from edge.devices import Gpu
from edge.gpu import GpuFound, NoGpu, probe_gpu
from edge.monitors.memory import machine_memory

# Cards by the names that their driver gives them, and generic profiles by compute capability: 8.7 is Orin's alone.
CARDS = {"NVIDIA A10": "a10", "NVIDIA A10G": "a10g", "NVIDIA L4": "l4"}
GENERIC_CARDS = {"8.6": "cuda-sm86", "8.9": "cuda-sm89"}
GENERIC_BOARDS = {"8.7": GENERIC}


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, as a target."""

    board: Board | None  # None: not a Jetson, or one of which no file tells
    gpu: GpuFound | NoGpu
    target: str | None  # a profile with a GPU; None: there is none for what is here
    is_known: bool  # False: `target` is a generic profile

    @property
    def device(self) -> str | None:
        """What a plan of TensorRT is bound to: a board by its target, for the GPU of every Orin has the same name; a card by
        the name of its GPU. None: there is no GPU."""
        if isinstance(self.gpu, NoGpu):
            return None
        return self.target if self.gpu.first.integrated and self.target is not None else self.gpu.first.name


def find_machine(root: Path = Path("/")) -> Machine:
    """Reads the files under `root`, and asks the driver."""
    board, gpu = find_board(root), probe_gpu()
    if board is not None and board.chip is not None:
        return Machine(board, gpu, board.target, board.is_known)
    if isinstance(gpu, NoGpu):
        return Machine(board, gpu, None, False)
    return Machine(board, gpu, _gpu_target(gpu), gpu.first.name in CARDS)


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """What a device has available at this moment, because it is this very machine, or a card in it."""

    memory: int  # of what its engines live in: the memory of the board, or of the card
    host: int  # of the host
    source: str  # what `memory` is


def device_now(target: str, gpu: Gpu, root: Path = Path("/")) -> DeviceNow | None:
    """None where `target`, whose GPU is `gpu`, is not what this machine is. Files are those under `root`; the driver is asked
    where they do not tell, and about a board on Arm processors only."""
    board, found = find_board(root), None
    if board is not None and board.chip is not None:
        here = board.target
    elif gpu.unified and os.uname().machine != "aarch64":
        return None
    else:
        found = probe_gpu()
        here = None if isinstance(found, NoGpu) else _gpu_target(found)
    if here != target:
        return None
    host = machine_memory(root / "proc", root / "sys/fs/cgroup").available
    if gpu.unified or not isinstance(found, GpuFound):
        return DeviceNow(host, host, "MemAvailable of this machine")
    return DeviceNow(found.first.memory_bytes, host, f"memory of the {found.first.name} in this machine, in use or not")


def _gpu_target(found: GpuFound) -> str | None:
    gpu = found.first
    return GENERIC_BOARDS.get(gpu.sm) if gpu.integrated else CARDS.get(gpu.name) or GENERIC_CARDS.get(gpu.sm)
