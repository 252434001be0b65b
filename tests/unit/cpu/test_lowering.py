"""Passes over the portable graph, one after the other."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="needs the build extra")

sys.path.insert(0, str(Path(__file__).parents[2] / "tiny"))

from synthetic import VARIANTS, write_tiny

from calibration.tiers import load_tier
from edge.errors import BuildError
from edge.spec import ModelSpec
from engines.cpu.lower import PASSES, lower
from engines.cpu.schedule import schedule
from engines.lowering.graph import Node, read_graph
from engines.portable.export import write_portable
from engines.sources.base import open_source


def _export(folder: Path, variant: str, tier: str = "int4") -> tuple[Path, ModelSpec]:
    source = open_source(write_tiny(folder / f"{variant}.gguf", VARIANTS[variant]))
    write_portable(source, load_tier(tier), folder / f"{variant}.onnx")
    return folder / f"{variant}.onnx", source.spec


def _after(path: Path, last: str) -> Counter[str]:
    graph = read_graph(path)
    for name, apply in PASSES.items():
        apply(graph)
        if name == last:
            break
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize(
    "variant", ["llama_published", "llama_untied", "llama_odd_widths", "gemma", "gemma_soft_caps", "gemma_odd_widths"]
)
@pytest.mark.parametrize("tier", ["fp16", "int8", "int4"])
def test_every_variant_becomes_the_same_five_steps_a_layer(tmp_path: Path, variant: str, tier: str) -> None:
    path, spec = _export(tmp_path, variant, tier)
    steps, _ = lower(path, spec)
    layer = ["project", "attend", "add", "gated", "add"]
    assert [step.op for step in steps] == ["embed", *layer * len(spec.layers), "head"]


def test_fold_linears_leaves_no_matrix_product_and_no_group_sum(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "llama_published")
    ops = _after(path, "fold_linears")
    assert ops["linear"] == 7 * len(spec.layers) + 1
    assert not ops["MatMul"] and not ops["ReduceSum"]


def test_fold_embedding_takes_the_factor_along(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "gemma")
    steps, _ = lower(path, spec)
    assert steps[0].op == "embed"
    assert steps[0].values["scale"] == pytest.approx(spec.embedding_scale)


def test_fuse_attention_finds_windows_norms_and_groups(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "gemma_soft_caps")
    steps, _ = lower(path, spec)
    attends = [step for step in steps if step.op == "attend"]
    assert [step.values["window"] for step in attends] == [layer.window for layer in spec.layers]
    assert all(step.values["soft_cap"] == spec.attention_soft_cap for step in attends)
    assert attends[0].tensors["q_norm"] == "layers.0.attn.q_norm.weight"
    for group, layers in enumerate(spec.groups):
        members = [step for step in attends if step.values["group"] == group]
        assert [step.values["group_layer"] for step in members] == list(range(len(layers)))


def test_two_rope_bases_give_two_tables(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "gemma")
    steps, graph = lower(path, spec)
    names = {step.tensors["inv_freq"] for step in steps if step.op == "attend"}
    assert len(names) == 2 and names <= graph.constants.keys()


def test_fuse_residuals_keeps_post_norms(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "gemma")
    adds = [step for step in lower(path, spec)[0] if step.op == "add"]
    assert [step.values["input"] for step in adds[:2]] == ["attention", "feed_forward"]
    assert adds[0].tensors["post_norm"] == "layers.0.attn_post_norm.weight"


def test_a_tied_head_reads_the_embedding(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "llama_published")
    steps, _ = lower(path, spec)
    assert steps[0].tensors["weight0"] == steps[-1].tensors["weight0"] == "embed.weight"


def test_an_operator_that_no_pass_knows_is_named(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "llama_published")
    graph = read_graph(path)
    for apply in PASSES.values():
        apply(graph)
    head = graph.nodes[-1]
    graph.nodes.insert(-1, Node("Erf", "/odd/Erf", [head.inputs[0]], ["/odd/Erf.out"]))
    head.inputs = ["/odd/Erf.out"]
    with pytest.raises(BuildError, match="/odd/Erf: Erf"):
        schedule(graph, spec)


def test_a_step_off_the_residual_stream_is_refused(tmp_path: Path) -> None:
    path, spec = _export(tmp_path, "llama_published")
    graph = read_graph(path)
    for apply in PASSES.values():
        apply(graph)
    last_add = next(node for node in reversed(graph.nodes) if node.op == "add")
    last_add.inputs[0] = graph.nodes[0].outputs[0]
    with pytest.raises(BuildError, match="residual stream"):
        schedule(graph, spec)
