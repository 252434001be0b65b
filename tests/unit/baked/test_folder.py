"""The folder of baked prefixes: what `edge verify` says of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from edge.baked.folder import verify_baked
from edge.errors import PackageError
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
