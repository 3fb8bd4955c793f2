"""The uses of a value in the graph, and the constants that it is combined with."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.constant_tensors import constant_tensor

# Operators whose output has the values of their first input; Concat, of every input.
CARRIERS = frozenset(
    "Cast Identity Reshape Squeeze Unsqueeze Transpose Slice Concat Flatten Expand Tile Split Gather Pad Dropout "
    "GatherElements GatherND DepthToSpace SpaceToDepth".split()
)


def uses(value: ir.Value, through: frozenset[str] = CARRIERS) -> Iterator[tuple[ir.Node, int]]:
    """Yield every node that reads the values of `value`, also behind operators `through`, with the input's index."""
    for carried in carried_values(value, through):
        yield from carried.uses()


def carried_values(value: ir.Value, through: frozenset[str] = CARRIERS) -> Iterator[ir.Value]:
    """Yield `value` and every value that the operators `through` pass it on to."""
    pending, seen = [value], {id(value)}
    while pending:
        current = pending.pop()
        yield current
        for node, index in current.uses():
            if node.op_type in through and (index == 0 or node.op_type == "Concat"):
                fresh = [output for output in node.outputs if id(output) not in seen]
                seen.update(id(output) for output in fresh)
                pending.extend(fresh)


def made_by(value: ir.Value | None, op_type: str) -> bool:
    """Return whether an `op_type` computes `value`, possibly reshaped or cast afterwards."""
    while value is not None and (producer := value.producer()) is not None:
        if producer.op_type == op_type:
            return True
        if producer.op_type not in CARRIERS:
            return False
        value = producer.inputs[0]
    return False


def constant(value: ir.Value | None) -> Array | None:
    """Return the array of `constant_tensor`."""
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def operand(node: ir.Node, index: int) -> Array | None:
    """Return the constant that a node of two inputs combines the input at `index` with; None if there is none."""
    return constant(node.inputs[1 - index]) if len(node.inputs) == 2 else None
