"""The replacement of one node of a graph by others that compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor
from onnxport.formats.initializers import add_initializer


class Rewrite:
    """The replacement of one node."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self.graph, self.node = graph, node
        self.at = node

    def input(self, place: int) -> ir.Value | None:
        return self.node.inputs[place] if place < len(self.node.inputs) else None

    def constant(self, place: int) -> Array | None:
        value = self.input(place)
        tensor = constant_tensor(value)
        return None if tensor is None else tensor.numpy()

    def add(
        self, op: str, operands: Sequence[ir.Value | None], *, outputs: int = 1, **attributes: Any
    ) -> ir.Value:
        """Add a node before the one that is replaced; return its first result."""
        added = ir.node(op, operands, attributes, num_outputs=outputs)
        name = f"{self.node.outputs[0].name}/{op}.{len(self.graph)}"
        added.name = added.outputs[0].name = name
        for place, each in enumerate(added.outputs[1:]):
            each.name = f"{name}.{place + 1}"
        self.graph.insert_before(self.at, added)
        return added.outputs[0]

    def store(self, array: Array, what: str) -> ir.Value:
        """Add an initializer."""
        return add_initializer(self.graph, f"{self.node.outputs[0].name}/{what}", array)

    def floats(self, place: int, axis: int = 1) -> ir.Value:
        """Return what the integers at three inputs from `place` on stand for."""
        operands = [self.input(place + each) for each in range(3)]
        scale = self.constant(place + 1)
        if scale is not None and scale.ndim == 1 and scale.size == 1:  # one for all, in an array
            operands[1] = self.store(scale.reshape(()), f"scale.{place}")
            zero = self.constant(place + 2)
            operands[2] = None if zero is None else self.store(zero.reshape(()), f"zero.{place}")
        is_wide = scale is not None and scale.size > 1
        found = self.add("DequantizeLinear", operands, **({"axis": axis} if is_wide else {}))
        found.type = ir.TensorType(ir.DataType.FLOAT)
        return found

    def bias(self, place: int, *scales: int) -> ir.Value | None:
        """Return the float bias of int32 codes, whose step is the product of these scales."""
        codes, steps = self.constant(place), [self.constant(each) for each in scales]
        if codes is None or any(each is None for each in steps):
            return None
        step: Array = np.ones(1, np.float32)
        for each in steps:
            step = step * np.asarray(each, np.float32).reshape(-1)
        whole = np.broadcast_to(step, codes.reshape(-1).shape).astype(np.float32)
        if step.size == 1:
            whole = step.reshape(()).astype(np.float32)
        stored = [self.store(codes.reshape(-1).astype(np.int32), "bias"), self.store(whole, "bias.scale")]
        return self.add("DequantizeLinear", [*stored, None], **({"axis": 0} if step.size > 1 else {}))

    def finish(
        self,
        value: ir.Value,
        scale: int | None,
        *,
        keep: ir.Node | None = None,
        named: ir.Value | None = None,
    ) -> None:
        """Put `value`, quantized with scale and zero point from input `scale` on, in the node's place.

        Args:
            keep: the node whose result is replaced, if it is another one.
            named: the value whose node takes the name of the one that is replaced; `value` unless given.
        """
        maker = (named or value).producer()
        assert maker is not None
        maker.name = self.node.name or maker.name
        replaced = (keep or self.node).outputs[0]
        value.type = ir.TensorType(ir.DataType.FLOAT)
        if scale is not None:
            dtype = replaced.type
            value = self.add("QuantizeLinear", [value, self._scalar(scale), self._scalar(scale + 1)])
            value.type = dtype
        if keep is not None:
            value.type = replaced.type
        name, replaced.name = replaced.name, f"{replaced.name}/replaced"
        value.name, value.shape = name, replaced.shape
        replaced.replace_all_uses_with(value, replace_graph_outputs=True)

    def _scalar(self, place: int) -> ir.Value | None:
        found = self.constant(place)
        if found is None or found.ndim == 0 or found.size > 1:
            return self.input(place)
        return self.store(found.reshape(()), f"result.{place}")

    def attributes(self, *left_out: str) -> dict[str, Any]:
        return {name: each for name, each in self.node.attributes.items() if name not in left_out}
