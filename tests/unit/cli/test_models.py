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


@pytest.mark.parametrize(
    ("path", "stem"),
    [("a/Tiny Model", "Tiny Model"), ("a/Tiny.gguf.d", "Tiny.gguf.d"), ("models--org--Tiny-1B/snapshots/0123", "Tiny-1B")],
)
def test_what_is_made_from_a_folder_has_its_name(path: str, stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / path
    folder.mkdir(parents=True)
    found = find_model(str(folder), SilentProgress(), offline=True)
    assert (found.name, found.stem, found.path) == (str(folder), stem, folder)
    monkeypatch.chdir(folder)
    assert find_model(".", SilentProgress(), offline=True).stem == stem


def test_a_file_gives_its_name_without_gguf(tmp_path: Path) -> None:
    (tmp_path / "Tiny-Q4.gguf").touch()
    assert find_model(str(tmp_path / "Tiny-Q4.gguf"), SilentProgress(), offline=True).stem == "Tiny-Q4"


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
