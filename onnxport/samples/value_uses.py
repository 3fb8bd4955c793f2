"""Where a value of the graph goes, and what constants it meets there."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxport.core.arrays import Array

# Operators whose output holds the values of their first input (of every input for Concat).
CARRIERS = frozenset(
    "Cast Identity Reshape Squeeze Unsqueeze Transpose Slice Concat Flatten Expand Tile Split Gather Pad Dropout "
    "GatherElements GatherND DepthToSpace SpaceToDepth".split()
)


def uses(value: ir.Value, through: frozenset[str] = CARRIERS) -> Iterator[tuple[ir.Node, int]]:
    """Every node that sees the values of `value`, with the position; `through` are operators that pass them on."""
    for carried in carried_on(value, through):
        yield from carried.uses()


def carried_on(value: ir.Value, through: frozenset[str] = CARRIERS) -> Iterator[ir.Value]:
    """`value`, and every value that holds what it holds: through the first input of these operators, and Concat."""
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
    """Whether `value` is what an `op_type` gave, maybe reshaped or cast."""
    while value is not None and (producer := value.producer()) is not None:
        if producer.op_type == op_type:
            return True
        if producer.op_type not in CARRIERS:
            return False
        value = producer.inputs[0]
    return False


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node's output, unread; None for anything that is computed."""
    if value is None:
        return None
    producer = value.producer()
    if value.const_value is None and producer is not None and producer.op_type == "Constant":
        return ir.convenience.get_const_tensor(value)
    return value.const_value


def constant(value: ir.Value | None) -> Array | None:
    """As `constant_tensor`, read into an array."""
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def operand(node: ir.Node, index: int) -> Array | None:
    """The constant that a node of two inputs combines the one at `index` with; None if there is none."""
    return constant(node.inputs[1 - index]) if len(node.inputs) == 2 else None
