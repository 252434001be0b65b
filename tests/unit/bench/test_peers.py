"""Engines to compare with, as a user names them, and the script that runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import edge.bench.peer_script as peer_script
from edge.bench.peers import ENGINES, PEERS, choose_peers, install_command, peer_command, read_pythons
from edge.errors import ConfigError


def test_all_engines_are_compared_unless_some_are_named() -> None:
    assert choose_peers(()) == PEERS
    assert [peer.name for peer in choose_peers(("llama.cpp",))] == ["llama.cpp", "llama.cpp flash"]


def test_the_script_knows_every_engine() -> None:
    assert set(peer_script.ENGINES) == set(ENGINES)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("lama.cpp=python", "--python lama.cpp: no engine to compare with. Did you mean llama.cpp? There are: llama.cpp, "),
        ("python", "--python python: expected ENGINE=PATH"),
        ("llama.cpp=", "expected ENGINE=PATH"),
        ("llama.cpp=/nowhere/python", "no program at /nowhere/python that can be run. Give the Python of an environment"),
        ("llama.cpp=/usr", "no program at /usr that can be run. Give the Python in it: /usr/bin/python"),
    ],
)
def test_a_python_of_no_engine_or_that_is_not_there_is_refused(word: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_pythons((word,))
    assert says in str(caught.value)


def test_an_engine_runs_and_is_installed_in_its_own_python_where_it_has_one() -> None:
    llama, pythons = PEERS[0], read_pythons((f"llama.cpp={sys.executable}",))
    assert peer_command(llama, pythons)[0] == sys.executable
    assert install_command(llama, pythons) == f"{sys.executable} -m pip install llama-cpp-python"
    assert peer_command(llama, {})[0] == sys.executable
    assert install_command(llama, {}) == "pip install llama-cpp-python"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_script_needs_nothing_of_edge_and_says_what_is_missing(engine: str, tmp_path: Path) -> None:
    job = {
        "engine": engine,
        "model": "/nowhere",
        "ids": [1],
        "decode": 1,
        "threads": 1,
        "scratch": str(tmp_path),
        "flash": False,
    }
    # -S and -E: no installed packages, no edge
    command = [sys.executable, "-S", "-E", str(Path(peer_script.__file__))]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60)
    figures = json.loads(done.stdout)
    assert figures["is_missing"]
    assert "not installed in" in figures["error"]
