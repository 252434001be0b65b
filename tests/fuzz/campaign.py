"""Many inputs of many readers, in worker processes. Owns: the runs, their order, what is kept on disk. Needs: worker.
Never: what an input is.

FOLDER/runs.jsonl has a line for each finished run, so that a campaign that was stopped goes on where it was; FOLDER/failures
has the input and the report of each failure.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reader import Reader
from readers import ALL
from worker import AT, AT_NAME, input_of, scratch_root

RUN_INPUTS = 20_000  # of one process; it is then replaced, so that a leak shows against a fresh one
STILL_SECONDS = 600  # without a new input: it waits for something, which uses no processor time
MOST_DEATHS = 20  # of a reader's processes; then its other inputs are left out
SHOWN = 4000  # characters at the end of what a dead process wrote


@dataclass(frozen=True, slots=True)
class Run:
    """Inputs [begin, end) of one reader."""

    reader: str
    begin: int
    end: int


@dataclass(slots=True)
class Figures:
    """What became of the inputs of one run, or of several."""

    accepted: int = 0
    refused: int = 0
    failed: int = 0
    kinds: set[str] = field(default_factory=set)  # of refusals
    seconds: float = 0.0  # of all processes together
    megabytes: int = 0  # the largest process

    def add(self, other: dict[str, Any]) -> None:
        self.accepted += other["accepted"]
        self.refused += other["refused"]
        self.failed += other["failed"]
        self.kinds |= set(other["kinds"])
        self.seconds += other["seconds"]
        self.megabytes = max(self.megabytes, other["megabytes"])


def plan_runs(readers: Sequence[Reader], inputs: int) -> list[Run]:
    """`inputs` over the readers by their shares, in turn, so that each has had some of its inputs early."""
    total = sum(reader.share for reader in readers)
    counts = {reader.name: -(-inputs * reader.share // total) for reader in readers}
    runs = [
        Run(name, begin, min(begin + RUN_INPUTS, count))
        for name, count in counts.items()
        for begin in range(0, count, RUN_INPUTS)
    ]
    return sorted(runs, key=lambda run: run.begin / counts[run.reader])


def _rest_of(run: Run, done: Mapping[tuple[str, int], int]) -> Run:
    begin = run.begin
    while (run.reader, begin) in done and begin < run.end:
        begin = done[run.reader, begin]
    return Run(run.reader, begin, run.end)


class Campaign:
    """The runs of one seed and count. Figures by reader grow as runs end."""

    def __init__(self, readers: Sequence[Reader], inputs: int, seed: int, folder: Path) -> None:
        self.figures = {reader.name: Figures() for reader in readers}
        self.failures: list[str] = []  # one line each
        self._seed, self._folder = seed, folder
        self._deaths = dict.fromkeys(self.figures, 0)
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "runs.jsonl"
        done: dict[
            tuple[str, int], int
        ] = {}  # reader, begin -> end; a run whose process died ends early, the next begins there
        for line in self._whole_log_lines():
            ended = json.loads(line)
            run = Run(**ended["run"])
            done[run.reader, run.begin] = run.end
            self._count(ended["run"]["reader"], ended["figures"], ended["failures"])
        self.left = [rest for run in plan_runs(readers, inputs) if (rest := _rest_of(run, done)).begin < rest.end]

    def _whole_log_lines(self) -> list[str]:
        """What is not whole, since the campaign was stopped while it wrote, is taken off: that run is worked again."""
        if not self._log.exists():
            return []
        text = self._log.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._log.write_text(whole, encoding="utf-8")
        return whole.splitlines()

    def go(self, jobs: int) -> Iterator[Run]:
        """Works with `jobs` processes; yields each run as it ends."""
        waiting, working = list(reversed(self.left)), list[_Worker]()
        try:
            while waiting or working:
                while waiting and len(working) < jobs:
                    working.append(_Worker(waiting.pop(), self._seed))
                time.sleep(0.02)
                for worker in [worker for worker in working if worker.has_ended()]:
                    working.remove(worker)
                    self._end(worker)
                    if (rest := worker.rest()) and self._deaths[worker.run.reader] < MOST_DEATHS:
                        waiting.append(rest)
                    yield worker.run
        finally:
            for worker in working:
                worker.stop()

    def _end(self, worker: _Worker) -> None:
        run, name = worker.run, worker.run.reader
        figures, reports = worker.results()
        lines = [self._keep(name, report) for report in reports]
        self._deaths[name] += worker.has_died()
        done = Run(name, run.begin, worker.at() + 1) if worker.has_died() else run
        entry = {"run": asdict(done), "figures": figures, "failures": lines}
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
        self._count(name, figures, lines)

    def _count(self, name: str, figures: dict[str, Any], lines: list[str]) -> None:
        if name in self.figures:
            self.figures[name].add(figures)
            self.failures += lines

    def _keep(self, name: str, report: dict[str, Any]) -> str:
        """Writes the input and the report of a failure; one line about it."""
        stem = self._folder / "failures" / f"{name}-{self._seed}-{report['index']}"
        stem.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
            data = input_of(ALL[name].open(Path(scratch)), ALL[name], self._seed, report["index"])
        stem.with_suffix(".bin").write_bytes(data)
        stem.with_suffix(".txt").write_text(report["detail"], encoding="utf-8")
        return f"{name} input {report['index']}: {report['kind']} ({stem}.txt)"


class _Worker:
    """One process with its run."""

    def __init__(self, run: Run, seed: int) -> None:
        self.run = run
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz-worker-")
        self._path = Path(self._folder.name)
        self._out, self._errors = (self._path / "out").open("w+b"), (self._path / "errors").open("w+b")
        words = [run.reader, seed, run.begin, run.end, self._path]
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), *map(str, words)]
        self._process = subprocess.Popen(command, stdout=self._out, stderr=self._errors)
        self._seen, self._since = -1, time.monotonic()

    def has_ended(self) -> bool:
        if self._process.poll() is not None:
            return True
        if self.at() != self._seen:
            self._seen, self._since = self.at(), time.monotonic()
        elif time.monotonic() - self._since > STILL_SECONDS:
            self.stop()
        return False

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def at(self) -> int:
        """The input under way, or the last one."""
        place = self._path / AT_NAME
        data = place.read_bytes() if place.exists() else b""
        return int(AT.unpack(data)[0]) if len(data) == AT.size else self.run.begin

    def has_died(self) -> bool:
        return self._process.returncode != 0

    def rest(self) -> Run | None:
        """What is left of the run behind the input that ended the process; None where nothing is."""
        behind = self.at() + 1
        return Run(self.run.reader, behind, self.run.end) if self.has_died() and behind < self.run.end else None

    def results(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Figures and reports of failures, the end of the process among them."""
        text = (self._path / "out").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be cut off by its death
        if not self.has_died():
            return lines[-1], lines[:-1]
        place = self._path / AT_NAME
        _, accepted, refused = AT.unpack(place.read_bytes()) if place.exists() else (0, 0, 0)
        text = (self._path / "errors").read_text(encoding="utf-8", errors="replace")[-SHOWN:] or "it wrote nothing"
        code = self._process.returncode
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        kind = "used up its processor time" if code == -signal.SIGPROF else f"the process ended: {name}"
        report = {"index": self.at(), "kind": kind, "detail": text}
        figures = {"accepted": accepted, "refused": refused, "failed": 1, "kinds": [], "seconds": 0.0, "megabytes": 0}
        return figures, [*lines, report]
