"""Nodes and small constants of an ONNX graph under construction. Owns: GraphBuilder. Needs: onnx. Never: models, files."""

from __future__ import annotations

from typing import Any

import numpy as np


class GraphBuilder:
    """Collects nodes in order. A node's path is its name and, with ".out" behind it, the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []  # onnx.NodeProto
        self.constants: dict[str, np.ndarray] = {}

    def node(self, op: str, path: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Adds one node of `op` at `path` and returns its output's name: `output`, or `path`.out."""
        from onnx import helper

        result = output or f"{path}.out"
        self.nodes.append(helper.make_node(op, inputs, [result], name=path, **attributes))
        return result

    def constant(self, name: str, values: np.ndarray) -> str:
        """A small constant kept inside the graph; one name may be asked for again with the same values."""
        known = self.constants.setdefault(name, values)
        assert np.array_equal(known, values), name
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector, named by what it holds: shapes, axes, pads."""
        return self.constant("ints." + "_".join(str(v) for v in values), np.array(values, np.int64))
