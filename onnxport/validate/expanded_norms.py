"""A copy of a model with InstanceNormalization in float64: a probe of how the model's own rounds.

ONNX Runtime has one kernel for it, with and without optimization. On a constant channel of 16,384 numbers near 1 that
kernel is off by 1e-2 of a standard deviation: it rounds the sum, and the small epsilon divides the error.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.initializers import add_initializer
from onnxport.formats.model import Model

_OPERATOR = "InstanceNormalization"
# Since this opset ReduceMean takes its axes as an input.
_AXES_AS_INPUT = 18


def expand_norms(model: Model) -> Model | None:
    """Return a copy without InstanceNormalization; None where there is none in float32."""
    if not any(map(_is_expandable, model.graph)):
        return None
    copy = model.clone()
    for node in [each for each in copy.graph if _is_expandable(each)]:
        _expand(node, copy)
    return copy


def _is_expandable(node: ir.Node) -> bool:
    x = node.inputs[0] if node.op_type == _OPERATOR and not node.domain else None
    return x is not None and x.dtype in (None, ir.DataType.FLOAT)


def _expand(node: ir.Node, model: Model) -> None:
    """Replace (x - mean) / sqrt(var + epsilon) * scale + bias by these operators, on [batch, channel, space]."""
    graph, result = model.graph, node.outputs[0]
    x, scale, bias = node.inputs
    names = (f"{result.name}/expanded.{number}" for number in itertools.count())

    def constant(value: Array) -> ir.Value:
        return add_initializer(graph, next(names), value)

    def add(op: str, *inputs: ir.Value | None, **attributes: int | Sequence[int]) -> ir.Value:
        inner = ir.node(op, list(inputs), attributes)
        inner.outputs[0].name = inner.name = next(names)
        graph.insert_before(node, inner)
        return inner.outputs[0]

    def mean(value: ir.Value | None) -> ir.Value:
        if model.opset < _AXES_AS_INPUT:
            return add("ReduceMean", value, axes=[2], keepdims=1)
        return add("ReduceMean", value, constant(np.array([2])), keepdims=1)

    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    flat = add("Reshape", x, constant(np.array([0, 0, -1])))
    wide = add("Cast", flat, to=int(ir.DataType.DOUBLE))
    centred = add("Sub", wide, mean(wide))
    variance = add("Add", mean(add("Mul", centred, centred)), constant(np.array(epsilon)))
    standard = add("Cast", add("Div", centred, add("Sqrt", variance)), to=int(ir.DataType.FLOAT))
    per_channel = constant(np.array([-1, 1]))
    scaled = add("Mul", standard, add("Reshape", scale, per_channel))
    shifted = add("Add", scaled, add("Reshape", bias, per_channel))
    new = add("Reshape", shifted, add("Shape", x))
    new.shape, new.type = result.shape, result.type
    if result.is_graph_output():
        new.name, result.name = result.name, new.name
    result.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
