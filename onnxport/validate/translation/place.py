"""The place of a node that is rewritten as others which compute the same."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.validate.translation.constants import Constants, is_stored


class Place:
    """A node that is rewritten."""

    def __init__(
        self, graph: ir.Graph, node: ir.Node, constants: Constants, opset: int, known: Collection[ir.Value]
    ) -> None:
        self.graph, self.node, self.opset = graph, node, opset
        self._constants, self._known = constants, known

    def is_constant(self, value: ir.Value | None) -> bool:
        return value is not None and (value in self._known or is_stored(value))

    def constant(self, value: ir.Value | None) -> float | None:
        """Return a constant of one element."""
        return self._constants.number(value) if self.is_constant(value) else None

    def array(self, value: ir.Value | None) -> Array | None:
        """Return a constant's numbers."""
        found = self._constants.get(value) if self.is_constant(value) else None
        return None if found is None else found.values

    def is_zero(self, value: ir.Value | None) -> bool:
        """Return whether a value is a constant of zeros, or missing."""
        found = self._constants.get(value) if self.is_constant(value) else None
        return value is None or (found is not None and not found.values.any())

    def input(self, place: int) -> ir.Value | None:
        return self.node.inputs[place] if place < len(self.node.inputs) else None

    def add(self, op: str, operands: Sequence[ir.Value | None], **attributes: Any) -> ir.Value:
        node = ir.node(op, operands, attributes)
        result = self.node.outputs[0]
        node.name = node.outputs[0].name = f"{self._name}/{op}.formula{len(self.graph)}"
        node.outputs[0].type = result.type
        self.graph.insert_before(self.node, node)
        return node.outputs[0]

    @property
    def _name(self) -> str:
        """The name of a result; those that nobody reads have lost theirs."""
        return next((each.name for each in self.node.outputs if each.name), "")

    def number(self, value: float) -> ir.Value:
        return self.store(np.asarray(value, np.float32))

    def store(self, array: Array) -> ir.Value:
        name = f"{self._name}/formula.{len(self.graph.initializers)}"
        return add_initializer(self.graph, name, array)

    def integers(self, values: Sequence[int]) -> ir.Value:
        return self.store(np.array(values, np.int64))

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        return self.add("Reshape", [value, self.integers(shape)])

    def mean(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the mean over the axes from `axis`, which is negative, on."""
        axes = list(range(axis, 0))
        if self.opset < 18:
            return self.add("ReduceMean", [value], axes=axes, keepdims=1)
        return self.add("ReduceMean", [value, self.store(np.array(axes, np.int64))], keepdims=1)

    def total(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the sum over one axis, which is kept."""
        if self.opset < 13:
            return self.add("ReduceSum", [value], axes=[axis], keepdims=1)
        return self.add("ReduceSum", [value, self.integers([axis])], keepdims=1)

    def finish(self, value: ir.Value) -> None:
        """Put `value` in the node's place, under its names."""
        self.finish_result(0, value)

    def finish_result(self, number: int, value: ir.Value) -> None:
        """Put `value` in the place of one of the node's results."""
        result, maker = self.node.outputs[number], value.producer()
        assert maker is not None
        maker.name, name = self.node.name or maker.name, result.name
        result.name, value.name = f"{name}/rewritten", name
        value.type, value.shape = result.type, result.shape
        result.replace_all_uses_with(value, replace_graph_outputs=True)


def before_casts(value: ir.Value | None) -> ir.Value | None:
    """Return the value before casts between floats, which round at most."""
    while value is not None and (node := value.producer()) is not None:
        given = node.inputs[0] if node.inputs else None
        is_cast = (
            node.op_type == "Cast" and given is not None and value.dtype in _FLOATS and given.dtype in _FLOATS
        )
        if not (is_cast or node.op_type == "Identity"):
            break
        value = given
    return value


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
