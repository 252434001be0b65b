"""The texts that anchors are measured on, and where they come from. Owns: the list, which part each is of, fetching. Needs:
apt-get, dpkg-deb, pip, npm. Never: labels.

All are free: Debian's manuals (GPL-2 or later; the handbook also CC-BY-SA-3.0), Electron's documentation and FastAPI's (MIT).
Rules and weights were chosen on the part `tuned` alone; `held out` has other authors, and other ways of writing headings.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["tuned", "held out"]
LANGUAGES = ("en", "de", "fr", "es", "zh")
FASTAPI = "fastapi==0.109.2"  # the last source distributions of the kind that holds its documentation
ELECTRON = "electron-i18n@1.3136.0"
_PAGE_CHARS = 1500  # shorter pages are indexes


@dataclass(frozen=True, slots=True)
class Manual:
    """HTML pages of one Debian package."""

    package: str  # {language} in it stands for the package's ending
    pages: str  # a pattern below its folder
    part: Part
    languages: dict[str, str]  # of ours: as the manual writes it


MANUALS = (
    Manual("maint-guide{ending}", "**/*.{language}.html", "tuned",
           {"en": "en", "de": "de", "fr": "fr", "es": "es", "zh": "zh-cn"}),
    Manual("developers-reference{ending}", "**/*.html", "tuned", {"en": "", "de": "de", "fr": "fr"}),
    Manual("debian-faq{ending}", "**/*.{language}.html", "tuned", {"en": "en", "de": "de", "fr": "fr", "zh": "zh-cn"}),
    Manual("debian-reference-{language}", "**/*.{language}.html", "held out",
           {"en": "en", "de": "de", "fr": "fr", "es": "es", "zh": "zh-cn"}),
    Manual("debian-handbook", "**/html/{language}/*.html", "tuned",
           {"en": "en-US", "de": "de-DE", "fr": "fr-FR", "es": "es-ES", "zh": "zh-CN"}),
    Manual("installation-guide-amd64", "**/{language}/*.html", "held out",
           {"en": "en", "de": "de", "fr": "fr", "es": "es", "zh": "zh_CN"}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """One source text."""

    source: str
    language: str
    part: Part
    kind: Literal["html", "markdown"]
    text: str


def fetch(folder: Path) -> None:
    """Downloads what is missing: 21 Debian packages (75 MB), one source distribution, one npm package."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {_package(manual, language) for manual in MANUALS for language in manual.languages}
    for name in sorted(names):
        if not (folder / name).is_dir():
            _run(["apt-get", "download", "-qq", name], folder)
            _run(["dpkg-deb", "-x", str(next(folder.glob(f"{name}_*.deb"))), name], folder)
    if not list(folder.glob("fastapi-*.tar.gz")):
        _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "fastapi", FASTAPI], folder)
    if not list(folder.glob("electron-i18n-*.tgz")):
        _run(["npm", "pack", "--silent", ELECTRON], folder)


def read_pages(folder: Path) -> Iterator[Page]:
    """All pages of the five languages, in a fixed order."""
    for manual in MANUALS:
        for language, written in manual.languages.items():
            root = folder / _package(manual, language)
            for path in sorted(root.glob(manual.pages.format(language=written or "en"))):
                text = path.read_text(encoding="utf-8", errors="replace")
                if len(text) >= _PAGE_CHARS:
                    yield Page(manual.package.split("{")[0].rstrip("-"), language, manual.part, "html", text)
    yield from _fastapi(folder)
    yield from _electron(folder)


def _fastapi(folder: Path) -> Iterator[Page]:
    """Markdown; the tutorial and the page in tests/fixtures are of the tuned part, all else is held out."""
    with tarfile.open(next(folder.glob("fastapi-*.tar.gz"))) as archive:
        for member in sorted(archive.getmembers(), key=lambda each: each.name):
            found = re.fullmatch(r"[^/]+/docs/(en|de|fr|es|zh)/docs/(.+)\.md", member.name)
            file = archive.extractfile(member) if found else None
            if found is None or file is None or found[2] == "release-notes":
                continue
            part: Part = "tuned" if found[2].startswith("tutorial/") or found[2] == "features" else "held out"
            yield Page("fastapi", found[1], part, "markdown", file.read().decode("utf-8"))


def _electron(folder: Path) -> Iterator[Page]:
    """HTML without numbers."""
    with tarfile.open(next(folder.glob("electron-i18n-*.tgz"))) as archive:
        file = archive.extractfile("package/dist/docs.json")
        assert file is not None, "the package has its documents"
        documents = json.load(file)
    for language, name in (("en", "en-US"), ("de", "de-DE"), ("fr", "fr-FR"), ("es", "es-ES"), ("zh", "zh-CN")):
        seen = set()
        for slug, document in sorted(documents[name].items()):
            text = document["html"]
            # A page that nobody translated stands in English in each language.
            if len(text) >= _PAGE_CHARS and (language == "en" or text != documents["en-US"].get(slug, {}).get("html")):
                if text not in seen:
                    yield Page("electron", language, "held out", "html", text)
                seen.add(text)


def _package(manual: Manual, language: str) -> str:
    written = manual.languages[language]
    ending = "" if language == "en" else f"-{written}"
    return manual.package.format(ending=ending, language=written)


def _run(words: list[str], folder: Path) -> None:
    subprocess.run(words, cwd=folder, check=True)
