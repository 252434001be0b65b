"""The models that we know by name. Owns: catalog entries (yaml/models) and their place in the cache. Needs: yamls, env.
Never: the network; `edge.pull` fetches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge import env
from edge.hashes import check_sha256
from edge.yamls import load_named, yaml_names


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the model file inside a wheel of the Python index. Parts are joined in order."""

    package: str
    version: str
    member: str  # path inside the wheel
    wheel_bytes: int
    size_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_sha256(self.sha256)


@dataclass(frozen=True, slots=True)
class HubFile:
    """The same file on Hugging Face."""

    repo: str
    revision: str
    file: str


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One model file that can be pulled. Its name is the name of its YAML file."""

    title: str
    file: str
    size_bytes: int
    sha256: str  # of the joined file
    licence: str
    licence_url: str
    chat: bool  # has a chat template; a base model completes text
    parts: tuple[Part, ...]
    hugging_face: HubFile | None = None

    def __post_init__(self) -> None:
        check_sha256(self.sha256)
        if Path(self.file).name != self.file:
            raise ValueError(f"file {self.file!r} must be a plain name")
        if self.parts and sum(part.size_bytes for part in self.parts) != self.size_bytes:
            raise ValueError("the sizes of the parts do not add up to size_bytes")


def catalog_names() -> tuple[str, ...]:
    return yaml_names("models")


def catalog_model(name: str) -> CatalogModel:
    """ConfigError with the nearest name where there is none of that name."""
    return load_named("models", name, CatalogModel)


def model_folder(name: str) -> Path:
    """Where the pulled model `name` is kept."""
    return env.cache_folder() / "models" / name
