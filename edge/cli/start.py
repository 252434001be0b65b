"""The script `edge`. Owns: a Ctrl-C before the command line can hear it. Needs: nothing. Never: an import at the top that takes
time."""

from __future__ import annotations

import sys


def main() -> None:
    """As `edge.cli.main.main`, whose import takes long enough to be interrupted: exits 130, too."""
    try:
        from edge.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
