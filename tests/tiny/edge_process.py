"""The command line as a user types it. Owns: Edge. Needs: nothing of edge. Never: what an answer should be."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any


class Edge:
    """The command, as a process of its own."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def run(
        self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *map(str, words)],
            input=feed,
            capture_output=True,
            check=False,
            cwd=cwd,
            env={**os.environ, **changes},
            timeout=300,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def succeed(self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str) -> str:
        """What it prints on stdout."""
        done = self.run(*words, feed=feed, cwd=cwd, **changes)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str | Path, feed: bytes = b"", cwd: Path | None = None, **changes: str) -> Any:
        return json.loads(self.succeed(*words, "--json", feed=feed, cwd=cwd, **changes))

    def refuse(self, *words: str | Path, code: int = 1, feed: bytes = b"", cwd: Path | None = None, **changes: str) -> str:
        """The line with which the command is refused; lines of progress may stand in front."""
        done = self.run(*words, feed=feed, cwd=cwd, **changes)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert "Traceback" not in done.stderr
        line = done.stderr.splitlines()[-1]
        assert line.startswith("edge: ")
        return line
