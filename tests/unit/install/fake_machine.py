"""A machine for install.sh, laid in a folder: files as each JetPack and driver write them, programs that answer what the
script asks and note what they were told. Owns: FakeMachine. Needs: nothing. Never: installing anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
TOOLS = (
    "awk", "basename", "bash", "cat", "chmod", "cp", "cut", "dirname", "env", "find", "flock", "grep",
    "head", "mkdir", "readlink", "rm", "rmdir", "sed", "sh", "sha256sum", "sort", "tail", "tr", "xargs",
)  # fmt: skip

# Answers what the script asks a Python; makes environments, and a command that says its version, as pip would; notes each in
# the log. Files beside it: `broken-WORD` makes the installation of WORD fail, `no-ensurepip` is a Python without the module
# venv, `signal-at-venv` and `signal-at-pip` hold a signal that the script gets at that moment.
PYTHON = """#!/bin/sh
case "$*" in
  *version_info*) echo {version} ;;
  *realpath*) echo "$0" ;;
  *sysconfig*) echo {include} ;;
  *ensurepip*) [ ! -e {state}/no-ensurepip ] ;;
  *find_board*) exec {real} "$@" ;;
  *find_spec*) ;;
  --version) echo Python {version}.1 ;;
  "-m venv "*)
    echo "$*" >>{state}/log
    for target; do :; done
    mkdir -p "$target/bin" && cp "$0" "$target/bin/python"
    if [ -e {state}/signal-at-venv ]; then kill -$(cat {state}/signal-at-venv) $PPID; rm {state}/signal-at-venv; fi ;;
  "-m pip --version") ;;
  "-m pip install "*)
    shift 3
    echo "pip $*${{CUDA_ROOT:+ CUDA_ROOT=$CUDA_ROOT PATH=${{PATH%%:*}}}}" >>{state}/log
    if [ -e {state}/signal-at-pip ]; then kill -$(cat {state}/signal-at-pip) $PPID; rm {state}/signal-at-pip; exit 1; fi
    for broken in {state}/broken-*; do
      [ -e "$broken" ] || continue
      case "$*" in *"${{broken##*/broken-}}"*) echo "ERROR: no network" >&2; exit 1 ;; esac
    done
    case "$*" in *" ."*) printf '#!/bin/sh\\necho edge 0\\n' >"${{0%python}}edge" && chmod +x "${{0%python}}edge" ;; esac ;;
  *) echo "not expected: $*" >&2; exit 9 ;;
esac
"""


def pip_words(lines: list[str]) -> list[str]:
    """What each pip command of a dry run would install, options left out."""
    commands = [line.partition(" -m pip install ")[2] for line in lines if "would run" in line and " -m pip install " in line]
    return [" ".join(word for word in command.split() if not word.startswith("--")) for command in commands]


class FakeMachine:
    """Give it parts, then `install`. `log` is what its programs were told to make, one command a line."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.bin = folder / "bin"
        self.checkout = folder / "with space"
        for made in (self.root / "usr/bin", self.state, self.bin):
            made.mkdir(parents=True)
        for name in TOOLS:
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)
        self.processor("x86_64")
        self.program(self.bin / "c++", "echo 11.4.0")
        self.program(self.bin / "id", "echo 0")
        self.program(self.bin / "df", f"echo 'Filesystem 1M-blocks Used Available'; echo /dev/x 9 9 $(cat {self.state}/free)")
        self.free_megabytes(50_000)
        self.python("3.11", self.bin / "python3")
        for name in ("engines/native", "calibration", "yaml"):
            (self.checkout / name).mkdir(parents=True)
        (self.checkout / "edge").mkdir()
        (self.checkout / "tests").mkdir()
        for name in ("edge/__init__.py", "edge/board.py", "edge/dpkg.py", "install.sh", "tests/run.sh", "tests/aarch64.sh"):
            shutil.copy(CHECKOUT / name, self.checkout / name)
        shutil.copytree(CHECKOUT / "edge/install", self.checkout / "edge/install")
        (self.checkout / "pyproject.toml").touch()

    def run(self, *words: str, home: bool = True, user: int | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
        """`user` is who runs it where this process is root."""
        environment = {"PATH": str(self.bin), "EDGE_INSTALL_ROOT": str(self.root), **({"HOME": "/nonexistent"} if home else {})}
        return subprocess.run(
            ["bash", str(self.checkout / "install.sh"), *words],
            capture_output=True, text=True, check=False, timeout=60, env=environment | changes,
            user=user if os.getuid() == 0 else None,
        )  # fmt: skip

    def dry(self, *words: str, **changes: str) -> list[str]:
        """What a dry run says, line by line. It must succeed and make nothing."""
        done = self.run("--dry-run", *words, **changes)
        assert (done.returncode, done.stderr) == (0, "")
        assert self.log == []
        return done.stdout.splitlines()

    @property
    def log(self) -> list[str]:
        file = self.state / "log"
        return file.read_text().splitlines() if file.exists() else []

    def break_(self, name: str, text: str = "") -> None:
        """`broken-WORD`, `no-ensurepip`, `signal-at-venv`, `signal-at-pip`: see PYTHON."""
        (self.state / name).write_text(text)

    def mend(self, name: str) -> None:
        (self.state / name).unlink()

    def program(self, path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def processor(self, name: str) -> None:
        self.program(self.bin / "uname", f"echo {name}")

    def free_megabytes(self, count: int) -> None:
        (self.state / "free").write_text(str(count))

    def python(self, version: str, path: Path) -> Path:
        """A Python with its headers; `version` "" is a file that does not run."""
        include = self.state / f"include-{version}"
        include.mkdir(exist_ok=True)
        (include / "Python.h").touch()
        self.program(path, "")
        path.write_text(PYTHON.format(version=version, include=include, state=self.state, real=sys.executable))
        return path

    def system_python(self, version: str) -> Path:
        """/usr/bin/python3.X and the link python3, as apt lays them; on PATH too."""
        path = self.python(version, self.root / f"usr/bin/python{version}")
        for link in (self.root / "usr/bin/python3", self.bin / "python3"):
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        return path

    def packages(self, removed: str = "tensorrt-removed", **versions: str) -> None:
        """Debian packages that are installed; `_` stands for `-`. Also a removed one, and one with a longer name."""
        entries = [
            (removed, "deinstall ok config-files", "36.4.3-20250107174145"),
            ("nvidia-jetpack-runtime", "install ok installed", "9"),
        ]
        entries += [(name.replace("_", "-"), "install ok installed", version) for name, version in versions.items()]
        self.write(
            "var/lib/dpkg/status",
            "\n".join(
                f"Package: {name}\nStatus: {status}\nPriority: optional\nArchitecture: arm64\nVersion: {version}\n"
                f"Depends: libc6 (>= 2.34)\nConffiles:\n /etc/{name}.conf 0123\nDescription: text\n Version: no field\n"
                for name, status, version in entries
            ),
        )

    def cuda(self, version: str, headers: tuple[str, ...] = ("cuda.h", "curand.h")) -> None:
        """/usr/local/cuda-X.Y and the link to it."""
        folder = self.root / f"usr/local/cuda-{version}"
        self.program(folder / "bin/nvcc", f"echo 'Cuda compilation tools, release {version}, V{version}.68'")
        (folder / "include").mkdir()
        for name in headers:
            (folder / "include" / name).touch()
        (self.root / "usr/local/cuda").symlink_to(folder.name)

    def tensorrt(self, version: str, python: str) -> None:
        """The module and its metadata, where python3-libnvinfer puts them."""
        self.write(f"usr/lib/python{python}/dist-packages/tensorrt/__init__.py", "")
        self.write(f"usr/lib/python{python}/dist-packages/tensorrt-{version}.dist-info/METADATA", "")

    def jetson(
        self,
        release: str,
        date: str = "Wed Jan  8 01:49:37 UTC 2025",
        model: str = "NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
        module: str = "p3767-0000",
        chip: str = "tegra234",
    ) -> None:
        """Files of Jetson Linux `release` (36.4.3), its /etc/nv_tegra_release in the form that boards have."""
        self.processor("aarch64")
        major, _, revision = release.partition(".")
        self.write(
            "etc/nv_tegra_release",
            f"# R{major} (release), REVISION: {revision}, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: {date}\n"
            "# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n",
        )
        self.write("proc/device-tree/model", model + "\0")
        self.write("proc/device-tree/compatible", f"nvidia,p3768-0000+{module}\0nvidia,{module}\0nvidia,{chip}\0")

    def jetpack_6(self, release: str = "36.4.3", jetpack: str = "6.2+b77", **board: str) -> None:
        """JetPack 6 with all its components: Ubuntu 22.04, CUDA 12.6, TensorRT 10.3."""
        self.jetson(release, **board)
        self.system_python("3.10")
        trt = "10.3.0.30-1+cuda12.5"
        self.packages(
            nvidia_l4t_core=f"{release}-20250107174145", nvidia_jetpack=jetpack, libnvinfer10=trt, python3_libnvinfer=trt
        )
        self.cuda("12.6")
        self.tensorrt("10.3.0", "3.10")

    def jetpack_7(self, release: str = "39.2.0", jetpack: str = "7.2-b187", **board: str) -> None:
        """JetPack 7.2 with all its components: Ubuntu 24.04, CUDA 13.2, TensorRT 10.16.2."""
        self.jetson(release, "Mon Jun  1 09:28:48 PM UTC 2026", **board)
        self.system_python("3.12")
        trt = "10.16.2.10-1+cuda13.2"
        self.packages(nvidia_l4t_core=f"{release}-20260601", nvidia_jetpack=jetpack, libnvinfer10=trt, python3_libnvinfer=trt)
        self.cuda("13.2")
        self.tensorrt("10.16.2.10", "3.12")

    def card(self, name: str = "NVIDIA A10", driver: str = "580.95.05") -> None:
        """/proc of NVIDIA's open kernel module."""
        self.write(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder@U22)  Tue Sep 23\n"
            "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)\n",
        )
        self.write(
            "proc/driver/nvidia/gpus/0000:00:1e.0/information",
            f"Model: \t\t {name}\nIRQ:   \t\t 10\nGPU UUID: \t GPU-9221d5d1\nBus Type: \t PCIe\nDevice Minor: \t 0\n",
        )

    def jtop_service(self, version: str, form: str = "dist-info") -> None:
        """jetson-stats as `sudo pip3 install` leaves it."""
        self.write("etc/systemd/system/jtop.service", "[Service]\nExecStart=/usr/local/bin/jtop --force\n")
        self.program(self.root / "usr/local/bin/jtop", "")
        self.write(f"usr/local/lib/python3.10/dist-packages/jetson_stats-{version}.{form}/METADATA", "")
