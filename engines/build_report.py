"""What `edge build` says at the end. Owns: BuildReport. Needs: manifest. Never: the build."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.engine_record import LARGEST_FLOAT16, EngineRecord
from edge.manifest import Manifest, Verdict, outcome
from edge.units import human_bytes
from engines.backend import BuilderUse


@dataclass(frozen=True, slots=True)
class BuildReport:
    """A package that stands at `path`."""

    path: Path
    manifest: Manifest
    source_bytes: int  # of the model file
    planned_bytes: int  # the most that the build should have held, the builder's process counted
    builder: BuilderUse | None  # None: no library built here

    @property
    def passed(self) -> bool:
        """Whether both verdicts passed; the package stands there either way."""
        return all(v is not None and v.passed for v in (self._tested, self.manifest.verdicts.tier))

    @property
    def _tested(self) -> Verdict | None:
        return self.manifest.verdicts.engine or self.manifest.verdicts.graph

    @property
    def bytes(self) -> int:
        """Of the package."""
        return sum(record.bytes for record in self.manifest.files.values())

    @property
    def kept_wider(self) -> int:
        """Matrices of the layers that an int4 tier left in int8, because the source has more bits."""
        return sum(t.kind == "int8" and t.name.startswith("layers.") for t in self.manifest.tensors) * (
            self.manifest.tier == "int4"
        )

    def as_dict(self) -> dict[str, Any]:
        """For --json: the manifest without its lists."""
        m = self.manifest
        return {
            "path": str(self.path),
            "model": m.spec.name,
            "tier": m.tier,
            "target": m.target,
            "engine": None if m.engine is None else asdict(m.engine),
            "next_step": self.next_step,
            "planned_bytes": self.planned_bytes,
            "builder_peak_bytes": None if self.builder is None else self.builder.peak_bytes,
            "builder_seconds": None if self.builder is None else self.builder.seconds,
            "bits_per_weight": m.bits_per_weight,
            "bytes": self.bytes,
            "tensors": dict(Counter(t.kind for t in m.tensors)),
            "rounded_tensors": [asdict(t) for t in m.tensors if not t.is_exact],
            "verdicts": asdict(m.verdicts),
            "preset_verdicts": {name: asdict(verdict) for name, verdict in m.preset_verdicts.items()},
        }

    def text(self) -> str:
        """A few lines for a terminal."""
        m = self.manifest
        rounded = sum(not t.is_exact for t in m.tensors)
        kinds = Counter(t.kind for t in m.tensors)
        lines = [
            f"{self.path}: {m.spec.name}, {m.tier} for {m.target}, {self.bytes / 1e6:.1f} MB "
            f"(the source has {self.source_bytes / 1e6:.1f}), {m.bits_per_weight:.2f} bits a weight",
            f"  tensors: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}; "
            f"{len(m.tensors) - rounded} exactly as in the source, {rounded} rounded",
        ]
        if self.kept_wider:
            lines.append(
                f"  {self.kept_wider} matrices stay int8, as the source has more bits there; --requantise rounds them to int4"
            )
        if m.engine is not None:
            lines += [f"  {line}" for line in self._engine_lines(m.engine)]
        if m.engine is not None and m.engine.note:
            lines.append(f"  {m.engine.note}")
        if m.verdicts.graph is not None:
            lines.append(f"  the graph, in ONNX Runtime, against its weights in float32: {_figures(m.verdicts.graph)}")
            assert m.engine is not None, "a graph is an engine's"
            lines.append(f"  largest activation {m.engine.largest_activation:,.0f}; float16 holds {LARGEST_FLOAT16:,.0f}")
        else:
            lines.append(f"  engine{activations(m)} against its own weights in float32: {_figures(m.verdicts.engine)}")
        lines.append(f"  weights against the source's, both in float32: {_figures(m.verdicts.tier)}")
        lines += self._preset_lines()
        return "\n".join(lines)

    def _preset_lines(self) -> list[str]:
        """The gate of each KV preset; what a failed one means."""
        presets = self.manifest.preset_verdicts
        lines = [
            f"  KV preset {name} against exact at {verdict.window_tokens:,} tokens: {_figures(verdict)}"
            for name, verdict in presets.items()
        ]
        if failed := [name for name, verdict in presets.items() if not verdict.passed]:
            lines.append(f"  {', '.join(failed)}: not used without --ignore-verdict; a safer preset is taken by default")
        return lines

    def _engine_lines(self, record: EngineRecord) -> list[str]:
        m = self.manifest
        shapes = f"context {m.limits.max_context:,}, chunks of {m.limits.max_step_tokens}"
        if record.plan is None:
            graphs = ", ".join(f"{graph.since} ({graph.attention} KV)" for graph in record.graphs)
            return [f"engine: for sm {record.sm}, {shapes}; no plan yet, but graphs for TensorRT from {graphs}"]
        size = m.files[record.plan.path].bytes
        made = f"plan of {record.kind} {record.plan.version} for sm {record.sm}, {human_bytes(size)}, {shapes}"
        return [f"engine: {made}; not run here", *([record.plan.note] if record.plan.note else [])]

    @property
    def next_step(self) -> str | None:
        """What is left to do, and where."""
        record = self.manifest.engine
        if record is None or record.plan is not None:
            return None
        name = shlex.quote(self.path.name)
        return f"the last step runs on the device: copy {name} there, then: edge build {name} --finish"


def activations(manifest: Manifest) -> str:
    """How the engine multiplies, where that is not in float: " (int8 activations)"."""
    return " (int8 activations)" if any(t.kind in ("int8", "int4") for t in manifest.tensors) else ""


def _figures(verdict: Verdict | None) -> str:
    assert verdict is not None, "a build measures both"
    return (
        f"KL {verdict.kl_mean:.5f}, top-1 {100 * verdict.top1:.1f} %, perplexity x{verdict.perplexity_ratio:.4f} "
        f"over {verdict.tokens:,} tokens: {outcome(verdict.broken)}"
    )
