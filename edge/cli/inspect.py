"""`edge inspect`: what is in a package, from its manifest. Nothing is loaded, and no native core needed: memory is
shown by `edge plan`."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import click

from edge.cli.baked_table import list_baked, list_rows
from edge.cli.engine_tables import engine_rows, graph_rows, profile_rows, shown_graph, tensor_rows
from edge.cli.options import json_option
from edge.cli.tables import format_table
from edge.manifest import Manifest, Verdict
from edge.package import Package
from edge.units import human_bytes


@click.command(name="inspect")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--tensors", is_flag=True, help="List every tensor, with its rounding.")
@json_option()
def command(package: Path, tensors: bool, as_json: bool) -> None:
    """Show what is in PACKAGE: model, tier, bits per weight, engine, files, verdicts."""
    opened = Package.open(package, force=True)
    if as_json:
        more = {"path": str(opened.path), "prefixes": list_rows(opened)}
        click.echo(json.dumps(dataclasses.asdict(opened.manifest) | more))
        return
    manifest = opened.manifest
    click.echo(format_table(_facts(opened)))
    if manifest.engine is not None:
        graph = shown_graph(manifest.engine)
        for rows in (graph_rows(manifest.engine), tensor_rows(graph), profile_rows(graph)):
            click.echo(f"\n{format_table(rows)}")
    click.echo()
    click.echo(format_table([["file", "bytes"], *_files(manifest)], right=frozenset({1})))
    if prefixes := list_rows(opened):
        click.echo(f"\n{list_baked(opened, prefixes)}")
    click.echo()
    click.echo(format_table(_tensors(manifest) if tensors else _tensor_kinds(manifest), right=frozenset({1, 2})))


def _facts(package: Package) -> list[list[str]]:
    manifest, spec = package.manifest, package.spec
    windows = Counter(layer.window for layer in spec.layers)
    attention = ", ".join(
        f"{count} full" if window == 0 else f"{count} with window {window}" for window, count in windows.items()
    )
    weights = sum(tensor.bytes for tensor in manifest.tensors)
    return [
        ["package", str(package.path)],
        ["model", f"{spec.name} ({spec.architecture}), licence {manifest.source.licence}"],
        ["built from", f"{manifest.source.name}, sha256 {manifest.source.sha256[:12]}"],
        ["tier, target", f"{manifest.tier}, {manifest.target}"],
        ["weights", f"{human_bytes(weights)}, {manifest.bits_per_weight:.2f} bits per weight"],
        ["layers", f"{len(spec.layers)} ({attention}), width {spec.hidden_size}, feed-forward {spec.intermediate_size}"],
        ["heads", f"{spec.num_heads} of {spec.head_dim}, {spec.num_kv_heads} for keys and values"],
        ["vocabulary", f"{spec.vocab_size} tokens, head {'tied to the embedding' if spec.tied_head else 'of its own'}"],
        ["context", f"{manifest.limits.max_context} tokens at most, the model's own is {spec.context_length}"],
        [
            "presets",
            f"{', '.join(manifest.capabilities.presets)}; batch invariant: {_yes(manifest.capabilities.batch_invariant)}",
        ],
        ["contract", f"{manifest.contract_version}, format {manifest.format_version}, sealed at {manifest.seal_tokens} tokens"],
        *([] if manifest.engine is None else engine_rows(package, manifest.engine)),
        ["engine verdict", _verdict(manifest.verdicts.engine)],
        *([] if manifest.engine is None else [["graph verdict", _verdict(manifest.verdicts.graph)]]),
        ["tier verdict", _verdict(manifest.verdicts.tier)],
        *([f"preset {name}", _preset_verdict(verdict)] for name, verdict in manifest.preset_verdicts.items()),
        ["built with", ", ".join(f"{name} {version}" for name, version in sorted(manifest.libraries.items()))],
    ]


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not measured"
    outcome = f"FAILED ({', '.join(verdict.broken)})" if verdict.broken else "passed"
    return (
        f"{outcome}: KL {verdict.kl_mean:.5f}, top-1 {100 * verdict.top1:.1f} %, "
        f"perplexity x {verdict.perplexity_ratio:.4f}, {verdict.tokens} tokens of {verdict.text}"
    )


def _preset_verdict(verdict: Verdict) -> str:
    """Against exact pages, at the end of windows of so many tokens."""
    return f"{_verdict(verdict)} at {verdict.window_tokens:,}"


def _files(manifest: Manifest) -> list[list[str]]:
    return [[name, str(record.bytes)] for name, record in sorted(manifest.files.items())]


def _tensor_kinds(manifest: Manifest) -> list[list[str]]:
    """Tensors by what they were and what they are now."""
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for tensor in manifest.tensors:
        counts[tensor.source_kind, tensor.kind] += 1
        sizes[tensor.source_kind, tensor.kind] += tensor.bytes
    rows = [[f"{source} -> {kind}", str(count), str(sizes[source, kind])] for (source, kind), count in sorted(counts.items())]
    return [["stored as", "tensors", "bytes"], *rows]


def _tensors(manifest: Manifest) -> list[list[str]]:
    rows = [
        [
            t.name,
            str(t.bytes),
            "exact" if t.is_exact else f"{max(t.rounding_error, t.scale_error):.2e}",
            f"{t.source_kind} -> {t.kind}",
        ]
        for t in manifest.tensors
    ]
    return [["tensor", "bytes", "rounding", "stored as"], *rows]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
