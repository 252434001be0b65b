"""The header of a TensorRT-RTX plan. That real plans have it is tested where the library is: tests/tiny/test_rtx_plans.py."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engines.tensorrt.plan_file import PlanFacts, plan_facts


def header(magic: bytes = b"vtrt", mask: int = 4) -> bytes:
    return struct.pack("<4sIQQ4B4sI5IQ", magic, 0, 2, 300_000, 1, 7, 1, 116, b"vtrt", mask, 0, 0, 0, 0, 0, 200_000)


def test_version_capabilities_and_sizes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(header() + b"more")
    assert plan_facts(path) == PlanFacts("1.7.1.116", ("8.6",), 300_000, 200_000)


def test_a_plan_may_run_on_several(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(header(mask=0b101100))
    facts = plan_facts(path)
    assert facts is not None and facts.sms == ("8.6", "8.9", "12.1")


@pytest.mark.parametrize("data", [b"", header()[:-1], header(magic=b"ftrt"), header(mask=1 << 6)])
def test_what_is_not_known_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(data)
    assert plan_facts(path) is None


def test_a_missing_plan_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        plan_facts(tmp_path / "model.plan")
