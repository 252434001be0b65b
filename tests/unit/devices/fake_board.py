"""Files of a Jetson, laid in a folder. Owns: what kernel and Jetson Linux write where. Needs: nothing. Never: a real one."""

from __future__ import annotations

from pathlib import Path

SUPER_MODES = ("15W", "25W", "MAXN_SUPER", "7W")


def lay_board(
    root: Path,
    *,
    model: str = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    compatible: tuple[str, ...] = ("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
    release: str | None = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan 8",
    package: str | None = None,
    modes: tuple[str, ...] = SUPER_MODES,
    mode: int | None = 2,
    available_kb: int = 6_500_000,
) -> Path:
    """Writes /proc, /etc and /var of a board under `root`, and returns it."""
    write(root / "proc/device-tree/model", model + "\0")
    write(root / "proc/device-tree/compatible", "\0".join((*compatible, "")))
    write(root / "proc/meminfo", f"MemTotal:       7802936 kB\nMemFree:  100000 kB\nMemAvailable:   {available_kb} kB\n")
    if release is not None:
        write(root / "etc/nv_tegra_release", release + "\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n")
    if package is not None:
        write(
            root / "var/lib/dpkg/status",
            "Package: libc6\nStatus: install ok installed\nVersion: 2.35-0\n\nPackage: nvidia-l4t-core\nStatus: install ok "
            f"installed\nArchitecture: arm64\nVersion: {package}\nDepends: libegl1\n\nPackage: zlib1g\nVersion: 1:1.2.11\n",
        )
    lines = ["< PARAM TYPE=CLOCK NAME=GPU >", "MAX_FREQ /sys/devices/gpu"]
    lines += [f"< POWER_MODEL ID={number} NAME={name} >\nGPU MAX_FREQ -1" for number, name in enumerate(modes)]
    write(root / "etc/nvpmodel.conf", "\n".join(lines) + "\n< PM_CONFIG DEFAULT=1 >\n")
    if mode is not None:
        write(root / "var/lib/nvpmodel/status", f"pmode:{mode:04d} fmode:quiet\n")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
