"""Nodes and small constants of an ONNX graph under construction. Owns: GraphBuilder. Needs: onnx. Never: models, files."""

from __future__ import annotations

from typing import Any

import numpy as np

from engines.portable.constants import HasConstants


class GraphBuilder(HasConstants):
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
