"""Which target this machine is. Owns: Machine, DeviceNow. Needs: board, gpu, memory readings. Never: a guess; an unknown device
gets the generic profile of its compute capability and is told so, another none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.board import Board, find_board
from edge.devices import Gpu
from edge.gpu import GpuFound, NoGpu, probe_gpu
from edge.monitors.memory import machine_memory

# Cards by the names that their driver gives them, and generic profiles by compute capability.
CARDS = {"NVIDIA A10": "a10", "NVIDIA A10G": "a10g", "NVIDIA L4": "l4"}
GENERIC_CARDS = {"8.6": "cuda-sm86", "8.9": "cuda-sm89"}


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, as a target."""

    board: Board | None  # None: not a Jetson
    gpu: GpuFound | NoGpu
    target: str | None  # a profile with a GPU; None: there is none for what is here
    is_known: bool  # False: `target` is a generic profile


def find_machine(root: Path = Path("/")) -> Machine:
    """Reads the files under `root`, and asks the driver."""
    board, gpu = find_board(root), probe_gpu()
    if board is not None:
        return Machine(board, gpu, board.target, board.is_known)
    if isinstance(gpu, NoGpu):
        return Machine(None, gpu, None, False)
    return Machine(None, gpu, _card_target(gpu), gpu.first.name in CARDS)


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """What a device has available at this moment, because it is this very machine, or a card in it."""

    memory: int  # of what its engines live in: the memory of the board, or of the card
    host: int  # of the host
    source: str  # what `memory` is


def device_now(target: str, gpu: Gpu, root: Path = Path("/")) -> DeviceNow | None:
    """None where `target`, whose GPU is `gpu`, is not what this machine is. Files are those under `root`; the driver is asked
    about cards only."""
    host = machine_memory(root / "proc", root / "sys/fs/cgroup").available
    if gpu.unified:
        board = find_board(root)
        if board is None or board.target != target:
            return None
        return DeviceNow(host, host, "MemAvailable of this machine")
    found = probe_gpu()
    if isinstance(found, NoGpu) or _card_target(found) != target:
        return None
    return DeviceNow(found.first.memory_bytes, host, f"memory of the {found.first.name} in this machine, in use or not")


def _card_target(found: GpuFound) -> str | None:
    return CARDS.get(found.first.name) or GENERIC_CARDS.get(found.first.sm)
