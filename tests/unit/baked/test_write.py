"""A prefix that is being written: what is left of it when a Ctrl-C comes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edge.baked.write import partial_file


@pytest.mark.parametrize(("module", "name"), [(os, "open"), (fcntl, "flock"), (os, "fstat"), (os, "fsync")])
def test_a_ctrl_c_leaves_nothing_wherever_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    stop_behind_first_call(monkeypatch, module, name)
    with pytest.raises(KeyboardInterrupt), partial_file(tmp_path, "manual", replaces=False) as file:
        file.write(b"pages")
    assert list(tmp_path.iterdir()) == []


def test_a_ctrl_c_leaves_the_file_of_another_bake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with partial_file(tmp_path, "manual", replaces=False) as file:
        file.write(b"pages")
        with monkeypatch.context() as patched:
            stop_behind_first_call(patched, os, "open")
            with pytest.raises(KeyboardInterrupt), partial_file(tmp_path, "manual", replaces=False):
                pass
    assert (tmp_path / "baked" / "manual.pages").read_bytes() == b"pages"


def stop_behind_first_call(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    real: Callable[..., Any] = getattr(module, name)
    calls = []

    def call(*words: Any, **more: Any) -> Any:
        found = real(*words, **more)
        calls.append(found)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(module, name, call)
