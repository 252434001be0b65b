"""Baked prefixes as rows for people and for `--json`. Owns: the rows. Needs: baked. Never: extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge.baked.folder import baked_names, open_baked
from edge.cli.screen import shown
from edge.cli.tables import format_table
from edge.errors import PackageError
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.baked.prefix import BakedPrefix
    from edge.package import Package

Row = dict[str, Any]


def list_rows(package: Package) -> list[Row]:
    """A row for each prefix; one that cannot be used has the reason as `error`, and of a damaged one there is nothing else."""
    rows = []
    for name in baked_names(package.path):
        try:
            rows.append(baked_row(package, open_baked(package.path, name)))
        except PackageError as error:
            rows.append({"name": name, "error": str(error)})
    return rows


def baked_row(package: Package, baked: BakedPrefix) -> Row:
    """What there is to say of one. PackageError where its pages are none of this model."""
    header = baked.header
    error = None
    try:
        baked.check_engine(package.manifest, None)
        sizes = baked.cut_bytes(package.spec)
    except PackageError as reason:
        error, sizes = str(reason), [0] * len(header.cuts)
    return {
        "name": baked.path.stem,
        "path": str(baked.path),
        "bytes": header.file_bytes,
        "tokens": header.tokens,
        "preset": header.engine.preset,
        "isa": header.engine.isa,
        "created_by": header.created_by,
        "document_bytes": len(header.document.encode("utf-8", "replace")),
        "system_bytes": len(header.system.encode("utf-8", "replace")),
        "cuts": [
            {"tokens": cut.tokens, "title": cut.title, "own_bytes": size} for cut, size in zip(header.cuts, sizes, strict=True)
        ],
        "error": error,
    }


def baked_text(package: Package, row: Row) -> str:
    """Of one that was baked just now."""
    lines = [f"{row['path']}: {row['tokens']:,} tokens, KV {row['preset']}, {human_bytes(row['bytes'])}"]
    lines += [
        f"  end of {shown(cut['title']) or 'a section'} at {cut['tokens']:,}: {human_bytes(cut['own_bytes'])} of its own"
        for cut in row["cuts"][:-1]
    ]
    return "\n".join([*lines, f"Use it: edge chat {package.path} --prefix {row['name']}"])


def list_baked(package: Package, rows: list[Row]) -> str:
    """A table of `list_rows`, and what is wrong with them."""
    if not rows:
        return f"{package.path}: nothing is baked. Bake a text: edge bake {package.path} --name NAME --file FILE"
    table = [["prefix", "tokens", "KV", "bytes", "sections", "baked on"], *map(_cells, rows)]
    return "\n".join([format_table(table, right=frozenset({1, 3, 4})), *(row["error"] for row in rows if row["error"])])


def _cells(row: Row) -> list[str]:
    if "tokens" not in row:
        return [row["name"], "", "damaged", "", "", ""]
    state = row["preset"] if row["error"] is None else "another engine's"
    return [row["name"], f"{row['tokens']:,}", state, human_bytes(row["bytes"]), str(len(row["cuts"]) - 1), row["isa"]]
