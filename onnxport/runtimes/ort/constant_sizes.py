"""An upper bound of the constants that ONNX Runtime's optimizer computes, read from the weights and operators alone.

Shapes that a file declares for its values are not read: they may be wrong. Operators without a rule here (Range, Tile,
MatMul), and those whose size follows from a computed value, have no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

# Nodes that become constants where sizes are known; no tensor has more dimensions.
_DIMENSIONS, _MOST_DIMENSIONS = ("Shape", "Size"), 64

# Of a node and the most elements of each operand, the most elements of its result; None where that is open.
_Rule = Callable[[ir.Node, Sequence[int]], int | None]


def bound_constants(model: ir.Model) -> int | None:
    """Return how many elements all constants that nodes compute have together, at most; None where that is open.

    Bodies of control flow and functions are not looked into: with them, it is open.
    """
    if model.functions or any(node.graph is not model.graph for node in model.graph.all_nodes()):
        return None
    most: dict[ir.Value, int] = {}  # elements of each constant
    made, computed = set[ir.Value](), 0
    for node in model.graph:
        operands = [value for value in node.inputs if value is not None]
        if any(value.producer() is not None and value not in made for value in operands):
            return None  # nodes are not in order
        made.update(node.outputs)
        sizes = [size for value in operands if (size := _size_of(value, most)) is not None]
        if node.op_type not in _DIMENSIONS and len(sizes) < len(operands):
            continue  # it reads what a run gives
        if not operands and node.op_type != "Constant":
            return None
        size = _RULES.get(node.op_type, _open)(node, sizes) if node.domain in ("", "ai.onnx") else None
        if size is None:
            return None
        computed += size
        most.update(dict.fromkeys(node.outputs, size))
    return computed


def _size_of(value: ir.Value, most: Mapping[ir.Value, int]) -> int | None:
    """Return the most elements of a constant; None of other values."""
    return most.get(value) if value.const_value is None else _elements(value.const_value)


def _open(node: ir.Node, sizes: Sequence[int]) -> int | None:
    """Return no bound."""
    return None


def _dimensions(node: ir.Node, sizes: Sequence[int]) -> int:
    return _MOST_DIMENSIONS


def _constant(node: ir.Node, sizes: Sequence[int]) -> int | None:
    """Return the elements of a Constant that is a tensor."""
    attribute = node.attributes.get("value")
    return None if attribute is None else _elements(attribute.as_tensor())


def _elements(tensor: ir.TensorProtocol) -> int:
    return math.prod(tensor.shape.numpy())


def _first(node: ir.Node, sizes: Sequence[int]) -> int:
    """Return the elements of the first operand."""
    return sizes[0]


def _broadcast(node: ir.Node, sizes: Sequence[int]) -> int:
    return math.prod(sizes)


def _concat(node: ir.Node, sizes: Sequence[int]) -> int:
    return sum(sizes)


def _gather(node: ir.Node, sizes: Sequence[int]) -> int:
    """Return the elements of as many slices as there are indices."""
    data = node.inputs[0]
    producer, tensor = (None, None) if data is None else (data.producer(), data.const_value)
    if producer is not None and producer.op_type in _DIMENSIONS:
        return sizes[-1]
    if tensor is None or not tensor.shape.dims:
        return math.prod(sizes)
    axis = node.attributes.get_int("axis", 0)
    return math.prod(sizes) // max(tensor.shape.numpy()[axis % len(tensor.shape)], 1)


def _filled(node: ir.Node, sizes: Sequence[int]) -> int | None:
    """Return the product of the operand's numbers, if it is a weight."""
    tensor = None if node.inputs[0] is None else node.inputs[0].const_value
    return None if tensor is None else math.prod(map(abs, tensor.numpy().ravel().tolist()))


_RULES: Mapping[str, _Rule] = {
    "Constant": _constant,
    **dict.fromkeys(_DIMENSIONS, _dimensions),
    **dict.fromkeys(
        "Abs Cast Ceil Cos DequantizeLinear Exp Flatten Floor Identity Log Neg Not QuantizeLinear Reciprocal Relu "
        "Reshape Round Sigmoid Sin Slice Sqrt Squeeze Tanh Transpose Unsqueeze".split(),
        _first,
    ),
    **dict.fromkeys("Add And Div Equal Greater Less Max Min Mul Or Pow Sub Where".split(), _broadcast),
    "Concat": _concat,
    "Gather": _gather,
    "ConstantOfShape": _filled,
}
