"""`edge bench compare`: other engines beside ours, in turn, in one run, on the model that a package was built from."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import edge
from edge.cli.bench import bench_context
from edge.cli.build_extra import INSTALL, missing_libraries
from edge.cli.compare_table import comparison_text
from edge.cli.options import force_package_option, json_option, rounds_option, threads_option
from edge.cli.progress import terminal_progress
from edge.errors import ConfigError, EdgeError
from edge.presets import PRESETS, PresetName

if TYPE_CHECKING:
    from edge.bench.comparison import Comparison, Contender
    from edge.bench.peers import Peer
    from edge.package import Package
    from edge.progress import Progress


@click.command(name="compare")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--prompt", default="512", show_default=True, metavar="N[,N...]", help="Tokens of the prompt, one or several.")
@click.option("--decode", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens to decode after it.")
@rounds_option(3)
@threads_option()
@click.option(
    "--gguf", type=click.Path(path_type=Path), help="The model for the others.  [default: what PACKAGE was built from]"
)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    metavar="ENGINE",
    help="Compare with this one only: llama.cpp, openvino-genai or onnxruntime; may be repeated.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="ENGINE=PATH",
    help="The Python that has an engine installed, where it is not this one; may be repeated.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the bests into this file, as bars (needs the bench extra).")
@click.option(
    "--kv-preset",
    type=click.Choice(list(PRESETS)),
    default="exact",
    show_default=True,
    help="Ours with this KV preset; the others keep keys and values in fp16.",
)
@force_package_option()
@json_option()
def command(
    package: Path,
    prompt: str,
    decode: int,
    rounds: int,
    threads: int | None,
    gguf: Path | None,
    engines: tuple[str, ...],
    pythons: tuple[str, ...],
    plot: Path | None,
    kv_preset: PresetName,
    ignore_verdict: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Measure PACKAGE beside llama.cpp, OpenVINO GenAI and ONNX Runtime: the same model, the same random tokens, each engine in
    a process of its own with its fastest settings, in turn, several rounds.

    An engine that is not installed, or fails, is a row that says so. Each may live in an environment of its own:

    \b
    edge bench compare NAME.edge --python llama.cpp=peers/llamacpp/bin/python
    """
    from edge.bench.commit import code_commit
    from edge.bench.peers import choose_peers, read_pythons
    from edge.bench.plot import need_matplotlib, plot_comparisons
    from edge.executors.native import available_threads
    from edge.package import Package
    from edge.runnable import check_runs_here

    peers, of_peers, used_threads = choose_peers(engines), read_pythons(pythons), threads or available_threads()
    prompts = _prompts(prompt)
    if plot is not None:
        need_matplotlib(plot)
    if gguf is not None and not gguf.is_file():
        raise ConfigError(f"--gguf {gguf}: no such file. Give the GGUF file of the model")
    opened = Package.open(package, force=ignore_verdict)
    check_runs_here(opened, kv_preset)
    for tokens in prompts:
        bench_context(tokens, decode, opened.manifest.limits.max_context)
    with terminal_progress() as progress, _scratch() as scratch:
        model = gguf or _source(opened, progress)
        models = _models(peers, opened, model, scratch, progress)
        comparisons = []
        for tokens in prompts:
            load = {"prompt": tokens, "decode": decode, "threads": used_threads, "scratch": str(scratch)}
            contenders = [
                _ours(package, load, kv_preset, ignore_verdict),
                *(_contender(peer, of_peers, models, opened, load) for peer in peers),
            ]
            comparisons.append(_compared(contenders, rounds, load, progress))
    what = f"{package.name}, KV {kv_preset}, {used_threads} threads, best of {rounds}"
    title = f"{what}; edge-zero {edge.__version__} {code_commit() or ''}".strip()
    if as_json:
        row = {"package": str(package), "model": str(model), "version": edge.__version__, "commit": code_commit(),
               "threads": used_threads, "kv_preset": kv_preset, "rounds": rounds,
               "loads": [c.as_dict() for c in comparisons]}  # fmt: skip
        click.echo(json.dumps(row))
    else:
        click.echo(comparison_text(comparisons, title))
    if plot is not None:
        plot_comparisons(comparisons, title, plot)
    return 0 if all(comparison.ours.failure is None for comparison in comparisons) else 1


def _prompts(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise click.UsageError(
            f"--prompt {text}: expected token counts with commas between, as in 512,4096", click.get_current_context()
        )
    return [int(word) for word in words]


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the model in other engines' forms, gone behind the block."""
    with tempfile.TemporaryDirectory(prefix="edge-compare-") as folder:
        yield Path(folder)


def _source(package: Package, progress: Progress) -> Path:
    from edge.bench.source_file import find_source

    return find_source(package.manifest.source, progress)


def _models(peers: tuple[Peer, ...], package: Package, model: Path, scratch: Path, progress: Progress) -> dict[str, Path | str]:
    """The file that peers of each kind read, or why there is none."""
    # The model as q4_0 and the export are each at most about as large as itself in 4 to 8 bits.
    needed, free = 2 * _size(model), shutil.disk_usage(scratch).free
    if free < needed:
        raise ConfigError(
            f"{scratch.parent}: {free / 1e6:.0f} MB free, the comparison takes about {needed / 1e6:.0f} MB there. "
            "Free some, or set TMPDIR to a folder on another disk"
        )
    models: dict[str, Path | str] = {"gguf": model}
    if model.is_dir():
        models["gguf"] = "reads GGUF files, and the package was built from a folder. Give one with --gguf FILE"
    if any(peer.reads == "onnx" for peer in peers):
        models["onnx"] = _exported(package, model, scratch, progress)
    return models


def _size(model: Path) -> int:
    return sum(path.stat().st_size for path in model.iterdir() if path.is_file()) if model.is_dir() else model.stat().st_size


def _exported(package: Package, model: Path, scratch: Path, progress: Progress) -> Path | str:
    """Our portable ONNX of `model` in the tier of `package`, in the form that ONNX Runtime is fastest with."""
    if missing := missing_libraries():
        return f"exporting needs {', '.join(missing)}: {INSTALL}"
    from calibration.tiers import load_tier
    from engines.reference.fast_graph import write_fast_graph
    from engines.sources.base import open_source

    manifest, out = package.manifest, scratch / "model.onnx"
    try:
        write_fast_graph(open_source(model), load_tier(manifest.tier), out, requantise=manifest.requantised, progress=progress)
    except EdgeError as error:
        return str(error)
    return out


def _ours(package: Path, load: Mapping[str, Any], preset: PresetName, ignore_verdict: bool) -> Contender:
    from edge.bench.comparison import OURS, Contender

    # The code that this process has, whatever the current folder holds.
    root = str(Path(edge.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {root!r}); from edge.cli.main import main; main(sys.argv[1:])"
    words = ["--prompt", str(load["prompt"]), "--decode", str(load["decode"]), "--threads", str(load["threads"]), "--json"]
    words += ["--kv-preset", preset]
    if ignore_verdict:
        words.append("--ignore-verdict")
    return Contender(OURS, (sys.executable, "-c", code, "bench", *words, "--", str(package)))


def _contender(
    peer: Peer, pythons: Mapping[str, str], models: Mapping[str, Path | str], package: Package, load: Mapping[str, Any]
) -> Contender:
    from edge.bench.comparison import Contender
    from edge.bench.measure import prompt_ids
    from edge.bench.peers import install_command, peer_command

    mend, model = install_command(peer, pythons), models[peer.reads]
    if isinstance(model, str):
        return Contender(peer.name, failure=model)
    job = {
        "engine": peer.engine,
        "model": str(model.absolute()),
        "ids": prompt_ids(package.spec.vocab_size, load["prompt"]),
        "decode": load["decode"],
        "threads": load["threads"],
        "scratch": load["scratch"],
        "flash": peer.flash,
    }
    return Contender(peer.name, tuple(peer_command(peer, pythons)), job, mend)


def _compared(contenders: list[Contender], rounds: int, load: Mapping[str, Any], progress: Progress) -> Comparison:
    from edge.bench.comparison import compare

    progress.start(f"prompt of {load['prompt']} tokens", rounds * len(contenders), "runs")
    states = []
    for state in compare(contenders, rounds, load["prompt"], load["decode"]):
        states.append(state)
        progress.advance()
    progress.done()
    return states[-1]
