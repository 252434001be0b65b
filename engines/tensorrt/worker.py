"""The process in which a library works. Owns: the order of a build there. Needs: one library. Never: the plan's final name.

`build` reads a BuildJob as the first line of stdin and writes messages to stdout; `version LIBRARY` loads the library and says
its version; `open LIBRARY` reads the path of a plan as the first line of stdin, deserialises it, and says what is in it. A
crash of the library, or the kernel's killing it for memory, ends this process and not the caller's.

stdin stays open as long as somebody wants the plan. When it ends, because the caller was interrupted or is no more, the build
is stopped at its next step; what was measured is kept for the next one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edge.engine_library import TITLES, LibraryKind
from edge.errors import EdgeError
from edge.monitors.memory import process_memory
from engines.tensorrt.config import apply_limits, apply_target, load_timing_cache, save_timing_cache
from engines.tensorrt.deserialised import read_plan
from engines.tensorrt.job import (
    BuildJob,
    Built,
    Failed,
    GraphRefused,
    Message,
    PhaseDone,
    PhaseStarted,
    partial_path,
    write_message,
)
from engines.tensorrt.library import load_library
from engines.tensorrt.log import LibraryLog
from engines.tensorrt.monitor import make_monitor
from engines.tensorrt.network import check_tensors, constant_bytes, create_network, create_profile, parse_graph, read_tensors

if TYPE_CHECKING:
    from engines.tensorrt.library import trt

# How the libraries say that memory was not enough, where they do not raise.
_OUT_OF_MEMORY = ("bad_alloc", "OutOfMemory", "out of memory")


def main() -> None:
    """The process, from its arguments to its exit code."""
    match sys.argv[1:]:
        case ["version", ("tensorrt" | "tensorrt-rtx") as library]:
            sys.exit(_version(library))
        case ["build"]:
            sys.exit(_build(Channel(_take_stdout())))
        case ["open", ("tensorrt" | "tensorrt-rtx") as library]:
            sys.exit(_open(library, Channel(_take_stdout())))
        case words:
            sys.exit(f"expected build, or version or open with tensorrt or tensorrt-rtx; not {words}")


class Channel:
    """Messages to the caller, from any thread. When nobody listens any more they are dropped."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock, suppress(OSError):
            self._out.write(write_message(message))
            self._out.flush()


def _version(library: LibraryKind) -> int:
    out = _take_stdout()
    try:
        version, code = load_library(library), 0
    except EdgeError as error:
        version, code = str(error), 1
    out.write(f"{version}\n")
    out.flush()
    return code


def _open(library: LibraryKind, channel: Channel) -> int:
    _volunteer()
    plan = Path(sys.stdin.readline().rstrip("\n"))
    try:
        load_library(library)
        channel.send(read_plan(plan, library))
    except EdgeError as error:
        channel.send(Failed(str(error), refused=False))
        return 1
    return 0


def _build(channel: Channel) -> int:
    _volunteer()
    job = BuildJob.from_json(sys.stdin.readline())
    stop = threading.Event()
    threading.Thread(target=_watch, args=(stop, job.grace_seconds), daemon=True).start()
    try:
        channel.send(build(job, channel, stop))
    except EdgeError as error:
        channel.send(Failed(str(error), refused=isinstance(error, GraphRefused)))
        return 1
    except MemoryError:
        fact = f"{job.graph}: the memory was not enough for the builder"
        channel.send(Failed(f"{fact}. Close other programs, or build on a larger machine", refused=False))
        return 1
    return 0


def build(job: BuildJob, channel: Channel, stop: threading.Event) -> Built:
    """Builds the plan of `job` under its partial name. Raises EdgeError."""
    version = load_library(job.library)
    from engines.tensorrt.library import trt

    name = f"{TITLES[job.library]} {version}"
    log = LibraryLog()
    logger = log.make_logger()
    builder = _make_builder(logger, name, log)
    network = create_network(builder, job.graph.stem)
    parser = trt.OnnxParser(network, logger)
    channel.send(PhaseStarted("reading the graph", 0))
    parse_graph(parser, job.graph, name, log)
    channel.send(PhaseDone("reading the graph"))
    tensors = read_tensors(network)
    check_tensors(tensors, job.tensors, job.graph)
    config = builder.create_builder_config()
    apply_limits(config, job)
    if job.library == "tensorrt-rtx":
        apply_target(config, job.sm, version)
    for profile in job.profiles:
        if config.add_optimization_profile(create_profile(builder, network, profile, job.graph)) < 0:
            raise EdgeError(
                f"{job.graph}: {name} does not take the profile {profile.name} ({log.last_error or 'it gives no reason'}). "
                "Build the package again"
            )
    monitor = make_monitor(channel.send, stop)
    config.progress_monitor = monitor
    plan, note = _serialise(builder, network, config, job)
    if plan is None:
        if stop.is_set():
            raise EdgeError(f"{job.graph}: {name} was stopped. Run it again to go on")
        if any(word in log.last_error for word in _OUT_OF_MEMORY):
            raise MemoryError
        raise GraphRefused(
            f"{job.graph}: {name} built no plan ({log.last_error or 'it gives no reason'}). "
            "Build for another target, or with another version of the library"
        )
    nbytes = _write(plan, job.plan)
    return Built(version, nbytes, constant_bytes(network), tensors, process_memory().peak or 0, note)


def _make_builder(logger: trt.ILogger, name: str, log: LibraryLog) -> trt.Builder:
    from engines.tensorrt.library import trt

    try:
        return trt.Builder(logger)
    except TypeError as error:  # what its bindings raise where the library gives nothing back
        raise EdgeError(f"{name} cannot begin ({log.last_error or error}). See what nvidia-smi or tegrastats says") from error


def _serialise(
    builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig, job: BuildJob
) -> tuple[trt.IHostMemory | None, str]:
    """The plan, or None; and what became of the timing cache, which is kept however the build ends."""
    notes = []
    if job.timing_cache is not None:
        notes.append(load_timing_cache(config, job.timing_cache))
    plan: trt.IHostMemory | None = builder.build_serialized_network(network, config)
    if job.timing_cache is not None:
        notes.append(save_timing_cache(config, job.timing_cache))
    return plan, "; ".join(note for note in notes if note)


def _write(plan: Any, path: Path) -> int:
    """Writes the plan, an IHostMemory, under its partial name; returns its bytes. EdgeError where the disk does not take it."""
    try:
        with memoryview(plan) as data, partial_path(path).open("wb") as file:
            file.write(data)
            return data.nbytes
    except OSError as error:
        raise EdgeError(f"{path}: cannot be written ({error.strerror}). Free some space, or work on another disk") from error


def _take_stdout() -> IO[str]:
    """stdout for messages alone: what the library itself prints there goes to stderr from now on."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _watch(stop: threading.Event, grace_seconds: float) -> None:
    """Waits for the end of stdin, then stops the build. Some phases have no steps, so at last it ends the process."""
    while os.read(0, 1024):
        pass
    stop.set()
    time.sleep(grace_seconds)
    os._exit(1)


def _volunteer() -> None:
    """If memory runs out, the kernel shall end this process rather than a desktop or the shell that started it (proc(5))."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
