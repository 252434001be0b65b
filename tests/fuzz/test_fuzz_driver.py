"""The driver of the fuzz runs: what it must see, keep and go on from."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

INPUTS = 120


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(__file__).parent), "--reader", "faulty", "--jobs", "1", "--out", str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("fuzz")
    return out, run(out, "--inputs", str(INPUTS))


@pytest.mark.parametrize(
    "fault",
    [
        "KeyError at target_faulty.py:run",
        "the process ended: SIGSEGV",
        "the process ended: SIGKILL",  # in the middle of a line
        "used up its processor time",
        "memory",
    ],
)
def test_every_kind_of_fault_is_reported(faulty: tuple[Path, subprocess.CompletedProcess[str]], fault: str) -> None:
    out, done = faulty
    assert done.returncode == 1
    index = re.search(rf"FAILED faulty input (\d+): {re.escape(fault)}", done.stdout)
    assert index, done.stdout + done.stderr
    assert (out / "failures" / f"faulty-0-{index[1]}.txt").stat().st_size


def test_a_fault_does_not_hide_the_inputs_behind_it(faulty: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    line = next(line for line in faulty[1].stdout.splitlines() if line.startswith("faulty"))
    assert int(line.split()[1]) == INPUTS


def test_a_kept_input_is_the_one_that_its_number_makes_again(faulty: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = faulty
    index = re.search(r"input (\d+): KeyError", done.stdout)
    assert index and (out / "failures" / f"faulty-0-{index[1]}.bin").read_bytes() == b"bug"
    again = run(out, "--index", index[1])
    assert again.returncode == 1 and "KeyError: b'bug'" in again.stdout


def test_a_campaign_that_has_ended_is_not_run_again(faulty: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = faulty
    runs = (out / "runs.jsonl").read_bytes()
    again = run(out, "--inputs", str(INPUTS))
    assert (out / "runs.jsonl").read_bytes() == runs
    assert [line for line in again.stdout.splitlines() if line.startswith(("faulty", "FAILED"))] == [
        line for line in done.stdout.splitlines() if line.startswith(("faulty", "FAILED"))
    ]


def test_a_campaign_that_was_stopped_while_it_wrote_goes_on(
    faulty: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    log, done = (faulty[0] / "runs.jsonl").read_text(), faulty[1]
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "runs.jsonl").write_text(log[: log.rindex("\n", 0, -1) + 20])  # its last line but begun
    again = run(begun, "--inputs", str(INPUTS))
    assert (begun / "runs.jsonl").read_text().count("\n") == log.count("\n")
    rows = [
        next(line.split()[:6] for line in out.splitlines() if line.startswith("faulty")) for out in (done.stdout, again.stdout)
    ]
    assert rows[0] == rows[1]
