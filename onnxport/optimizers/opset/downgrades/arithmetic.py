"""Integers, booleans and half precision where older operators take fewer types: computed in a wider type, cast
back."""

from __future__ import annotations

import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required

_BOOL, _INT32, _INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64
_NARROW = (ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16)
_HALF, _FLOAT, _DOUBLE = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE

# Operator and version: the type in which the older form computes the same as the newer one does in the other types.
WIDER: dict[tuple[str, int], dict[ir.DataType, ir.DataType]] = {
    **{(op, 14): dict.fromkeys(_NARROW, _INT32) for op in ("Add", "Sub", "Mul", "Div")},
    ("Relu", 14): {**dict.fromkeys(_NARROW, _FLOAT), _INT32: _DOUBLE},
    ("MaxPool", 12): {ir.DataType.INT8: _FLOAT, ir.DataType.UINT8: _FLOAT},
    ("Pad", 13): {_BOOL: _INT32},
    ("IsInf", 20): {_HALF: _FLOAT},
    **{(op, 20): {_BOOL: _INT32} for op in ("ReduceMax", "ReduceMin")},
    **{(op, 12): {ir.DataType.INT8: _INT32, ir.DataType.UINT8: _INT32} for op in ("ReduceMax", "ReduceMin")},
}


@lowers("Clip", version=12)
def clip_integers(node: Node) -> None:
    """Write Clip of integers with comparisons; before, it took floats only."""
    wide = _comparison_type(node)
    if wide is None:
        return
    value = _cast(node, node.x, wide)
    for bound, comparison in ((node.input(1), "Less"), (node.input(2), "Greater")):
        if bound is not None:
            value = _choose(node, comparison, value, _cast(node, bound, wide))
    node.become("Cast", value, to=int(node.dtype(node.x) or wide))


@lowers("Max", "Min", version=12)
def extremes_of_integers(node: Node) -> None:
    """Write Max and Min of integers with comparisons, two operands at a time."""
    wide = _comparison_type(node)
    if wide is None:
        return
    comparison = "Less" if node.ir.op_type == "Max" else "Greater"
    value, *others = (_cast(node, required(each), wide) for each in node.ir.inputs)
    for other in others:
        value = _choose(node, comparison, value, other)
    node.become("Cast", value, to=int(node.dtype(node.x) or wide))


def _comparison_type(node: Node) -> ir.DataType | None:
    """Return the type in which ONNX Runtime's older kernels compare such integers; None for floats."""
    dtype = node.dtype(node.x)
    if dtype is None or not dtype.is_integer():
        return None
    if dtype == ir.DataType.UINT64:
        raise NoForm("its older form does not compare unsigned 64-bit integers")
    return dtype if dtype in (_INT32, _INT64) else _INT32 if dtype in _NARROW else _INT64


def _cast(node: Node, value: ir.Value, to: ir.DataType) -> ir.Value:
    return value if node.dtype(value) == to else node.before("Cast", value, to=int(to))


def _choose(node: Node, comparison: str, value: ir.Value, other: ir.Value) -> ir.Value:
    """Return `other` where `value` compares so with it, `value` elsewhere."""
    return node.before("Where", node.before(comparison, value, other), other, value)


@lowers("Pow", version=12)
def power(node: Node) -> None:
    """Cast base and exponent to one float type; integers up to 32 bits are exact as double."""
    base, exponent = (required(node.input(index)) for index in range(2))
    types = node.dtype(base), node.dtype(exponent)
    if types[0] is None or types[1] is None:
        raise NoForm("the types of its inputs are unknown; before opset 12 they must be equal")
    if types[0] == types[1] and types[0].is_floating_point():
        return
    if types[0] == _INT64 or types[1] == ir.DataType.UINT64:
        raise NoForm("its older form does not raise 64-bit integers")
    if types[0].is_floating_point():
        node.put_input(1, node.before("Cast", exponent, to=int(types[0])))
        return
    for index, value in enumerate((base, exponent)):
        node.put_input(index, node.before("Cast", value, to=int(_DOUBLE)))
    node.after(0, "Cast", to=int(types[0]))
    node.ir.outputs[0].type = ir.TensorType(_DOUBLE)


@lowers("BitwiseNot", version=18)
def bitwise_not(node: Node) -> None:
    """Write ~x as -1 - x, equal in two's complement."""
    dtype = node.dtype(node.x)
    if dtype is None or not dtype.is_signed():
        raise NoForm("it inverts bits of unsigned integers; no older operator does")
    node.become("Sub", node.constant(-1, dtype), node.x)
