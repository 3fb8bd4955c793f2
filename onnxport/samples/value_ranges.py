"""The range of an input's numbers, inferred from the first nodes of a graph: images, masks, positive values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.samples.value_uses import CARRIERS, carried_values, constant, operand, uses

Bounds = tuple[float, float]

BYTES: Bounds = (0.0, 255.0)
UNIT: Bounds = (0.0, 1.0)

# Operators that keep a positive value positive, and those that need one.
_KEEP_POSITIVE = CARRIERS | {"Add", "Mul", "Clip", "Max", "Relu"}
_NEED_POSITIVE = frozenset({("Log", 0), ("Sqrt", 0), ("Reciprocal", 0), ("Div", 1)})
# Divisors that scale bytes to about 1 (255, 256, 127.5).
_BYTE_DIVISORS = (100.0, 300.0)
# Means of bytes, and of bytes divided by 255; ImageNet's are 104 to 124 and 0.4 to 0.5.
_BYTE_MEANS = (50.0, 200.0)
_UNIT_MEANS = (0.1, 0.9)
# Factors above this do not mask a softmax.
_HIDING = -1e3
# The value of an additive mask where it hides.
HIDDEN = -10000


def bounds(value: ir.Value) -> Bounds | None:
    """Return the range of an image before the graph normalises it; None where the graph does not."""
    for node, index in uses(value):
        found = _normalisation_range(node, index)
        if found is not None:
            return found
    return None


def _normalisation_range(node: ir.Node, index: int) -> Bounds | None:
    if node.op_type == "BatchNormalization" and index == 0:
        running = constant(node.inputs[3])
        return BYTES if running is not None and _within(float(running.max()), _BYTE_MEANS) else None
    other = operand(node, index)
    if other is None or not other.size or other.size > 4 or other.dtype.kind != "f":
        return None
    if node.op_type in ("Mul", "Div") and np.all(other > 0):
        divisor = 1.0 / other if node.op_type == "Mul" else other
        scales = node.op_type == "Mul" or index == 0
        return BYTES if scales and _within(float(np.max(divisor)), _BYTE_DIVISORS) else None
    if node.op_type == "Sub" and index == 0:
        return _mean_range(node, other)
    return _mean_range(node, -other) if node.op_type == "Add" else None


def _mean_range(node: ir.Node, mean: Array) -> Bounds | None:
    """Return the range of an image by the mean that is subtracted; a small mean counts only before a division."""
    if _within(float(np.max(mean)), _BYTE_MEANS):
        return BYTES
    divided = any(
        after.op_type in ("Div", "Mul") and operand(after, index) is not None
        for after, index in uses(node.outputs[0])
    )
    return UNIT if divided and _within(float(np.min(mean)), _UNIT_MEANS) else None


def is_positive(value: ir.Value) -> bool:
    """Return whether the values go into a logarithm, a root, a fractional power or a denominator.

    Before that they may be scaled, clipped or shifted by a small positive constant.
    """
    reached = (
        use
        for carried in carried_values(value, _KEEP_POSITIVE)
        if _keeps_sign(carried)
        for use in carried.uses()
    )
    return any(
        (node.op_type, index) in _NEED_POSITIVE or _is_fractional_power(node, index)
        for node, index in reached
    )


def _keeps_sign(value: ir.Value) -> bool:
    """Return False for sums and products with anything but positive constants."""
    producer = value.producer()
    if producer is None or producer.op_type not in ("Add", "Mul", "Max"):
        return True
    others = [each for index in range(2) if (each := operand(producer, index)) is not None]
    return bool(others) and all(np.all(other >= 0) and np.all(other <= 1) for other in others)


def _is_fractional_power(node: ir.Node, index: int) -> bool:
    if node.op_type != "Pow" or index != 0:
        return False
    exponent = operand(node, 0)
    return exponent is not None and bool(np.any(exponent != np.round(exponent)))


def is_mask(value: ir.Value) -> bool:
    """Return whether the values select: in a Where, or times a large negative number, possibly after 1 - x."""
    for node, index in uses(value):
        if node.op_type == "Where" and index == 0:
            return True
        is_inverted = node.op_type == "Sub" and index == 1 and _is_one(operand(node, 1))
        after = uses(node.outputs[0]) if is_inverted else iter([(node, index)])
        if any(_hides(*use) for use in after):
            return True
    return False


def _hides(node: ir.Node, index: int) -> bool:
    other = operand(node, index) if node.op_type == "Mul" else None
    return other is not None and other.size == 1 and bool(other.ravel()[0] <= _HIDING)


def is_added_to_scores(value: ir.Value) -> bool:
    """Return whether the values are added to a softmax's input, as masks of 0 and a large negative number."""
    return any(
        node.op_type == "Add" and any(after.op_type == "Softmax" for after, _ in uses(node.outputs[0]))
        for node, _ in uses(value)
    )


def _is_one(array: Array | None) -> bool:
    return array is not None and array.size == 1 and bool(array.ravel()[0] == 1)


def _within(number: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= number <= limits[1]
