"""Activations and normalizations as elementary operations."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.fit.axes import as_rows, reshape
from onnxport.converters.tflite.fit.operation import TflOp, sizes
from onnxport.converters.tflite.tensors import Tensor, TensorBuilder


def clamp_to_one(op: TflOp) -> Tensor:
    """Compute min(max(x, 0), 1)."""
    positive = op.tfl.op("relu", [op.x], op.out)
    return op.tfl.op("minimum", [positive, op.tfl.constant(1, np.float32)], op.out)


def leaky_relu(op: TflOp) -> Tensor:
    """Compute max(x, 0) - alpha max(-x, 0)."""
    return _apply_slope(op, op.tfl.constant(op.attribute("alpha"), np.float32))


def prelu(op: TflOp) -> Tensor:
    """Compute max(x, 0) - alpha max(-x, 0); one constant alpha up to 1 as LEAKY_RELU."""
    alpha = op.constant(1)
    if alpha is not None and alpha.size == 1 and alpha.item() <= 1:
        return op.tfl.op("leaky_relu", [op.x], op.out, alpha=alpha.item())
    if alpha is not None and alpha.size == 1:
        return _apply_slope(op, op.tfl.constant(alpha.item(), np.float32))
    return _apply_slope(op, op.operands[1])


def _apply_slope(op: TflOp, alpha: Tensor) -> Tensor:
    tfl = op.tfl
    negative = tfl.op("relu", [tfl.op("neg", [op.x], op.out)], op.out)
    positive = tfl.op("relu", [op.x], op.out)
    return tfl.op("sub", [positive, tfl.op("mul", [negative, alpha], op.out)], op.out)


def log_softmax(op: TflOp) -> Tensor:
    """Compute x - max - log(sum(exp(x - max))) over the last axis."""
    tfl, axis = op.tfl, op.tfl.int32([len(op.out) - 1])
    kept = (*op.out[:-1], 1)
    peak = tfl.op("reduce_max", [op.x, axis], kept, keep_dims=True)
    below = tfl.op("sub", [op.x, peak], op.out)
    total = tfl.op("sum", [tfl.op("exp", [below], op.out), axis], kept, keep_dims=True)
    return tfl.op("sub", [below, tfl.op("log", [total], kept)], op.out)


def softmax(op: TflOp) -> Tensor:
    """Compute SOFTMAX on the last of four axes, with beta as a factor before it."""
    tfl, x = op.tfl, op.x
    if (beta := op.attribute("beta")) != 1:
        x = tfl.op("mul", [x, tfl.constant(beta, np.float32)], op.out)
    shape = as_rows(op.out)
    result = tfl.op("softmax", [reshape(tfl, x, shape)], shape, beta=1.0)
    return reshape(tfl, result, op.out)


def local_response_normalization(op: TflOp) -> Tensor:
    """Compute x (bias + alpha sum of squares over 2 radius + 1 channels)^-beta."""
    tfl, radius = op.tfl, op.attribute("radius")
    channels = op.out[-1]
    squares = tfl.op("square", [op.x], op.out)
    margin = [0] * (len(op.out) - 1) + [radius]
    padded = tfl.pad(squares, margin, margin)
    total: Tensor | None = None
    for start in range(2 * radius + 1):
        part = tfl.slice(padded, [*margin[:-1], start], [*op.out[:-1], channels])
        total = part if total is None else tfl.op("add", [total, part], op.out)
    assert total is not None
    scaled = tfl.op("mul", [total, tfl.constant(op.attribute("alpha"), np.float32)], op.out)
    base = tfl.op("add", [scaled, tfl.constant(op.attribute("bias"), np.float32)], op.out)
    power = tfl.op("pow", [base, tfl.constant(-op.attribute("beta"), np.float32)], op.out)
    return tfl.op("mul", [op.x, power], op.out)


def l2_normalization(op: TflOp) -> Tensor:
    """Compute x / sqrt(max(sum(x^2), 1e-6)) over the last axis, as the kernel (l2normalization.h)."""
    tfl, kept = op.tfl, (*op.out[:-1], 1)
    squares = tfl.op("square", [op.x], op.out)
    total = tfl.op("sum", [squares, tfl.int32([len(op.out) - 1])], kept, keep_dims=True)
    total = tfl.op("maximum", [total, tfl.constant(1e-6, np.float32)], kept)
    return tfl.op("mul", [op.x, tfl.op("rsqrt", [total], kept)], op.out)


# Name of a fused activation -> the operation.
_FUSED = {"RELU": "relu", "RELU6": "relu6", "RELU_N1_TO_1": "relu_n1_to_1", "TANH": "tanh"}


def split_activation(op: TflOp) -> Tensor:
    """Emit the operation without its fused activation, and the activation behind it."""
    name = "fused_activation_function"
    result = op.again(op.operands, op.out, without=[name], **{name: "NONE"})
    return op.tfl.op(_FUSED[op.attribute(name)], [result], op.out)


def copy(tfl: TensorBuilder, tensor: Tensor) -> Tensor:
    """Return a tensor of its own with the same elements: the larger of them and of what nothing is below.

    The exporter would drop a sum with 0 or a product with 1, and the GPU a quotient by 1. NaN becomes -inf, see
    `copy_out`.
    """
    dtype, shape = tfl.dtype_of(tensor), sizes(tensor)
    if dtype.kind == "b":
        return tfl.op("logical_or", [tensor, tensor], shape)
    lowest = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    return tfl.op("maximum", [tensor, tfl.constant(lowest, dtype)], shape)


def copy_out(tfl: TensorBuilder, tensor: Tensor) -> Tensor:
    """Return a copy for an output, NaN included: floats negated twice."""
    if tfl.dtype_of(tensor).kind != "f":
        return copy(tfl, tensor)
    shape = sizes(tensor)
    return tfl.op("neg", [tfl.op("neg", [tensor], shape)], shape)
