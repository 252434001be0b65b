"""Memory of this process and this machine, in bytes. Owns: /proc and control-group readings. Needs: psutil off Linux.
Never: a guess; what a system does not tell is None."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60  # control groups write "no limit" as max, or as a number near 2^63


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Resident bytes of this process. Mapped weight files count in `peak` and `resident`, not in `anonymous`."""

    peak: int | None  # VmHWM
    resident: int | None  # VmRSS
    anonymous: int | None  # RssAnon: what the process itself allocated


@dataclass(frozen=True, slots=True)
class MachineMemory:
    total: int
    available: int  # what can be had without swapping, within the control group


def process_memory(status: Path = Path("/proc/self/status")) -> ProcessMemory:
    """Reads /proc/self/status; elsewhere psutil gives the resident bytes only."""
    if not status.exists():
        import psutil

        return ProcessMemory(peak=None, resident=psutil.Process().memory_info().rss, anonymous=None)
    fields = _kilobyte_fields(status)
    return ProcessMemory(peak=fields.get("VmHWM"), resident=fields.get("VmRSS"), anonymous=fields.get("RssAnon"))


def machine_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> MachineMemory:
    """Total and available bytes. MemAvailable, not MemFree: the page cache gives way to us."""
    if (proc / "meminfo").exists():
        fields = _kilobyte_fields(proc / "meminfo")
        total, available = fields["MemTotal"], fields["MemAvailable"]
    else:
        import psutil

        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    for limit, used in _cgroup_limits(proc, cgroup):
        total, available = min(total, limit), min(available, max(0, limit - used))
    return MachineMemory(total=total, available=available)


def _kilobyte_fields(path: Path) -> dict[str, int]:
    """`Name:  123 kB` lines, in bytes."""
    found: dict[str, int] = {}
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found


def _cgroup_limits(proc: Path, cgroup: Path) -> list[tuple[int, int]]:
    """(limit, used) of every control group that holds this process, version 2 and 1, up to the root."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, names = cgroup, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = cgroup / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path is the host's and may not exist here; its own limit then stands at the root.
        for folder in (root / group.lstrip("/"), *(root / group.lstrip("/")).parents):
            limit, used = _read_number(folder / names[0]), _read_number(folder / names[1])
            if limit is not None and used is not None and limit < _UNLIMITED:
                # File pages nobody uses count as used there, and are given back before anyone is killed.
                limits.append((limit, max(0, used - _stat(folder / "memory.stat", names[2]))))
            if folder == root:
                break
    return limits


def _read_number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _stat(path: Path, name: str) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
