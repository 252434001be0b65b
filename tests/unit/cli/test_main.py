"""The command line's frame: exit codes, one-line errors, start-up, locales, pipes."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import edge
from edge.cli import main as cli
from edge.errors import PackageError

HEAVY = ("numpy", "tokenizers", "rich", "prompt_toolkit", "jinja2", "onnx", "onnxruntime", "yaml", "psutil", "gguf")


def run(command: list[str], *words: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*command, *words], capture_output=True, env={**os.environ, **changes}, check=False, timeout=60)


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Exit code and stderr of a subcommand that raises `error`."""

    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: command)
    with pytest.raises(SystemExit) as ended:
        cli.main(["inspect"])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (PackageError("a.edge: damaged. Build it again"), 1, "edge: a.edge: damaged. Build it again\n"),
        (PackageError("a\nb.edge: damaged"), 1, "edge: a\\nb.edge: damaged\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "/x/y"), 1,
         "edge: /x/y: No space left on device. Check the path, its permissions and the free space\n"),
        (MemoryError(), 1, "edge: out of memory. See what would fit: edge plan MODEL\n"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail_with(error, monkeypatch, capsys) == (code, line)


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError):
        fail_with(AssertionError("ours"), monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bench", "--quux"], b"edge: No such option '--quux'. See: edge bench --help\n"),
        (["bench", "kv", "a.edge", "--forc"], b"edge: No such option '--forc'. See: edge bench kv --help\n"),
        (["pul"], b"edge: no command 'pul'. Did you mean 'pull'? See: edge --help\n"),
        (["bench", "a.edge", "--decode", "x"], b"edge: Invalid value for '--decode': 'x' is not a valid integer"),
    ],
)
def test_wrong_usage_exits_with_two_and_points_to_the_help(words: list[str], line: bytes, edge_command: list[str]) -> None:
    done = run(edge_command, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_loads_and_has_a_help(name: str) -> None:
    command = importlib.import_module(cli.COMMANDS[name][0]).command
    assert command.name == name
    with click.Context(command, info_name=name) as context:
        assert command.get_help(context).startswith("Usage: ")


def test_every_variable_is_named_after_its_flag_and_by_the_help() -> None:
    found = set()
    for name, (module, _) in cli.COMMANDS.items():
        command = importlib.import_module(module).command
        with click.Context(command, info_name=name) as context:
            text = " ".join(command.get_help(context).split())
        for option in command.params:
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
            for variable in variables:
                found.add(variable)
                assert "--" + variable.removeprefix("EDGE_").lower().replace("_", "-") in option.opts
                assert f"env var: {', '.join(variables)}" in text, (name, variable)
    assert {"EDGE_MODEL", "EDGE_THREADS", "EDGE_CTX_SIZE", "EDGE_TIER", "EDGE_SEED"} <= found


def test_what_is_installed_says_that_it_has_types() -> None:
    for name in ("edge", "engines", "calibration"):
        folders = [Path(folder) for folder in importlib.import_module(name).__path__]
        assert any((folder / "py.typed").is_file() for folder in folders), folders


def test_every_short_option_means_one_thing_everywhere() -> None:
    meanings: dict[str, set[str]] = {}
    for module, _ in cli.COMMANDS.values():
        for option in importlib.import_module(module).command.params:
            for text in option.opts:
                meanings.setdefault(text, set()).add(str(option.name))
    assert {text: names for text, names in meanings.items() if len(names) > 1} == {}


def test_the_version_comes_without_heavy_imports() -> None:
    """What `edge --version` imports is what every command waits for."""
    code = (
        "import sys\nfrom edge.cli.main import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"edge {edge.__version__}\n[]\n"


def test_every_module_of_edge_imports_in_a_bare_environment() -> None:
    """Nothing but the base dependencies: what the extras bring is hidden, and so are the folders above us."""
    names = [module.name for module in pkgutil.walk_packages(edge.__path__, "edge.") if module.name != "edge._core"]
    hidden = ("onnx", "onnxruntime", "gguf", "huggingface_hub", "engines", "calibration", "edge._core")
    code = (
        f"import importlib, sys\nfor name in {hidden!r}: sys.modules[name] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\nprint('all')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("all\n", "")
    assert len(names) > 20


def test_edge_never_imports_upwards() -> None:
    """Only the command line may import engines and calibration, and only inside the subcommands that need them."""
    root = Path(edge.__file__).parent
    found = {}
    for path in root.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        upward = [line for line in lines if line.lstrip().startswith(("import engines", "from engines", "from calibration"))]
        if upward:
            found[str(path.relative_to(root))] = [line for line in upward if not line.startswith(" ")]
    assert all(name.startswith("cli/") and not at_top for name, at_top in found.items()), found


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}])
def test_a_letter_that_the_locale_lacks_stops_nothing(locale: dict[str, str], edge_command: list[str]) -> None:
    done = run(edge_command, "inspect", "Rifé 日本.edge", **locale)
    assert done.returncode == 1
    assert done.stderr.startswith(b"edge: ")
    assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_is_not_an_error(edge_command: list[str]) -> None:
    """`edge pull --list | true`: the reader is gone before anything is written."""
    process = subprocess.Popen([*edge_command, "pull", "--list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    message = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), message) == (141, b"")
