"""Tiny models as portable ONNX: valid, read back exactly, and equal to a plain forward pass when ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import GEMMA, LLAMA, VARIANTS

from calibration.schemes import QuantTensor
from calibration.tiers import load_tier
from engines.portable.export import write_portable
from engines.portable.reader import PortableModel, read_portable
from engines.reference.numpy_forward import forward
from engines.reference.ort import OrtReference, session_options
from engines.sources.base import open_source

pytestmark = pytest.mark.build
onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

# Every source type is carried as it is; tiers are tried where widths, tying or minima make a difference.
CASES = [(name, "") for name in VARIANTS] + [
    (name, tier)
    for tier in ("fp16", "int8", "int4")
    for name in ("llama", "llama_untied", "llama_odd_widths", "llama_q4_1", "gemma", "gemma_odd_widths")
]
Exporter = Callable[..., Path]


@pytest.fixture(scope="module")
def exported(tiny_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    """exported(model, tier or "", options of write_portable) -> path of the .onnx."""

    def export(model: object, tier: str, **options: object) -> Path:
        out = tmp_path_factory.mktemp("portable") / "model.onnx"
        write_portable(open_source(tiny_gguf(model)), load_tier(tier) if tier else None, out, **options)
        return out

    return export


def some_ids(vocab_size: int, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, vocab_size, count).tolist()


def dense(model: PortableModel, name: str) -> np.ndarray:
    values = model.weight(name)
    if isinstance(values, QuantTensor):
        return values.dequantise()[:, : model.stored[name].shape[1]]
    return values.astype(np.float32)


def run_whole(reference: OrtReference, ids: list[int], chunk: int = 128, max_context: int | None = None) -> np.ndarray:
    return np.concatenate([rows.copy() for rows in reference.logits(ids, chunk, max_context)])


@pytest.mark.parametrize(("name", "tier"), CASES)
def test_onnx_runtime_gives_the_logits_of_a_plain_forward_pass(exported: Exporter, name: str, tier: str) -> None:
    path = exported(name, tier)
    onnx.checker.check_model(str(path), full_check=True)
    model = read_portable(path)
    ids = some_ids(model.spec.vocab_size, 40)
    expected = forward(lambda tensor: dense(model, tensor), model.spec, ids, range(len(ids)))
    reference = OrtReference(path, threads=2)
    whole = run_whole(reference, ids)
    assert expected.std() > 0.5
    assert np.abs(whole - expected).max() < 1e-4
    # Chunks of 7 cross the windows of 8 and the cache is longer than the text.
    assert np.abs(run_whole(reference, ids, chunk=7, max_context=64) - whole).max() < 1e-4


@pytest.mark.parametrize("name", VARIANTS)
def test_every_tensor_comes_back_as_the_source_has_it(exported: Exporter, tiny_gguf: Callable[..., Path], name: str) -> None:
    source = open_source(tiny_gguf(name))
    model = read_portable(exported(name, ""))
    assert model.spec == source.spec
    assert tuple(model.stored) == source.tensor_names()
    for tensor in source.tensor_names():
        theirs, ours = source.read(tensor).values, model.weight(tensor)
        part = model.weight(tensor, 3, 8)
        if isinstance(theirs, QuantTensor):
            assert isinstance(ours, QuantTensor) and isinstance(part, QuantTensor)
            assert (ours.bits, ours.group) == (theirs.bits, theirs.group)
            assert np.array_equal(ours.quants, theirs.quants) and np.array_equal(ours.scales, theirs.scales)
            assert np.array_equal(part.quants, theirs.quants[3:8]) and np.array_equal(part.scales, theirs.scales[3:8])
            assert (ours.minima is None) == (theirs.minima is None)
            if ours.minima is not None:
                assert np.array_equal(ours.minima, theirs.minima)
        else:
            assert isinstance(ours, np.ndarray) and ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs) and np.array_equal(part, theirs[3:8])


def test_an_odd_int4_matrix_is_read_back_in_any_part(exported: Exporter, tiny_gguf: Callable[..., Path]) -> None:
    # Gemma's tiny vocabulary has an odd number of tokens.
    model = replace(GEMMA, types={"embed": "Q4_1"})
    path = exported(model, "")
    table, theirs = read_portable(path), open_source(tiny_gguf(model)).read("embed.weight").values
    assert isinstance(theirs, QuantTensor) and theirs.shape[0] % 2 == 1
    for begin, end in ((0, 381), (0, 1), (380, 381), (7, 100)):
        part = table.weight("embed.weight", begin, end)
        assert isinstance(part, QuantTensor)
        assert np.array_equal(part.quants, theirs.quants[begin:end])
    expected = forward(lambda tensor: dense(table, tensor), table.spec, [5, 380, 7], range(3))
    assert np.abs(run_whole(OrtReference(path, 2), [5, 380, 7]) - expected).max() < 1e-4


def test_a_window_hides_what_lies_behind_it(exported: Exporter) -> None:
    # One layer with a window: logits at t depend on the last 8 tokens only.
    path = exported(replace(GEMMA, layers=1, full_every=2), "")
    reference = OrtReference(path, 2)
    assert reference.spec.layers[0].window == 8
    ids = some_ids(reference.spec.vocab_size, 30)
    base = run_whole(reference, ids)
    changed = run_whole(reference, [*ids[:10], (ids[10] + 1) % 300, *ids[11:]])
    differs = [index for index in range(30) if not np.array_equal(base[index], changed[index])]
    assert differs == list(range(10, 18))


def test_sequences_of_different_lengths_run_side_by_side(exported: Exporter) -> None:
    reference = OrtReference(exported("gemma", "int4"), 2)
    first, second = some_ids(300, 20), some_ids(300, 9)
    alone = [run_whole(reference, ids, max_context=32)[-1] for ids in (first, second)]
    cache = reference.new_cache(2, 32)
    # Both start; then the longer one's middle fills the cache of row 0 while row 1 repeats its start.
    steps = [(first[:5], second[:5], 0, 0), (first[5:10], second[:5], 5, 0), (first[10:15], second[:5], 10, 0)]
    for ours, theirs, at, other in steps:
        reference.run(np.array([ours, theirs]), np.array([at, other])[:, None] + np.arange(5), cache)
    logits = reference.run(np.array([first[15:19], second[5:9]]), np.array([15, 5])[:, None] + np.arange(4), cache)
    assert np.abs(logits[1, -1] - alone[1]).max() < 1e-4
    logits = reference.run(np.array([first[19:], second[8:]]), np.array([[19], [8]]), cache)
    assert np.abs(logits[0, -1] - alone[0]).max() < 1e-4


def optimised_ops(path: Path, folder: Path) -> list[tuple[str, int]]:
    """(operator, bits) of the graph that ONNX Runtime makes of the reference's form of the file at `path`."""
    from engines.portable.reader import read_model
    from engines.reference.rewrites import gather_before_dequantise

    model = read_model(path)
    gather_before_dequantise(model.graph)
    options = session_options(onnxruntime, 2)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(folder / "optimised.onnx", load_external_data=False).graph.node
    return [(node.op_type, next((a.i for a in node.attribute if a.name == "bits"), 0)) for node in nodes]


@pytest.mark.parametrize(("tier", "bits"), [("int4", {4: 21, 8: 1}), ("int8", {4: 0, 8: 22})])
def test_onnx_runtime_fuses_every_quantised_product(
    exported: Exporter, tmp_path: Path, tier: str, bits: dict[int, int]
) -> None:
    ops = optimised_ops(exported("llama_untied", tier), tmp_path)
    assert {b: ops.count(("MatMulNBits", b)) for b in bits} == bits
    # What is left dequantises the looked-up rows of the table.
    assert [op for op, _ in ops].count("DequantizeLinear") == 1


def test_a_lookup_does_not_dequantise_the_whole_table(exported: Exporter) -> None:
    from engines.portable.reader import read_model
    from engines.reference.rewrites import gather_before_dequantise

    graph = read_model(exported("llama_untied", "int8")).graph
    assert gather_before_dequantise(graph) == 1
    readers = [node.op_type for node in graph.node if "embed.weight.quants" in node.input]
    assert readers == ["Gather"]


def test_a_tied_table_is_stored_once(exported: Exporter) -> None:
    tied, untied = (read_portable(exported(name, "int8")) for name in ("llama", "llama_untied"))
    assert "head.weight" not in tied.stored
    table = tied.stored["embed.weight"].nbytes
    assert untied.path.with_suffix(".onnx.data").stat().st_size - tied.path.with_suffix(".onnx.data").stat().st_size >= table


def test_only_standard_operators_are_used(exported: Exporter) -> None:
    model = onnx.load(exported("gemma_published", "int4"), load_external_data=False)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 24)]
    assert {node.domain for node in model.graph.node} == {""}
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert "/layers.3/attn/q_proj/MatMul" in names


def test_inputs_and_outputs_are_those_of_the_design(exported: Exporter) -> None:
    model = onnx.load(exported(replace(LLAMA, layers=1), "", max_context=256, last_row_only=True), load_external_data=False)

    def shapes(values: object) -> dict[str, list[object]]:
        return {
            value.name: [onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)]
            + [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in values
        }

    cache = ["FLOAT", "B", 2, 256, 16]
    assert shapes(model.graph.input) == {
        "input_ids": ["INT64", "B", "S"],
        "position_ids": ["INT64", "B", "S"],
        "write_indices": ["INT64", "B"],
        "attention_mask": ["BOOL", "B", 1, "S", 256],
        "past_key.0": cache,
        "past_value.0": cache,
    }
    assert shapes(model.graph.output) == {"logits": ["FLOAT", "B", 1, 300], "present_key.0": cache, "present_value.0": cache}


def test_the_last_row_alone_is_the_last_of_all_rows(exported: Exporter) -> None:
    every, last = (OrtReference(exported("gemma", "", last_row_only=only), 2) for only in (False, True))
    ids = some_ids(300, 12)
    assert np.abs(run_whole(last, ids) - run_whole(every, ids)[-1:]).max() < 1e-5


@pytest.mark.parametrize("name", ["llama_odd_widths", "gemma_published", "llama_f16"])
def test_a_float16_graph_is_valid_and_close(exported: Exporter, name: str) -> None:
    half = exported(name, "int8", dtype="float16")
    onnx.checker.check_model(str(half), full_check=True)
    model = read_portable(half)
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert model.weight("final_norm.weight").dtype == np.float16
    note = {tensor.name: tensor.note for tensor in model.report.tensors}["final_norm.weight"]
    assert "rounded to float16" in note
    ids = some_ids(300, 10)
    expected = run_whole(OrtReference(exported(name, "int8"), 2), ids)
    session = onnxruntime.InferenceSession(str(half), session_options(onnxruntime, 2), providers=["CPUExecutionProvider"])
    positions = np.arange(10)[None]
    feeds = {
        "input_ids": np.array([ids]),
        "position_ids": positions,
        "write_indices": np.array([0]),
        "attention_mask": np.tril(np.ones((10, 10), bool))[None, None],
    }
    feeds |= {i.name: np.zeros((1, i.shape[1], 10, i.shape[3]), np.float16) for i in session.get_inputs() if "past" in i.name}
    logits = session.run(["logits"], feeds)[0][0].astype(np.float32)
    assert np.abs(logits - expected).max() < 0.05 * expected.std()


def test_the_report_names_what_was_rounded(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    carried = write_portable(open_source(tiny_gguf("llama_published")), load_tier("int4"), tmp_path / "a.onnx")
    assert carried.rounded == ()
    assert 5.0 < carried.bits_per_weight < 8.5
    rounded = write_portable(open_source(tiny_gguf("llama")), load_tier("int4"), tmp_path / "b.onnx")
    by_name = {tensor.name: tensor for tensor in rounded.rounded}
    assert by_name["layers.0.attn.q_proj.weight"].stored == "int4/32+min"
    assert 0.01 < by_name["layers.0.attn.q_proj.weight"].rms_error < 0.2
    assert by_name["embed.weight"].stored == "int8/32"
    assert not any("norm" in name for name in by_name)
    assert read_portable(tmp_path / "b.onnx").report == rounded


def test_errors_of_blocks_add_up_to_those_of_the_tensor(
    tiny_gguf: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_portable(open_source(tiny_gguf("llama")), load_tier("int4"), tmp_path / "a.onnx")
    monkeypatch.setattr("engines.portable.data.BLOCK_WEIGHTS", 1)  # blocks of 64 rows
    blocks = write_portable(open_source(tiny_gguf("llama")), load_tier("int4"), tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx.data").read_bytes() == (tmp_path / "b.onnx.data").read_bytes()
    for one, many in zip(whole.tensors, blocks.tensors, strict=True):
        assert many.rms_error == pytest.approx(one.rms_error)
        assert replace(many, rms_error=0.0) == replace(one, rms_error=0.0)
