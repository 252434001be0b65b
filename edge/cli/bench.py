"""`edge bench`: how fast a package runs here, and how close that is to what the memory of the machine allows.

No tokenizer is opened and nothing is drawn while it runs: peak memory is one of the figures.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import edge
from edge.cli.options import budget_option, force_package_option, isa_option, json_option, threads_option
from edge.cli.tables import format_table
from edge.errors import RequestError
from edge.monitors.memory import process_memory
from edge.units import human_bytes

if TYPE_CHECKING:
    from edge.planner import MemoryPlan
    from edge.runtime import Runtime

SPARE_TOKENS = 64  # of context behind prompt and answer, as in the measurements of other engines that ours stand beside
WARM_UP_TOKENS = 8
HASHED_TOKENS = 16
PROBE_BYTES, PROBE_ROUNDS = 256 << 20, 4  # larger than most caches, a fraction of a second


@click.command(name="bench")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--prompt", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens of the prompt.")
@click.option("--decode", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens to decode after it.")
@threads_option()
@isa_option()
@budget_option()
@force_package_option()
@json_option()
def command(
    package: Path,
    prompt: int,
    decode: int,
    threads: int | None,
    isa: str,
    ignore_budget: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure PACKAGE on random tokens: load, prefill, decode, memory, share of the bandwidth."""
    from edge.executors.native import available_threads
    from edge.footprint import open_runtime, package_plan
    from edge.package import Package
    from edge.runnable import check_runs_here

    used_threads = threads or available_threads()
    start = time.perf_counter()
    opened = Package.open(package, force=force)
    check_runs_here(opened)
    context = _context(prompt, decode, opened.manifest.limits.max_context)
    plan = package_plan(opened, context=context, threads=used_threads, with_text=False)
    with open_runtime(opened, plan, ask_for=_ask_for, threads=used_threads, isa=isa, ignore_budget=ignore_budget) as runtime:
        load = time.perf_counter() - start
        figures = _measure(runtime, plan, prompt, decode, used_threads)
    figures = {"engine": "edge-zero", "version": edge.__version__, "commit": _commit(), "package": str(package),
               "tier": opened.manifest.tier, "load_s": load, **figures}  # fmt: skip
    click.echo(json.dumps(figures) if as_json else _table(figures))


def _context(prompt: int, decode: int, largest: int) -> int:
    """Tokens to plan for. RequestError where the engine cannot hold what is to be measured."""
    if prompt + decode > largest:
        raise RequestError(
            f"--prompt {prompt} and --decode {decode} are {prompt + decode} tokens, the engine takes {largest}. Shorten one"
        )
    return min(prompt + decode + SPARE_TOKENS, largest)


def _ask_for(context: int) -> str:
    """How a user asks this command for a context of so many tokens."""
    tokens = context - SPARE_TOKENS
    return f"--prompt and --decode of {tokens} tokens together" if tokens > 1 else "nothing that can be measured"


def _measure(runtime: Runtime, plan: MemoryPlan, prompt: int, decode: int, threads: int) -> dict[str, Any]:
    from edge.executors.native import NativeExecutor, load_core
    from edge.sampling import SamplingParams

    executor = runtime.executor
    assert isinstance(executor, NativeExecutor), "bench opens CPU packages only"
    # The same ids as the other engines get: past the control tokens at the front of most vocabularies.
    draw = random.Random(0)
    first, last = (100, 40000) if runtime.spec.vocab_size > 100 else (0, runtime.spec.vocab_size)
    ids = [draw.randrange(first, min(last, runtime.spec.vocab_size)) for _ in range(prompt)]
    greedy = SamplingParams()
    for _ in runtime.generate(ids[:WARM_UP_TOKENS], greedy, 1):
        pass
    start = time.perf_counter()
    moments = [time.perf_counter() for _ in runtime.generate(ids, greedy, decode + 1)]
    ttft, took = moments[0] - start, moments[-1] - moments[0]
    peak = process_memory().peak  # before the probe of the bandwidth, which has buffers of its own
    digest = _logits_hash(runtime, ids)
    bandwidth = load_core().read_bandwidth(threads, PROBE_BYTES, PROBE_ROUNDS)
    weight_bytes = executor.plan.weight_bytes_per_token
    rate = weight_bytes * decode / took
    return {
        "prompt_tokens": prompt,
        "decode_tokens": decode,
        "ttft_s": ttft,
        "prefill_tokens_per_s": prompt / ttft,
        "decode_tokens_per_s": decode / took,
        "peak_rss_bytes": peak,
        "planned_bytes": plan.total,
        "isa": executor.isa,
        "threads": threads,
        "weight_bytes_per_token": weight_bytes,
        "weight_gb_per_s": rate / 1e9,
        "measured_gb_per_s": bandwidth / 1e9,
        "share_of_bandwidth": rate / bandwidth,
        "logits_sha256": digest,
    }


def _logits_hash(runtime: Runtime, ids: list[int]) -> str:
    """SHA-256 of the logits of the first tokens, decoded one by one: two engines that compute alike print the same."""
    import hashlib

    from edge.teacher import Teacher

    count = min(HASHED_TOKENS, len(ids))
    digest = hashlib.sha256()
    for rows in Teacher(runtime.executor, runtime.spec, max_tokens=count, chunk=1).rows(ids[:count]):
        digest.update(rows.tobytes())
    return digest.hexdigest()


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, or is installed inside of; None elsewhere."""
    command = ["git", "-C", str(Path(edge.__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _table(figures: dict[str, Any]) -> str:
    peak = figures["peak_rss_bytes"]
    prompt = f"{figures['prompt_tokens']} tokens in {figures['ttft_s']:.3f} s"
    rows = [
        ["prefill", f"{figures['prefill_tokens_per_s']:.0f} tokens/s", prompt],
        ["decode", f"{figures['decode_tokens_per_s']:.1f} tokens/s", f"{figures['decode_tokens']} tokens"],
        ["weights read", f"{figures['weight_gb_per_s']:.1f} GB/s",
         f"{100 * figures['share_of_bandwidth']:.0f} % of the {figures['measured_gb_per_s']:.1f} GB/s measured here"],
        ["memory", human_bytes(peak) if peak else "not known here", f"planned {human_bytes(figures['planned_bytes'])}"],
        ["load", f"{figures['load_s']:.2f} s", ""],
        ["runs on", figures["isa"], f"{figures['threads']} threads"],
        ["logits", figures["logits_sha256"][:16], f"edge-zero {figures['version']} {figures['commit'] or ''}".strip()],
    ]  # fmt: skip
    return format_table(rows)
