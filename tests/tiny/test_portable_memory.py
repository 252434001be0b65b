"""Exporting a model that is larger than the memory we may take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import model_folders
import pytest
from synthetic import LLAMA, write_hollow

pytestmark = pytest.mark.build
pytest.importorskip("onnx", reason="needs the build extra: onnx")
ROOT = Path(__file__).parents[2]

EXPORT = """
import sys, threading
from pathlib import Path
from calibration.tiers import load_tier
from engines.portable.export import write_portable
from engines.sources.base import open_source

def anonymous_mib():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon"))) // 1024

peak, done = 0, threading.Event()

def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, anonymous_mib())

watcher = threading.Thread(target=watch)
watcher.start()
try:
    write_portable(open_source(Path(sys.argv[1])), load_tier("int8"), Path(sys.argv[2]))
finally:
    done.set()
    watcher.join()
print(peak)
"""


def gguf_file(folder: Path) -> tuple[Path, int]:
    model = replace(LLAMA, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, head_dim=128, layers=5)
    path = write_hollow(folder / "big.gguf", model)
    return path, path.stat().st_size


def model_folder(folder: Path) -> tuple[Path, int]:
    """As many weights, in bfloat16."""
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = {**model_folders.LLAMA, **sizes, "num_hidden_layers": 5}
    return folder / "big", model_folders.write_hollow(folder / "big", config, shards=3)


@pytest.mark.parametrize("write", [gguf_file, model_folder])
def test_gigabytes_go_through_in_a_quarter_of_one(write: Callable[[Path], tuple[Path, int]], tmp_path: Path) -> None:
    source, source_bytes = write(tmp_path)
    assert source_bytes > 2 * 10**9
    command = [sys.executable, "-c", EXPORT, str(source), str(tmp_path / "big.onnx")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # The promise is 1 GiB and the largest tensor; blocks of rows need far less.
    assert 20 < int(ran.stdout) < 256
    data = tmp_path / "big.onnx.data"
    assert data.stat().st_size > 10**9
    data.unlink()  # pytest keeps the folders of the last runs
