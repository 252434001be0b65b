"""One run of inputs in a process of its own. Owns: its limits, the place that says which input is under way. Needs: readers.
Never: what becomes of the results.

python worker.py READER SEED BEGIN END FOLDER writes one JSON line a failure and one of figures at the end. What no Python code
can catch ends the process: SIGPROF when an input has used up its processor time, a signal of a crash, the limit of the address
space in native code. FOLDER/at then says at which input.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from reader import Accepted, Failed, Reader, Refused, Target, judge
from readers import ALL

AT = struct.Struct("<3Q")  # the input under way, accepted, refused
AT_NAME = "at"
MOST_REPEATS = 3  # failures of one kind that are reported with their detail
MEMORY = Path("/dev/shm")  # a file system in memory, on Linux


def input_of(target: Target, reader: Reader, seed: int, index: int) -> bytes:
    """The input with this number: the same on every machine."""
    return target.make(Random(f"{reader.name} {seed} {index}"))


def scratch_root() -> Path | None:
    """Where a reader's files lie; None: where temporary files do."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None


def resident_bytes() -> int:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def limit_process(reader: Reader) -> int:
    """Sets the limits; the most resident bytes that the process may then reach."""
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, chain=True)  # says where, and the signal ends the process
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    # Address space, not memory: an allocation that could never be filled fails at once. Mappings and stacks of threads count.
    space = pages * mmap.PAGESIZE + (reader.megabytes << 20) * 4
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return resident_bytes() + (reader.megabytes << 20)


def work(reader: Reader, seed: int, begin: int, end: int, folder: Path) -> None:
    """Runs inputs [begin, end)."""
    place = (folder / AT_NAME).open("w+b")
    place.truncate(AT.size)
    shared = mmap.mmap(place.fileno(), AT.size)
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{reader.name}-", dir=scratch_root()) as scratch:
        target = reader.open(Path(scratch))
        judge(target, reader.errors, input_of(target, reader, seed, begin))  # what is imported late counts as at the start
        bound = limit_process(reader)
        accepted, kinds, failures = 0, Counter[str](), Counter[str]()
        started = time.monotonic()
        for index in range(begin, end):
            AT.pack_into(shared, 0, index, accepted, index - begin - accepted)
            signal.setitimer(signal.ITIMER_PROF, reader.cpu_seconds)
            outcome = judge(target, reader.errors, input_of(target, reader, seed, index))
            signal.setitimer(signal.ITIMER_PROF, 0)
            if (resident := resident_bytes()) > bound:
                detail = f"the process grew to {resident >> 20} MiB, {bound >> 20} are allowed"
                bound, outcome = resident + (reader.megabytes << 20) // 4, Failed("memory", detail)
            if isinstance(outcome, Accepted):
                accepted += 1
            elif isinstance(outcome, Refused):
                kinds[outcome.kind] += 1
            else:
                failures[outcome.kind] += 1
                if failures[outcome.kind] <= MOST_REPEATS:
                    print(json.dumps({"index": index, "kind": outcome.kind, "detail": outcome.detail}), flush=True)
        figures = {
            "accepted": accepted,
            "refused": kinds.total(),
            "failed": sum(failures.values()),
            "kinds": list(kinds),
            "seconds": time.monotonic() - started,
            "megabytes": resident_bytes() >> 20,
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    name, *numbers, where = sys.argv[1:]
    work(ALL[name], *map(int, numbers), Path(where))  # type: ignore[arg-type]
