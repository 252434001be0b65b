"""From a graph to a plan. Owns: build_plan, the checks of a plan. Needs: a worker process. Never: the library in this one.

A library that builds can crash, be killed for memory, or say that it succeeded and write nothing. So it works in a child, under
a name that is not the plan's; the plan gets its name when it was found whole.
"""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from edge.engine_library import TITLES
from edge.errors import BuildError
from edge.exit_codes import ending
from edge.gpu import NoGpu, probe_gpu
from edge.monitors.memory import machine_memory
from edge.progress import Progress
from edge.units import human_bytes
from engines.tensorrt.child import Child
from engines.tensorrt.job import BuildJob, BuildOutcome, Built, Failed, GraphRefused, Opened, partial_path, read_message
from engines.tensorrt.library import worker_command
from engines.tensorrt.log import one_line
from engines.tensorrt.phases import Phases
from engines.tensorrt.plan_file import plan_facts

# Constants can be folded and equal ones shared, but a plan with much less than the graph's weights has lost some.
LEAST_OF_WEIGHTS = 0.8
# More than this and what small matrices are padded by, and the library widened some weights or keeps them twice: worth saying.
MOST_OF_WEIGHTS = 1.25
PADDING_BYTES = 4 << 20


def build_plan(job: BuildJob, progress: Progress) -> BuildOutcome:
    """Builds job.plan. Raises BuildError; then, and on Ctrl-C, nothing new stands there, and the worker has ended."""
    begin = time.monotonic()
    driver = _check_gpu(job)
    _check_room(job)
    partial = partial_path(job.plan)
    try:
        built = _run(job, progress)
        note = _check_plan(partial, built, job)
        partial.replace(job.plan)
    except OSError as error:
        raise BuildError(f"{job.plan}: {error.strerror}. Check permissions and free space, or work on another disk") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return BuildOutcome(
        version=built.version,
        driver=driver,
        plan_bytes=built.plan_bytes,
        weights_bytes=built.weights_bytes,
        tensors=built.tensors,
        peak_bytes=built.peak_bytes,
        seconds=time.monotonic() - begin,
        note="; ".join(part for part in (built.note, note) if part),
    )


def _check_gpu(job: BuildJob) -> str | None:
    """CUDA version of the driver with which TensorRT builds for the GPU at hand; BuildError where it lacks the right one. None
    for TensorRT-RTX, which asks no driver and builds the same plan beside any."""
    if job.library == "tensorrt-rtx":
        return None
    gpu = probe_gpu()
    if isinstance(gpu, NoGpu):
        raise BuildError(f"TensorRT builds on its GPU, and {gpu.reason}. {gpu.remedy}")
    if gpu.first.sm != job.sm:
        raise BuildError(
            f"{job.graph}: is to be built for sm {job.sm}, this GPU is sm {gpu.first.sm} ({gpu.first.name}). Build there"
        )
    return gpu.cuda


def _check_room(job: BuildJob) -> None:
    """BuildError where the disk cannot hold the plan: better now than after the build."""
    weights = sum(path.stat().st_size for path in job.graph.parent.glob("*.data"))
    try:
        free = shutil.disk_usage(job.plan.parent).free
    except OSError as error:
        raise BuildError(f"{job.plan.parent}: {error.strerror}. Check the path and its permissions") from error
    if free < weights:
        raise BuildError(
            f"{job.plan}: the plan takes about {human_bytes(weights)}, {human_bytes(free)} are free on that disk. "
            "Free some space, or work on another disk"
        )


def _run(job: BuildJob, progress: Progress) -> Built:
    """What the worker says at its end. BuildError where it fails, or dies."""
    available = machine_memory().available
    phases = Phases(progress)
    with Child(worker_command("build"), job.to_json(), job.grace_seconds) as child:
        for line in child.lines():
            if line is None:
                phases.tick(time.monotonic())
                continue
            message = read_message(line)
            if isinstance(message, Built):
                phases.finish()
                return message
            if isinstance(message, Failed):
                raise GraphRefused(message.text) if message.refused else BuildError(message.text)
            assert not isinstance(message, Opened), "a build opens no plan"
            phases.message(message, time.monotonic())
        raise _death(job, child, available)


def _death(job: BuildJob, child: Child, available: int) -> BuildError:
    """Why a worker ended without a last message. A library that crashes over a graph has refused it."""
    code = child.exit_code()
    if code == -signal.SIGKILL:
        return BuildError(
            f"{job.graph}: the builder was killed, most likely for want of memory: it held {human_bytes(child.peak_bytes)}, "
            f"and {human_bytes(available)} were available when it began. Close other programs, or build on a larger machine"
        )
    how = f"{'crashed' if code < 0 else 'ended'} ({ending(code)})"
    words = one_line(child.last_words())
    kind = GraphRefused if code < 0 else BuildError
    return kind(
        f"{job.graph}: {TITLES[job.library]} {how} while it built{f', its last words: {words}' if words else ''}. "
        "Try again; if it ends so again, build for another target or with another version of the library"
    )


def _check_plan(partial: Path, built: Built, job: BuildJob) -> str:
    """Looks at the plan that the library says it built; returns what is worth saying. BuildError where it is not whole."""
    name = f"{TITLES[job.library]} {built.version} says that the build succeeded"
    try:
        size = partial.stat().st_size
    except FileNotFoundError:
        raise BuildError(f"{job.plan}: {name}, and there is no plan. Look for free space, then try again") from None
    least = round(LEAST_OF_WEIGHTS * built.weights_bytes)
    if size == 0 or size != built.plan_bytes or size < least:
        raise BuildError(
            f"{job.plan}: {name}, and the plan has {size} bytes where {built.plan_bytes} were written, of which "
            f"{built.weights_bytes} are weights. Look for free space, then try again"
        )
    if job.library == "tensorrt":
        return ""
    facts = plan_facts(partial)
    if facts is None:
        return f"the header of a plan of {TITLES[job.library]} {built.version} is not known, so only its size was checked"
    if facts.plan_bytes != size or facts.sms != (job.sm,) or facts.version != built.version or facts.weights_bytes < least:
        raise BuildError(
            f"{job.plan}: {name}, and the plan says of itself: {facts}. Expected are {size} bytes for sm {job.sm}, of which "
            f"{built.weights_bytes} are weights. Build again, with another version of the library"
        )
    if facts.weights_bytes > MOST_OF_WEIGHTS * built.weights_bytes + PADDING_BYTES:
        wide, packed = human_bytes(facts.weights_bytes), human_bytes(built.weights_bytes)
        why = f"{TITLES[job.library]} widened some, or keeps a copy for each profile"
        return f"weights take {wide} in the plan and {packed} in the graph: {why}"
    return ""
