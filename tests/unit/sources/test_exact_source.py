"""What a tier is judged against has none of the rounding of reading."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs the build extra: gguf")
sys.path.insert(0, str(Path(__file__).parents[2] / "tiny"))

from synthetic import VARIANTS, write_tiny

from calibration.schemes import QuantTensor
from engines.sources.base import open_source
from engines.sources.exact import ExactSource

NAME = "layers.0.ffn.down_proj.weight"


def test_a_k_format_is_read_as_the_file_says_it(tmp_path: Path) -> None:
    source = open_source(write_tiny(tmp_path / "model.gguf", VARIANTS["llama_q4_k"]))
    carried, exact = source.read(NAME), ExactSource(source).read(NAME)
    assert carried.rounding and not exact.rounding
    assert isinstance(exact.values, np.ndarray) and exact.values.dtype == np.float32
    assert np.array_equal(exact.values, source.read_exact(NAME, 0, source.shape(NAME)[0]))
    assert not np.array_equal(exact.values, carried.to_float32())


def test_what_reading_does_not_round_stays_quantised(tmp_path: Path) -> None:
    source = open_source(write_tiny(tmp_path / "model.gguf", VARIANTS["llama_q4_1"]))
    assert isinstance(ExactSource(source).read(NAME).values, QuantTensor)
