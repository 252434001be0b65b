"""The folder of baked prefixes: what `edge verify` says of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from baked_files import draft, packed

from edge.baked.folder import is_damaged, verify_baked
from edge.errors import PackageError
from edge.jsons import write_json
from edge.progress import SilentProgress


def test_verify_names_every_bad_prefix(tmp_path: Path) -> None:
    (tmp_path / "baked").mkdir()
    for name in ("guide", "manual"):
        (tmp_path / "baked" / f"{name}.pages").write_bytes(b"no header")
    with pytest.raises(PackageError) as caught:
        verify_baked(SimpleNamespace(path=tmp_path), SilentProgress())  # type: ignore[arg-type]
    said = str(caught.value)
    assert said.startswith("2 of 2 baked prefixes are bad. ")
    assert "guide.pages: " in said and "manual.pages: " in said


def test_a_prefix_of_another_version_is_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "baked").mkdir()
    path = tmp_path / "baked" / "manual.pages"
    assert not is_damaged(tmp_path, "manual")
    path.write_bytes(packed(write_json(draft()).replace('"format_version": 1', '"format_version": 7').encode()))
    assert not is_damaged(tmp_path, "manual"), "whoever wrote it reads it still"
    path.write_bytes(path.read_bytes()[:-1])
    assert is_damaged(tmp_path, "manual")
