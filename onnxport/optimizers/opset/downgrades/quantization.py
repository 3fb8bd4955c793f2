"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.opset.node import Node, NoForm, lowers, required

_BYTES = {ir.DataType.UINT8: (0, 255), ir.DataType.INT8: (-128, 127)}


@lowers("QuantizeLinear", version=21)
def quantize_type(node: Node) -> None:
    """Write `output_dtype` as a zero point of that type."""
    dtype = ir.DataType(node.attribute("output_dtype", 0))
    if node.attribute("block_size", 0):
        raise NoForm("block scales came with opset 21")
    scale = node.shape(required(node.input(1)))
    needs_zero_point = node.input(2) is None and dtype not in (ir.DataType.UNDEFINED, ir.DataType.UINT8)
    if needs_zero_point and (scale is None or None in scale):
        raise NoForm("its output_dtype came with opset 21, and the shape of its scale is not known")
    node.take("output_dtype")
    if needs_zero_point and scale is not None:
        node.put_input(2, node.constant(np.zeros([size or 0 for size in scale]), dtype))


def _refuses_other_type(op_type: str, name: str, feature: str) -> None:
    """Register a lowering from opset 23 that refuses an attribute with another type than the scale's."""

    @lowers(op_type, version=23)
    def check(node: Node) -> None:
        dtype = ir.DataType(node.attribute(name, 0))
        if dtype not in (ir.DataType.UNDEFINED, node.dtype(required(node.input(1)))):
            raise NoForm(f"{feature} ({name}) came with opset 23")
        node.take(name)


_refuses_other_type("DequantizeLinear", "output_dtype", "a result of another type than its scale")
_refuses_other_type("QuantizeLinear", "precision", "a division in another type than its scale's")


@lowers("DequantizeLinear", version=13)
def dequantize_axis(node: Node) -> None:
    """Write a scale per channel out: (x - zero point) * scale."""
    scale = required(node.input(1))
    if _is_scalar(node, scale):
        node.take("axis")
        return
    shape = _channel_shape(node)
    value = node.before("Cast", node.x, to=int(ir.DataType.FLOAT))
    if (zero := node.input(2)) is not None:
        value = node.before("Sub", value, _channel_points(node, zero, shape))
    node.become("Mul", value, node.before("Reshape", scale, shape))


@lowers("QuantizeLinear", version=13)
def quantize_axis(node: Node) -> None:
    """Write a scale per channel out: divide, round and saturate."""
    scale, zero = required(node.input(1)), node.input(2)
    if _is_scalar(node, scale):
        node.take("axis")
        return
    dtype = ir.DataType.UINT8 if zero is None else node.dtype(zero)
    if dtype not in _BYTES:
        raise NoForm("the type of its zero point is not known")
    shape = _channel_shape(node)
    value = node.before("Round", node.before("Div", node.x, node.before("Reshape", scale, shape)))
    if zero is not None:
        value = node.before("Add", value, _channel_points(node, zero, shape))
    bounds = (node.constant(bound, ir.DataType.FLOAT) for bound in _BYTES[dtype])
    node.become("Cast", node.before("Clip", value, *bounds), to=int(dtype))


def _is_scalar(node: Node, scale: ir.Value) -> bool:
    shape = node.shape(scale)
    if shape is None:
        raise NoForm("the rank of its scale is unknown: it may be per channel")
    return shape in ([], [1])


def _channel_shape(node: Node) -> ir.Value:
    """Return the shape that aligns a number per channel with the node's first input."""
    shape = node.shape(node.x)
    if shape is None:
        raise NoForm("the rank of its input is unknown, and so is its channel axis")
    node.remark("scales per channel came with opset 13: they are applied in float32, without integer kernels")
    behind = len(shape) - 1 - node.attribute("axis", 1) % len(shape)
    return node.constant([-1] + [1] * behind)


def _channel_points(node: Node, zero: ir.Value, shape: ir.Value) -> ir.Value:
    return node.before("Reshape", node.before("Cast", zero, to=int(ir.DataType.FLOAT)), shape)
