"""Numbers too small for float16, and the nodes that need float32 because of them.

1e-6 added to a variance keeps a division finite; the nearest float16 that every processor keeps is 6e-5, another
function. The node computes in float32, and so do the root, logarithm or division behind it. A learned bias of 1e-5
without such a reader does not count; islands.py compares it with the values that it is added to.
"""

from __future__ import annotations

import onnx_ir as onnx

from onnxport.optimizers.float16.constants import LEAST
from onnxport.samples.value_uses import CARRIERS, uses

_FLOATS = (onnx.DataType.FLOAT, onnx.DataType.DOUBLE, onnx.DataType.FLOAT16, onnx.DataType.BFLOAT16)
# Operator that enlarges a tiny number -> the operand's position.
_ENLARGING = {"Div": 1, "Log": 0, "Pow": 0, "Reciprocal": 0, "Sqrt": 0}
# Operators that pass a small number on unchanged.
_PASSING = frozenset(("Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"))
# Operators that shift a value away from 0 or bound it.
SHIFTS = frozenset("Add Sub Max Clip Where".split())
_TO_THE_GUARDED = (
    CARRIERS | SHIFTS | frozenset("Abs Min Mul Neg ReduceMax ReduceMean ReduceMin ReduceSum Sum".split())
)


def is_delicate(node: onnx.Node) -> bool:
    """Return whether a node computes with a number too small for float16, or on the result of such a node."""
    if reads_tiny(node) and (node.op_type not in SHIFTS or guards(node)):
        return True
    place = 0 if node.op_type in _PASSING else _ENLARGING.get(node.op_type)
    if place is None or place >= len(node.inputs):
        return False
    source = node.inputs[place]
    producer = None if source is None else source.producer()
    return producer is not None and is_delicate(producer)


def reads_tiny(node: onnx.Node) -> bool:
    """Return whether an operand is a single nonzero number that float16 does not hold."""
    constants = (value.const_value for value in node.inputs if value is not None)
    single = (each for each in constants if each is not None and each.size == 1 and each.dtype in _FLOATS)
    return any(0 < abs(float(each.numpy().reshape(()))) < LEAST for each in single)


def guards(node: onnx.Node) -> bool:
    """Return whether a shift keeps a division, a root or a logarithm of the value finite."""
    return any(
        _ENLARGING.get(user.op_type) == position
        for value in node.outputs
        for user, position in uses(value, _TO_THE_GUARDED)
    )
