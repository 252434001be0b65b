"""Products of the native core with packed matrices: instruction sets against the plain loops, and those against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.packing import pack, unpack
from calibration.schemes import ZEROS, QuantTensor
from edge.contract import STEP, WEIGHT_KINDS
from edge.executors.cpu_plan import PlanTensor

pytestmark = pytest.mark.native
core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")

KINDS = (("fp16", 0, False), ("int8", 16, False), ("int8", 16, True), ("int8", 32, False), ("int8", 32, True),
         ("int4", 32, False), ("int4", 32, True))  # fmt: skip
UNIT = 2.0**-24  # half the distance of 1 and the next float32: the most that one rounding adds, relative


@dataclass(frozen=True)
class Product:
    """A matrix and rows to multiply it with."""

    kind: str
    minima: bool
    inputs: int  # logical K; the matrix has columns behind it, up to a whole group, which must not count
    matrix: QuantTensor | np.ndarray
    x: np.ndarray  # float32 [M, inputs]

    @property
    def outputs(self) -> int:
        return self.matrix.shape[0]

    @property
    def group(self) -> int:
        return self.matrix.group if isinstance(self.matrix, QuantTensor) else 0

    def record(self, byte_count: int) -> list[int]:
        return PlanTensor("w", self.kind, self.outputs, self.inputs, self.group, self.minima, 0, byte_count).record()

    def by(self, isa: str) -> np.ndarray:
        """float32 [M, N]"""
        packed, _ = pack(self.matrix)
        y = np.full((len(self.x), self.outputs), np.nan, np.float32)
        core.matmul(isa, packed, self.record(packed.size), self.x, y)
        return y


@st.composite
def products(draw: st.DrawFn) -> Product:
    kind, group, minima = draw(st.sampled_from(KINDS))
    outputs = draw(st.integers(1, 50).filter(lambda n: n % 16))
    inputs = draw(st.integers(1, 200).filter(lambda k: k % STEP))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = draw(st.sampled_from([spread_rows, tied_rows, extreme_rows]))(rng, draw(st.integers(1, 40)), inputs)
    if not group:
        return Product(kind, minima, inputs, rng.standard_normal((outputs, inputs)).astype(np.float16), x)
    bits, groups = int(kind[3:]), -(-inputs // group)
    top = (1 << bits) - 1
    levels = draw(st.sampled_from([np.arange(top + 1), np.array([0, top])]))  # 16-bit sums overflow at the ends, if anywhere
    quants = rng.choice(levels, (outputs, groups * group)).astype(np.uint8)
    scales, low = rng.standard_normal((2, outputs, groups)).astype(np.float16)
    return Product(kind, minima, inputs, QuantTensor(bits, group, quants, scales, low if minima else None), x)


def spread_rows(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Numbers of very different sizes, and rows of zeros."""
    sizes = 10.0 ** rng.integers(-6, 6, (rows, 1)) * rng.integers(0, 4, (rows, 1))
    return (sizes * rng.standard_normal((rows, inputs))).astype(np.float32)


def tied_rows(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Halves, with a largest magnitude of 127 in each step: the scale is 1, and every second number is a tie."""
    x = rng.integers(-253, 254, (rows, inputs)).astype(np.float32) / 2
    x[:, ::STEP] = 127
    return x


def extreme_rows(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Every quant is 127 or -127, often a whole row the same."""
    return rng.choice(np.float32([-3, 3]), (rows, 1)) * rng.choice(np.float32([1, 1, 1, -1]), (rows, inputs))


def as_the_core_reads(x: np.ndarray, padded: int) -> np.ndarray:
    """float64 [M, padded]: int8 a step of 32 inputs with the scale amax / 127, rounded half to even, times that scale."""
    steps = np.zeros((len(x), padded), np.float32)
    steps[:, : x.shape[1]] = x
    steps = steps.reshape(len(x), -1, STEP)
    largest = np.abs(steps).max(axis=2, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    read = np.rint(steps * inverse).astype(np.float64) * (largest / np.float32(127))
    return read.reshape(len(x), padded)


def exact_product(product: Product) -> tuple[np.ndarray, np.ndarray]:
    """In float64 [M, N]: the product, and the most that rounding to float32 may change it.

    A chain of n fused steps over terms t is off by at most n * UNIT * sum |t|. fp16 takes a step for each input. The others
    take one for each group, another for its minimum, and round each factor up to three times before.
    """
    matrix = product.matrix
    if not isinstance(matrix, QuantTensor):
        w, x = matrix.astype(np.float64), product.x.astype(np.float64)
        return x @ w.T, (matrix.shape[1] + 1) * UNIT * (np.abs(x) @ np.abs(w).T)
    scales = np.repeat(matrix.scales.astype(np.float64), matrix.group, axis=1)
    zero = 0 if product.minima else ZEROS[matrix.bits]
    terms = [(matrix.quants.astype(np.float64) - zero) * scales]
    if matrix.minima is not None:
        terms.append(np.repeat(matrix.minima.astype(np.float64), matrix.group, axis=1))
    x = as_the_core_reads(product.x, -(-matrix.shape[1] // STEP) * STEP)[:, : matrix.shape[1]]
    steps = len(terms) * matrix.scales.shape[1] + 4
    return x @ sum(terms).T, steps * UNIT * sum(np.abs(x) @ np.abs(term).T for term in terms)


@settings(max_examples=200, deadline=None)
@given(product=products())
def test_every_instruction_set_gives_the_bits_of_the_plain_loops(product: Product) -> None:
    plain = product.by("plain").view(np.uint32)
    for isa in core.instruction_sets():
        np.testing.assert_array_equal(product.by(isa).view(np.uint32), plain, err_msg=isa)


@settings(max_examples=200, deadline=None)
@given(product=products())
def test_a_product_is_that_of_float64_up_to_its_own_rounding(product: Product) -> None:
    exact, bound = exact_product(product)
    assert (np.abs(product.by("plain") - exact) <= bound).all()


@settings(max_examples=100, deadline=None)
@given(product=products())
def test_the_core_and_the_packer_agree_on_bytes_and_unpacking_gives_the_matrix_back(product: Product) -> None:
    packed, geometry = pack(product.matrix)
    assert core.tensor_bytes(product.record(0)) == packed.size
    again, columns = unpack(packed, geometry), product.matrix.shape[1]
    if isinstance(product.matrix, QuantTensor):
        assert isinstance(again, QuantTensor)
        groups = columns // product.group
        np.testing.assert_array_equal(again.quants[:, :columns], product.matrix.quants)
        np.testing.assert_array_equal(again.scales[:, :groups], product.matrix.scales)
        assert (again.minima is None) == (product.matrix.minima is None)
        if again.minima is not None:
            np.testing.assert_array_equal(again.minima[:, :groups], product.matrix.minima)
    else:
        np.testing.assert_array_equal(again[:, :columns], product.matrix)


def test_the_instruction_sets_start_with_the_plain_loops_and_end_with_the_best() -> None:
    names = core.instruction_sets()
    assert names[0] == "plain" and names[-1] == core.best_instruction_set()
    assert len(set(names)) == len(names)


INT4 = [WEIGHT_KINDS["int4"], 20, 40, 32, 1, 0, 0]  # a good record; a strip of it has 640 bytes


def changed(field: int, value: int) -> list[int]:
    return [*INT4[:field], value, *INT4[field + 1 :]]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (INT4[:6], "7 fields"),
        (changed(0, 9), "unknown kind"),
        (changed(0, -1), "unknown kind"),
        (changed(1, 0), "empty shape"),
        (changed(2, -40), "empty shape"),
        (changed(2, 2**31 - 1), "more inputs"),
        (changed(1, 2**32 + 20), "above 32 bits"),
        (changed(3, 16), "an int4 tensor has a group other than 32"),
        (changed(3, 0), "an int4 tensor has a group other than 32"),
        ([WEIGHT_KINDS["int8"], 20, 40, 0, 0, 0, 0], "an int8 tensor has a group other than 16 and 32"),
        ([WEIGHT_KINDS["int8"], 20, 40, 64, 0, 0, 0], "an int8 tensor has a group other than 16 and 32"),
    ],
)
def test_a_record_that_no_kernel_knows_is_refused(record: list[int], says: str) -> None:
    x, y = np.zeros((3, 40), np.float32), np.zeros((3, 20), np.float32)
    for call in (lambda: core.tensor_bytes(record), lambda: core.matmul("plain", np.zeros(1280, np.uint8), record, x, y)):
        with pytest.raises(ValueError, match=says):
            call()


def test_arrays_of_other_shapes_than_the_record_are_refused() -> None:
    assert core.tensor_bytes(INT4) == 1280
    for strip_bytes, x_shape, y_shape in (
        (1279, (3, 40), (3, 20)),
        (1920, (3, 40), (3, 20)),
        (1280, (3, 64), (3, 20)),
        (1280, (3, 40), (2, 20)),
        (1280, (3, 40), (3, 32)),
    ):
        with pytest.raises(ValueError, match="disagree in shape"):
            core.matmul("plain", np.zeros(strip_bytes, np.uint8), INT4, np.zeros(x_shape, "f4"), np.zeros(y_shape, "f4"))
    with pytest.raises(ValueError, match="a vector"):
        core.matmul("plain", np.zeros(80, np.uint8), changed(0, 0), np.zeros((3, 40), "f4"), np.zeros((3, 20), "f4"))
    with pytest.raises(ValueError, match="no instruction set named mmx"):
        core.matmul("mmx", np.zeros(1280, np.uint8), INT4, np.zeros((3, 40), "f4"), np.zeros((3, 20), "f4"))


@pytest.mark.parametrize("y", [np.zeros((3, 20)), np.zeros((20, 3), np.float32).T], ids=["float64", "columns first"])
def test_results_never_go_to_a_converted_copy(y: np.ndarray) -> None:
    with pytest.raises(TypeError):
        core.matmul("plain", np.zeros(1280, np.uint8), INT4, np.zeros((3, 40), np.float32), y)
