"""python tests/fuzz: the readers under fuzz, the long form. Prints a table; exits with 1 where a reader failed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from campaign import Campaign
from reader import Failed, judge
from readers import ALL, READERS
from worker import input_of, scratch_root


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all readers together (default: a million)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: all processors)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs")
    parser.add_argument("--reader", action="append", choices=sorted(ALL), help="only this one; may be given again")
    parser.add_argument("--index", type=int, help="run this one input of the --reader here, and show what happens")
    parser.add_argument("--out", type=Path, help="where runs and failures are kept (default: build/fuzz/SEED-INPUTS)")
    asked = parser.parse_args()
    readers = [ALL[name] for name in asked.reader or READERS]
    if asked.index is not None:
        return _show(readers[0].name, asked.seed, asked.index)
    folder = asked.out or Path(f"build/fuzz/{asked.seed}-{asked.inputs}")
    campaign = Campaign(readers, asked.inputs, asked.seed, folder)
    total, started = len(campaign.left), time.monotonic()
    for done, run in enumerate(campaign.go(asked.jobs), 1):
        if sys.stderr.isatty():
            print(f"\r{done} of {total} runs, {run.reader}", end=" " * 20, file=sys.stderr, flush=True)
    print(f"\nreader       inputs  accepted   refused  kinds  failed  inputs/s  peak MiB   ({folder}, seed {asked.seed})")
    for name, f in campaign.figures.items():
        count = f.accepted + f.refused + f.failed
        rate = f"{count / f.seconds:,.0f}" if f.seconds else "-"
        print(f"{name:10}{count:9,}{f.accepted:10,}{f.refused:10,}{len(f.kinds):7}{f.failed:8,}{rate:>10}{f.megabytes:10}")
    print(f"{time.monotonic() - started:,.0f} s with {asked.jobs} processes")
    for line in campaign.failures:
        print(f"FAILED {line}")
    return 1 if campaign.failures else 0


def _show(name: str, seed: int, index: int) -> int:
    reader = ALL[name]
    with tempfile.TemporaryDirectory(dir=scratch_root()) as scratch:
        target = reader.open(Path(scratch))
        data = input_of(target, reader, seed, index)
        print(f"{name} input {index} of seed {seed}: {len(data):,} bytes, {data[:200]!r}", flush=True)
        outcome = judge(target, reader.errors, data)
    print(outcome.detail if isinstance(outcome, Failed) else outcome)
    return 1 if isinstance(outcome, Failed) else 0


if __name__ == "__main__":
    sys.exit(main())
