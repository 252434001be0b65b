"""Which file a MODEL is."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.catalog import catalog_model, model_folder
from edge.cli.models import find_model
from edge.errors import PullError
from edge.progress import SilentProgress

NAME = "smollm2-135m-instruct"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the cache that has the size of the model and none of its bytes."""
    monkeypatch.setenv("EDGE_CACHE", str(tmp_path))
    model = catalog_model(NAME)
    path = model_folder(NAME) / model.file
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.size_bytes)
    return path


def test_who_reads_no_weights_takes_a_file_of_the_right_size(cached: Path) -> None:
    found = find_model(NAME, SilentProgress(), offline=True, hashed=False)
    assert (found.name, found.path) == (NAME, cached)


def test_who_reads_weights_has_them_hashed(cached: Path) -> None:
    with pytest.raises(PullError, match="damaged"):
        find_model(NAME, SilentProgress(), offline=True)


def test_a_file_of_another_size_is_never_taken(cached: Path) -> None:
    with cached.open("ab") as file:
        file.write(b"more")
    with pytest.raises(PullError, match="damaged"):
        find_model(NAME, SilentProgress(), offline=True, hashed=False)
