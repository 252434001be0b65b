"""Tiny models as graphs for TensorRT: standard operators of each reader's age, and in ONNX Runtime the numbers of a plain
forward pass over the weights that they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lowered_graphs import CONTEXT, lower_tiny, lowered_weights
from synthetic import GEMMA, LLAMA, TinyModel

from edge.errors import BuildError
from edge.progress import SilentProgress
from engines.portable.reader import PortableModel
from engines.reference.numpy_forward import forward
from engines.reference.ort import OrtGraph
from engines.tensorrt.lower import WEIGHTS, Lowered, lower_graphs

pytestmark = pytest.mark.build
onnx = pytest.importorskip("onnx", reason="needs the build extra: onnx")
pytest.importorskip("onnxruntime", reason="needs the build extra: onnxruntime (Python 3.11 or newer)")

Q4_0 = replace(LLAMA, type="Q4_0")  # half of its scales are under 0, and it has no minima
VARIANTS: dict[str, TinyModel | str] = {
    "llama": "llama",
    "llama_untied": "llama_untied",
    "llama_odd_widths": "llama_odd_widths",
    "llama_published": "llama_published",
    "llama_q4_0": Q4_0,
    "llama_int4_table": replace(LLAMA, type="Q4_1"),
    "gemma_soft_caps": "gemma_soft_caps",
    "gemma_odd_widths": "gemma_odd_widths",
    "gemma_published": "gemma_published",
}
FLOAT_READERS = ("tensorrt-rtx", "tensorrt-10.15", "tensorrt-10.3")
CASES = [(name, tier) for name in VARIANTS for tier in ("int4", "int8", "fp16")]
Lowerer = Callable[..., tuple[PortableModel, Lowered]]


@pytest.fixture(scope="module")
def lower(tiny_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Lowerer:
    """lower(model, tier) -> portable model and its graphs; each pair once."""
    known: dict[tuple[str, str], tuple[PortableModel, Lowered]] = {}

    def make(name: str, tier: str) -> tuple[PortableModel, Lowered]:
        if (name, tier) not in known:
            folder = tmp_path_factory.mktemp("lowered")
            known[name, tier] = lower_tiny(tiny_gguf(VARIANTS[name]), tier, folder, FLOAT_READERS)
        return known[name, tier]

    return make


def graph_of(lowered: Lowered, reader: str) -> Path:
    return next(graph.path for graph in lowered.graphs if graph.reader == reader)


def some_ids(vocab_size: int, count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, vocab_size, count).tolist()


@pytest.mark.parametrize(("name", "tier"), CASES)
def test_linear_graphs_give_the_logits_of_their_own_weights(lower: Lowerer, name: str, tier: str) -> None:
    model, lowered = lower(name, tier)
    path = lowered.graphs[0].path
    onnx.checker.check_model(str(path), full_check=True)
    weights = lowered_weights(path, model)
    ids = some_ids(model.spec.vocab_size, 40)
    expected = forward(lambda tensor: weights[tensor], model.spec, ids, range(len(ids)))
    graph = OrtGraph.open(path, model.spec, threads=2)
    rows = np.concatenate([part.copy() for part in graph.logits(ids, chunk=7)])
    assert expected.std() > 0.5
    # float16 in the residual stream and in the products.
    assert np.abs(rows - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "tier"), CASES)
def test_lowered_weights_are_those_of_the_portable_graph(lower: Lowerer, name: str, tier: str) -> None:
    model, lowered = lower(name, tier)
    found = lowered_weights(lowered.graphs[0].path, model)
    for tensor, stored in model.stored.items():
        there = model.weight(tensor)
        expected = there.astype(np.float32) if isinstance(there, np.ndarray) else there.dequantise()[:, : stored.shape[1]]
        error = np.abs(found[tensor] - expected)
        if stored.kind == "int8":
            # Half a step of the row, and what rounding of its scale adds.
            assert (error <= 0.51 / 127 * np.abs(expected).max(axis=1, keepdims=True)).all(), tensor
            assert np.sqrt(np.mean(error**2) / np.mean(expected**2)) < 0.01, tensor
        else:
            assert error.max() <= 2.0**-11 * 3 * np.abs(expected).max(), tensor  # offsets are rounded to float16
        assert lowered.stored[tensor].kind == stored.kind


@pytest.mark.parametrize("name", VARIANTS)
def test_the_oldest_reader_gets_only_operators_of_its_age(lower: Lowerer, name: str) -> None:
    model, lowered = lower(name, "int4")
    graph = onnx.load(str(graph_of(lowered, "tensorrt-10.3")), load_external_data=False)
    ops = {(node.domain, node.op_type) for node in graph.graph.node}
    assert ("edge", "PagedAttention") in ops
    for domain, op in ops - {("edge", "PagedAttention")}:
        assert onnx.defs.get_schema(op, 21, domain).since_version <= 21
    assert [node.op_type for node in graph.graph.node].count("PagedAttention") == len(model.spec.layers)
    assert {entry.domain: entry.version for entry in graph.opset_import} == {"": 21, "edge": 1}


@pytest.mark.parametrize("name", VARIANTS)
def test_no_graph_asks_for_a_soft_cap_inside_attention(lower: Lowerer, name: str) -> None:
    for graph in lower(name, "int8")[1].graphs:
        for node in onnx.load(str(graph.path), load_external_data=False).graph.node:
            assert "softcap" not in {attribute.name for attribute in node.attribute}


def test_scores_under_a_soft_cap_are_float32_from_the_product_on(lower: Lowerer) -> None:
    """float16 would not hold q k^T, which nothing has scaled yet."""
    for graph in lower("gemma_soft_caps", "fp16")[1].graphs:
        model = onnx.shape_inference.infer_shapes(onnx.load(str(graph.path), load_external_data=False))
        types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
        products = [name for name in types if name.endswith("/MatMul_scores.out")]
        assert len(products) == (GEMMA.layers if graph.attention == "linear" else 0)
        assert all(types[name] == onnx.TensorProto.FLOAT for name in products)


def test_a_graph_does_not_say_which_version_of_ours_made_it(lower: Lowerer) -> None:
    """Its hash stands in manifests, and `edge verify --reference` compares it after any update."""
    for graph in lower("llama_published", "int4")[1].graphs:
        model = onnx.load(str(graph.path), load_external_data=False)
        assert (model.producer_name, model.producer_version) == ("edge-zero", "")


def test_every_piece_of_the_weights_is_read_by_every_graph(lower: Lowerer) -> None:
    for name, tier in (("llama_published", "int4"), ("gemma_published", "int4"), ("llama_untied", "fp16")):
        for graph in lower(name, tier)[1].graphs:
            model = onnx.load(str(graph.path), load_external_data=False)
            ends = [
                int(entry.value)
                for tensor in model.graph.initializer
                for entry in tensor.external_data
                if entry.key == "offset"
            ]
            assert len(ends) == len(set(ends))
            read = {value for node in model.graph.node for value in node.input}
            assert {tensor.name for tensor in model.graph.initializer} <= read


def test_tensors_say_what_the_engine_takes_and_gives(lower: Lowerer) -> None:
    model, lowered = lower("gemma_published", "int4")
    spec = model.spec
    tensors = {t.name: t for graph in lowered.graphs if graph.reader == "tensorrt-10.15" for t in graph.tensors}
    cache = (1, spec.num_kv_heads, CONTEXT, spec.head_dim)
    assert tensors["input_ids"].shape == (1, -1) and tensors["input_ids"].dtype == "int64"
    assert tensors["attention_mask"].shape == (1, 1, -1, CONTEXT) and tensors["attention_mask"].dtype == "bool"
    assert tensors["past_key.0"].shape == tensors["present_key.0"].shape == cache
    assert tensors["logit_rows"].shape == (-1,) and tensors["logits"].shape == (1, -1, spec.vocab_size)
    assert tensors["past_key.0"].is_input and not tensors["present_key.0"].is_input
    paged = {t.name: t for graph in lowered.graphs if graph.attention == "paged" for t in graph.tensors}
    assert set(paged) == {
        "input_ids", "query_start", "kv_len", "page_table", "page_moves", "pool", "logit_rows", "logits"
    }  # fmt: skip
    assert paged["page_table"].shape == (2, -1, -1, 2) and paged["page_table"].dtype == "int32"
    assert paged["pool"].shape == (1,) and paged["pool"].dtype == "int64"


def test_logit_rows_chooses_rows_of_the_same_logits(lower: Lowerer) -> None:
    model, lowered = lower("llama_published", "int4")
    import onnxruntime

    path = graph_of(lowered, "tensorrt-10.15")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = step_feeds(session, some_ids(model.spec.vocab_size, 6))
    whole = session.run(["logits"], {**feeds, "logit_rows": np.arange(6)})[0]
    some = session.run(["logits"], {**feeds, "logit_rows": np.array([5, 2])})[0]
    assert some.shape == (1, 2, model.spec.vocab_size)
    assert np.abs(some[0].astype(np.float32) - whole[0, [5, 2]].astype(np.float32)).max() < 0.01


def step_feeds(session: object, ids: list[int]) -> dict[str, np.ndarray]:
    """The first step of a sequence."""
    positions = np.arange(len(ids))[None]
    feeds: dict[str, np.ndarray] = {
        "input_ids": np.array([ids]),
        "position_ids": positions,
        "write_indices": np.zeros(1, np.int64),
        "attention_mask": (np.arange(CONTEXT)[None, None] <= positions[:, :, None])[:, None],
    }
    for value in session.get_inputs():  # type: ignore[attr-defined]
        if value.name.startswith("past_"):
            feeds[value.name] = np.zeros(value.shape, np.float16)
    return feeds


def test_the_same_model_gives_the_same_hashes_wherever_it_lies(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    results = []
    for place in ("here", "somewhere else"):
        (tmp_path / place).mkdir()
        results.append(lower_tiny(tiny_gguf("gemma_published"), "int4", tmp_path / place, FLOAT_READERS)[1])
    first, second = ([graph.sha256 for graph in lowered.graphs] for lowered in results)
    assert first == second and results[0].weights_sha256 == results[1].weights_sha256
    assert len(set(first)) == 2  # TensorRT-RTX and TensorRT since 10.15 read the same


def test_another_context_changes_the_graph_and_other_weights_do_not(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    made = {}
    for name, model, context in (
        ("one", LLAMA, 64),
        ("longer", LLAMA, 128),
        ("other weights", replace(LLAMA, seed=1), 64),
    ):
        (tmp_path / name).mkdir()
        made[name] = lower_tiny(tiny_gguf(model), "int8", tmp_path / name, ("tensorrt-rtx",), context)[1]
    graphs = {name: lowered.graphs[0].sha256 for name, lowered in made.items()}
    weights = {name: lowered.weights_sha256 for name, lowered in made.items()}
    assert graphs["one"] == graphs["other weights"] != graphs["longer"]
    assert weights["one"] == weights["longer"] != weights["other weights"]


def test_an_operator_that_no_pass_knows_is_named(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    lower_tiny(tiny_gguf("llama"), "int4", tmp_path, ("tensorrt-rtx",))
    path = tmp_path / "portable.onnx"
    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "TensorScatter":
            node.attribute.append(onnx.helper.make_attribute("odd", 1))
        if node.op_type == "Transpose" and node.name.endswith("/attn/Transpose"):
            node.attribute[0].ints[:] = [0, 2, 3, 1]
    onnx.save(model, str(path))
    (tmp_path / "again").mkdir()
    with pytest.raises(BuildError, match=r"/layers\.0.*paged graph for 10\.3"):
        lower_graphs(path, tmp_path / "again", ("tensorrt-10.3",), SilentProgress())
    assert not list((tmp_path / "again").iterdir())


def test_a_folder_that_cannot_be_written_is_named(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    lower_tiny(tiny_gguf("llama"), "int4", tmp_path, ("tensorrt-rtx",))
    with pytest.raises(BuildError, match=rf"{WEIGHTS}: cannot be written"):
        lower_graphs(tmp_path / "portable.onnx", tmp_path / "missing", ("tensorrt-rtx",), SilentProgress())


def test_graphs_for_gemma_hold_one_windowed_attention_a_layer(lower: Lowerer) -> None:
    model, lowered = lower("gemma_soft_caps", "int4")
    graph = onnx.load(str(graph_of(lowered, "tensorrt-10.3")), load_external_data=False)
    nodes = [node for node in graph.graph.node if node.op_type == "PagedAttention"]
    read = [{a.name: onnx.helper.get_attribute_value(a) for a in node.attribute} for node in nodes]
    assert [attributes["window"] for attributes in read] == [layer.window for layer in model.spec.layers]
    groups = model.spec.groups
    for index, attributes in enumerate(read):
        assert index == groups[attributes["group"]][attributes["group_layer"]]
        assert attributes["group_layers"] == len(groups[attributes["group"]])
        assert attributes["soft_cap"] == pytest.approx(GEMMA.attention_soft_cap or 5.0)
    assert all(len(node.input) == 9 for node in nodes)
