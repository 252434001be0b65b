"""Debian's list of packages. Owns: the version that it says is installed. Needs: nothing. Never: dpkg, which a fake root or a
container may lack."""

from __future__ import annotations

from pathlib import Path

STATUS = Path("var/lib/dpkg/status")  # below the root


def installed_version(status: Path, package: str) -> str | None:
    """Of `package`, in the list at `status`. None: not installed (removed ones can stay in the list), or no such list."""
    try:
        text = status.read_bytes()
    except OSError:
        return None
    begin = (b"\n" + text).find(f"\nPackage: {package}\n".encode())
    if begin < 0:
        return None
    paragraph = text[begin:].partition(b"\n\n")[0].decode("utf-8", "replace")
    fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" "))
    return fields.get("Version") if fields.get("Status", "").endswith(" installed") else None
