"""Operators on quantized tensors (QLinearConv, QLinearAdd, ...) as float ones between pairs of Q and DQ.

That is how ONNX and com.microsoft define them. Targets then have one form of quantized models (qdq.py), in which
they find the integer kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxport.optimizers.rewrites.registry import CONV, Rewrite, rewrites


@rewrites("QLinearConv", "com.microsoft::QLinearConv")
def qlinear_conv(node: Rewrite) -> None:
    """Convolve int8 or uint8 x and w, with an int32 bias at the scale of their product (ONNX QLinearConv-10)."""
    _refuse_channels_last(node)
    x, w = _floats(node, 0), _floats(node, 3, axis=0)
    operands = [x, w]
    if node.has_input(8):
        scale = node.op("Mul", node.input(1), node.input(4))
        operands.append(node.op("DequantizeLinear", node.input(8), scale, axis=0))
    _emit(node, node.op("Conv", *operands, **node.attributes(*CONV)), 6)


@rewrites("QLinearMatMul")
def qlinear_matmul(node: Rewrite) -> None:
    """Multiply quantized matrices; B may have a scale per column (ONNX QLinearMatMul-21)."""
    rank = len(node.shape(node.input(3)))
    for index in (1, 2):
        if node.shape(node.input(index)) not in ((), (1,)):
            node.unsupported("the rows of its first operand have separate scales")
    _emit(node, node.op("MatMul", _floats(node, 0), _floats(node, 3, axis=rank - 1)), 6)


@rewrites("com.microsoft::QGemm")
def qgemm(node: Rewrite) -> None:
    """Compute alpha * A' * B' + C with an int32 C at scale alpha * a * b; float without an output scale."""
    transposed = node.attribute("transB", 0)
    alpha = float(node.attribute("alpha", 1.0))
    operands = [_floats(node, 0), _floats(node, 3, axis=0 if transposed else 1)]
    if node.has_input(6):
        scale = node.op("Mul", node.input(1), node.input(4))
        if alpha != 1.0:
            scale = node.op("Mul", scale, np.float32(alpha))
        rank = len(node.shape(node.input(6)))
        operands.append(node.op("DequantizeLinear", node.input(6), scale, axis=rank - 1))
    result = node.op("Gemm", *operands, alpha=alpha, transA=node.attribute("transA", 0), transB=transposed)
    if node.has_input(7):
        _emit(node, result, 7)
    else:
        node.emit(result)


@rewrites("com.microsoft::QLinearSoftmax")
def softmax(node: Rewrite) -> None:
    """Compute Softmax of version `opset`: before 13 over all axes from `axis` on."""
    x, axis = _floats(node, 0), node.attribute("axis", -1)
    rank = len(node.shape(node.input(0)))
    if node.attribute("opset", 13) < 13 and axis % rank != rank - 1:
        node.unsupported("sums over several axes; lift the float model to opset 13 before quantizing")
    _emit(node, node.op("Softmax", x, axis=axis), 3)


@rewrites("com.microsoft::QLinearAdd", "com.microsoft::QLinearMul")
def binary(node: Rewrite) -> None:
    _emit_float(node, [0, 3], 6)


@rewrites("com.microsoft::QLinearSigmoid", "com.microsoft::QLinearLeakyRelu")
def unary(node: Rewrite) -> None:
    _emit_float(node, [0], 3, alpha=node.attribute("alpha"))


@rewrites("com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool")
def average_pool(node: Rewrite) -> None:
    _refuse_channels_last(node)
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    _emit_float(node, [0], 3, **node.attributes(*names))


@rewrites("com.microsoft::QLinearConcat")
def concat(node: Rewrite) -> None:
    """Concatenate operands given as (x, scale, zero point), behind scale and zero point of the result."""
    operands = [_floats(node, index) for index in range(2, len(node.node.inputs), 3)]
    result = node.op("Concat", *operands, axis=node.attribute("axis"))
    node.emit(node.op("QuantizeLinear", result, node.input(0), node.input(1)))


@rewrites("com.microsoft::QLinearWhere")
def where(node: Rewrite) -> None:
    _emit(node, node.op("Where", node.input(0), _floats(node, 1), _floats(node, 4)), 7)


# ---- operands and results


def _refuse_channels_last(node: Rewrite) -> None:
    if node.attribute("channels_last", 0):
        node.unsupported(
            "images with channels last (channels_last); quantize a float model with channels first"
        )


def _emit_float(node: Rewrite, operands: Sequence[int], scale: int, **attributes: Any) -> None:
    """Compute the float operator of the same name on the operands at these inputs."""
    op = node.node.op_type.removeprefix("QLinear")
    _emit(node, node.op(op, *(_floats(node, index) for index in operands), **attributes), scale)


def _floats(node: Rewrite, index: int, axis: int | None = None) -> ir.Value:
    """Dequantize the operand at `index`, whose scale and zero point follow it."""
    operands = node.input(index), node.input(index + 1), node.optional(index + 2)
    if node.shape(operands[1]) in ((), (1,)):
        axis = None
    return node.op("DequantizeLinear", *operands, axis=axis)


def _emit(node: Rewrite, result: ir.Value, scale: int) -> None:
    """Quantize the result with the scale and zero point at inputs `scale` and the next."""
    node.emit(node.op("QuantizeLinear", result, node.input(scale), node.optional(scale + 1)))
