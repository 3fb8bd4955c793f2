"""Floats that LiteRT's kernels round to 8 bits at run time, to multiply them with stored integers.

Of each picture of a convolution and each row of a matrix product (kernels/internal/portable_tensor_utils.cc,
PortableAsymmetricQuantizeFloats; XNNPACK's xnn_qd8_asymmetric_quantization_params):

    scale = (max(x, 0) - min(x, 0)) / 255
    zero  = round(-128 - min(x, 0) / scale), or from the maximum, whichever end is nearer to 0
    codes = clamp(round(x / scale) + zero, -128, 127)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model

# On an Identity: the axes over which floats share a scale.
_AXES = "rounded over axes"
_LOW, _HIGH = -128.0, 127.0


def mark(value: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Note that an Identity's result is rounded by the kernel that reads it."""
    node = value.producer()
    assert node is not None
    node.metadata_props[_AXES] = ",".join(map(str, axes))
    return value


def with_run_time_rounding(model: Model) -> Model:
    """Return a copy in which marked values are rounded as LiteRT's kernels do."""
    copy = model.clone()
    for node in list(copy.graph):
        if _AXES in node.metadata_props and node.inputs[0] is not None:
            _Rounding(copy.graph, node).write([int(each) for each in node.metadata_props[_AXES].split(",")])
    return copy


class _Rounding:
    """The roundings in the place of one node."""

    def __init__(self, graph: ir.Graph, node: ir.Node) -> None:
        self._graph, self._node = graph, node

    def write(self, axes: Sequence[int]) -> None:
        value, add, number = self._node.inputs[0], self._add, self._number
        along = add_initializer(self._graph, f"{self._node.name}/axes", np.array(axes, np.int64))
        low = add("Min", add("ReduceMin", value, along, keepdims=1), number(0.0))
        high = add("Max", add("ReduceMax", value, along, keepdims=1), number(0.0))
        width = add("Sub", high, low)
        scale = add("Where", add("Equal", width, number(0.0)), number(1.0), add("Div", width, number(255.0)))
        below, above = (add("Div", each, scale) for each in (low, high))
        is_low = add("Less", add("Sub", number(-_LOW), below), add("Add", number(_HIGH), above))
        ends = add("Sub", number(_LOW), below), add("Sub", number(_HIGH), above)
        zero = add("Clip", add("Round", add("Where", is_low, *ends)), number(_LOW), number(_HIGH))
        codes = add("Round", add("Add", add("Div", value, scale), zero))
        codes = add("Clip", codes, number(_LOW), number(_HIGH))
        rounded = add("Mul", add("Sub", codes, zero), scale)
        self._node.outputs[0].replace_all_uses_with(rounded)

    def _add(self, op: str, *operands: ir.Value | None, **attributes: int) -> ir.Value:
        node = ir.node(op, operands, attributes)
        node.name = node.outputs[0].name = f"{self._node.name}/{op}.rounding{len(self._graph)}"
        self._graph.insert_before(self._node, node)
        return node.outputs[0]

    def _number(self, value: float) -> ir.Value:
        name = f"{self._node.name}/rounding.{value}"
        found = self._graph.initializers.get(name)
        return found or add_initializer(self._graph, name, np.asarray(value, np.float32))
