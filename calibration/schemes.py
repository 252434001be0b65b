"""Quantised tensors and the schemes that make them. Owns: QuantTensor, Scheme. Needs: numpy. Never: files, packed bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GROUPS = (16, 32)  # inputs a scale
ZEROS = {4: 8, 8: 128}  # what a quant of a tensor without minima is counted from (edge/contract.py, "weights")


@dataclass(frozen=True, slots=True)
class QuantTensor:
    """A matrix W [N outputs, K inputs] in groups of `group` inputs; K is padded to whole groups.

    Without minima W = scale * (quant - zero) with zero 8 (int4) or 128 (int8); with them W = scale * quant + minimum.
    Padded inputs hold the quant `zero` without minima and 0 with them; nobody multiplies them by anything but 0.
    """

    bits: int  # 4 or 8
    group: int  # inputs a scale: 16 or 32
    quants: np.ndarray  # uint8 [N, K]: 0..15 or 0..255
    scales: np.ndarray  # float16 [N, K / group]
    minima: np.ndarray | None  # float16 [N, K / group]; None: symmetric around `zero`

    def __post_init__(self) -> None:
        outputs, inputs = self.quants.shape
        assert self.bits in ZEROS and self.group in GROUPS and inputs % self.group == 0
        assert self.quants.dtype == np.uint8 and self.scales.dtype == np.float16
        assert self.scales.shape == (outputs, inputs // self.group)
        assert self.minima is None or (self.minima.shape == self.scales.shape and self.minima.dtype == np.float16)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K), K with its padding."""
        return self.quants.shape[0], self.quants.shape[1]

    @property
    def zero(self) -> int:
        """The quant that means 0 in a tensor without minima."""
        return ZEROS[self.bits]

    @property
    def bits_per_weight(self) -> float:
        """Stored bits a weight, scales and minima included."""
        return self.bits + (16 if self.minima is None else 32) / self.group

    def rows(self, begin: int, end: int) -> QuantTensor:
        """Rows [begin, end), as views."""
        minima = None if self.minima is None else self.minima[begin:end]
        return QuantTensor(self.bits, self.group, self.quants[begin:end], self.scales[begin:end], minima)

    def dequantise(self) -> np.ndarray:
        """W as float32 [N, K]."""
        outputs, inputs = self.shape
        grouped = self.quants.reshape(outputs, inputs // self.group, self.group).astype(np.float32)
        scales = self.scales.astype(np.float32)[:, :, None]
        if self.minima is None:
            grouped -= np.float32(self.zero)
            grouped *= scales
        else:
            grouped *= scales
            grouped += self.minima.astype(np.float32)[:, :, None]
        return grouped.reshape(outputs, inputs)


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a float matrix becomes a stored one."""

    name: str
    bits: int  # 16, 8 or 4
    group: int  # inputs a scale; 0 for fp16
    symmetric: bool  # False: a minimum for each group


SCHEMES = {
    "fp16": Scheme("fp16", bits=16, group=0, symmetric=True),
    "int8": Scheme("int8", bits=8, group=32, symmetric=True),
    "int4": Scheme("int4", bits=4, group=32, symmetric=False),
}
