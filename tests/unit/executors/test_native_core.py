"""Loading the native core: one that does not go with this Python code is refused with the command that mends it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import edge
from edge import contract
from edge.errors import ExecutorError
from edge.executors.native_core import load_core

# Whoever changes edge/_core.pyi counts contract.INTERFACE up, and puts both here.
INTERFACE, DIGEST = 2, "864c0b3f6a2712e5"


def load(monkeypatch: pytest.MonkeyPatch, **names: int) -> object:
    core = SimpleNamespace(__file__="/somewhere/_core.so", CONTRACT_VERSION=contract.VERSION, **names)
    monkeypatch.setitem(sys.modules, "edge._core", core)  # type: ignore[arg-type]
    monkeypatch.setattr(edge, "_core", core, raising=False)
    return load_core()


@pytest.mark.parametrize(("names", "found"), [({}, 0), ({"INTERFACE": contract.INTERFACE + 1}, contract.INTERFACE + 1)])
def test_a_core_of_another_interface_is_refused(monkeypatch: pytest.MonkeyPatch, names: dict[str, int], found: int) -> None:
    with pytest.raises(ExecutorError) as caught:
        load(monkeypatch, **names)
    assert str(caught.value).startswith(f"/somewhere/_core.so: has the interface {found}, this Python code calls ")
    assert "./install.sh" in str(caught.value)


def test_a_core_of_this_interface_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, INTERFACE=contract.INTERFACE) is sys.modules["edge._core"]


def test_the_interface_has_the_number_that_was_given_to_it() -> None:
    stub = Path(edge.__file__).with_name("_core.pyi").read_bytes()
    assert (contract.INTERFACE, hashlib.sha256(stub).hexdigest()[:16]) == (INTERFACE, DIGEST)
