"""The script `edge` before its command line stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import edge

CODE = """
import sys
sys.path[0] = {root!r}

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {stop!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
sys.argv = ["edge", "chat", "no such package"]
from edge.cli.start import main
main()
"""


@pytest.mark.parametrize("stop", ["edge.cli.main", "click", "edge.errors", "edge.cli.chat"])
def test_a_ctrl_c_in_the_first_imports_ends_in_silence(stop: str) -> None:
    code = CODE.format(root=str(Path(edge.__file__).parents[1]), stop=stop)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
