"""Page moves of the native core: every instruction set against NumPy, written from the words of edge/contract.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.contract import FORMAT_BITS, PAGE_FORMATS, PAGE_MOVES, PAGE_TOKENS, VALUE_GROUPS, can_hold, part_bytes

pytestmark = pytest.mark.native
core = pytest.importorskip("edge._core", reason="needs the native core: pip install .")


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def sealed(x: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, scales and minima of float32 [..., numbers that share a scale]."""
    steps = np.float32(2**bits - 1)
    minimum = half(x.min(-1) + np.float32(0))
    spread = np.maximum(x.max(-1) - minimum, np.float32(0))
    scale = half(spread / steps)
    scale = np.where(scale * steps < spread, np.nextafter(scale.astype(np.float16), np.float16(np.inf)), scale)
    scale = scale.astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = (x - minimum[..., None]) / scale[..., None]
    values = np.where(scale[..., None] == 0, 0, np.rint(np.clip(quotient, 0, steps)))
    return values.astype(np.uint32), scale, minimum


def groups(x: np.ndarray, size: int) -> list[np.ndarray]:
    return [x[..., at : at + size] for at in range(0, x.shape[-1], size)]


def words(values: np.ndarray, bits: int) -> np.ndarray:
    """uint32 [n / N, m] of values [n, m]: N neighbours along the first axis a word."""
    count = 32 // bits
    shifts = [i // 2 * bits + i % 2 * 16 for i in range(count)]
    return np.sum([values[i::count] << np.uint32(shift) for i, shift in enumerate(shifts)], axis=0, dtype=np.uint32)


def packed(is_value: bool, page_format: str, values: np.ndarray, scale: np.ndarray, minimum: np.ndarray) -> np.ndarray:
    """A part: values [D, 32 tokens] of K with scales [D], values [32 tokens, D] of V with scales [G, 32 tokens]."""
    pieces = [words(values, FORMAT_BITS[page_format]), scale.astype(np.float16), minimum.astype(np.float16)]
    part = np.concatenate([piece.reshape(-1).view(np.uint8) for piece in pieces])
    return np.concatenate(
        [part, np.zeros(part_bytes(is_value, page_format, values.shape[int(is_value)]) - part.size, np.uint8)]
    )


def seal(is_value: bool, page_format: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The part that keeps float32 [D, 32 tokens] of K or [32 tokens, D] of V, and the numbers that it keeps."""
    bits = FORMAT_BITS[page_format]
    pieces = [sealed(piece, bits) for piece in (groups(x, VALUE_GROUPS[page_format]) if is_value else [x])]
    values = np.concatenate([piece[0] for piece in pieces], axis=1)
    scale, minimum = (np.stack([piece[i] for piece in pieces]) for i in (1, 2))
    width = np.concatenate([np.full(piece[0].shape[1], i) for i, piece in enumerate(pieces)])
    exact = scale[width].T.astype(np.float64) * values + minimum[width].T
    return packed(is_value, page_format, values, scale, minimum), exact.astype(np.float32)


def cut_keys(x: np.ndarray) -> np.ndarray:
    """The int4 part of K [D, 32 tokens] that was sealed to int8 before."""
    values, scale, minimum = sealed(x, 8)
    return packed(False, "int4", values >> 4, half(scale * 16), half(minimum + np.float32(7.5) * scale))


@st.composite
def parts(draw: st.DrawFn) -> tuple[bool, np.ndarray]:
    """K [D, 32 tokens] or V [32 tokens, D] as float16."""
    is_value, dim = draw(st.booleans()), draw(st.sampled_from([8, 40, 64, 96, 128, 256]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (PAGE_TOKENS, dim) if is_value else (dim, PAGE_TOKENS)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-10, 10, (shape[0], 1))
    x[rng.random(shape) < draw(st.sampled_from([0.0, 0.01, 0.5]))] = draw(
        st.sampled_from([0.0, -0.0, 65504.0, -65504.0, 2.0**-24])
    )
    if draw(st.integers(0, 4)) == 0:
        x[rng.integers(0, shape[0])] = 1.5
    return is_value, x.astype(np.float16)


def move(isa: str, is_value: bool, source_format: str, target_format: str, dim: int, source: np.ndarray) -> np.ndarray:
    target = np.full(part_bytes(is_value, target_format, dim), 0xFF, np.uint8)
    core.move_parts(isa, int(is_value), PAGE_FORMATS[source_format], PAGE_FORMATS[target_format], dim, source, target)
    return target


@pytest.mark.parametrize("isa", core.instruction_sets())
@given(part=parts())
@settings(max_examples=60, deadline=None)
def test_a_page_is_sealed_and_demoted_as_the_contract_says(isa: str, part: tuple[bool, np.ndarray]) -> None:
    is_value, x = part
    dim = x.shape[int(is_value)]
    source = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    for page_format in ("int8", "int4", "int2"):
        if not can_hold(is_value, page_format, dim):
            continue
        expected, kept = seal(is_value, page_format, x.astype(np.float32))
        first = move(isa, is_value, "fp16", page_format, dim, source)
        assert np.array_equal(first, expected), page_format
        assert np.array_equal(move(isa, is_value, page_format, page_format, dim, first), first)
        for lower in PAGE_MOVES[page_format][1:]:
            if not can_hold(is_value, lower, dim):
                continue
            expected = seal(is_value, lower, kept)[0] if is_value else cut_keys(x.astype(np.float32))
            assert np.array_equal(move(isa, is_value, page_format, lower, dim, first), expected), (page_format, lower)


def test_moves_that_nobody_can_do_are_refused() -> None:
    part = np.zeros(part_bytes(False, "fp16", 64), np.uint8)
    for side, source, target in ((0, 0, 3), (0, 1, 0), (1, 2, 1), (1, 0, 4), (2, 0, 0)):
        with pytest.raises(ValueError, match="format"):
            core.move_parts("plain", side, source, target, 64, part, part.copy())
    with pytest.raises(ValueError, match="size"):
        core.move_parts("plain", 0, 0, 1, 64, part, np.zeros(100, np.uint8))
