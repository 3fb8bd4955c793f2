"""Ops that make tensors from sizes and numbers: Shape, Size, Range, ConstantOfShape, EyeLike, Trilu."""

from __future__ import annotations

import numpy as np

from onnxport.converters.constants import read_constant
from onnxport.converters.semantics import shape_bounds
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.formulas import Integers, integers
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.values import Value, constant, scalar


@lower("Constant")
def lower_constant(node: TflNode, tfl: TflBuilder) -> None:
    """A constant in a branch (ONNX Constant-21); `prepare` makes others initializers."""
    node.emit(constant(read_constant(node)))


@lower("Shape")
def shape(node: TflNode, tfl: TflBuilder) -> None:
    """The dimensions from `start` to `end` as int64 (ONNX Shape-21)."""
    x = node.x
    first, last = shape_bounds(node)
    if first >= last:
        node.emit(constant(np.zeros(0, np.int64)))
        return
    tensor = tfl.run_time_shape(x, np.int64)
    result = tfl.value(tensor if last - first == x.rank else tfl.slice(tensor, [first], [last - first]))
    result.is_size = True
    node.emit(result)


@lower("Size")
def size(node: TflNode, tfl: TflBuilder) -> None:
    """The number of elements as int64 (ONNX Size-21)."""
    tensor = tfl.run_time_shape(node.x, np.int64)
    result = tfl.value(tfl.op("reduce_prod", [tensor, tfl.int32([0])], (), keep_dims=False))
    result.is_size = True
    node.emit(result)


@lower("Range")
def range_(node: TflNode, tfl: TflBuilder) -> None:
    """start, start + delta, ... below the limit (ONNX Range-11)."""
    bounds = [tfl.reshape(tfl.tensor(node.input(i)), ()) for i in range(3)]
    node.emit(tfl.value(tfl.op("range", bounds, node.output_shape())))


@lower("ConstantOfShape")
def constant_of_shape(node: TflNode, tfl: TflBuilder) -> None:
    """One value throughout a shape computed at run time (ONNX ConstantOfShape-21)."""
    value = np.asarray(node.attribute("value", np.zeros(1, np.float32))).reshape(())
    target = tfl.tensor(tfl.convert(node.x, np.int32))
    node.emit(tfl.value(tfl.op("broadcast_to", [tfl.constant(value), target], node.output_shape())))


def _diagonals(tfl: TflBuilder, x: Value) -> Value:
    """Return the number of the diagonal of each element of x's matrices."""
    rows, columns = x.shape[-2:]
    if rows is not None and columns is not None:
        return constant((np.arange(columns)[None, :] - np.arange(rows)[:, None]).astype(np.int32))
    sizes = Integers(tfl, tfl.run_time_shape(x))
    down, across = (
        Integers(tfl, tfl.op("range", [tfl.int32(0), sizes.element(axis).tensor, tfl.int32(1)], (size,)))
        for axis, size in ((x.rank - 2, rows), (x.rank - 1, columns))
    )
    return tfl.value((across - down.column()).tensor)


@lower("EyeLike")
def eye_like(node: TflNode, tfl: TflBuilder) -> None:
    """1 on a diagonal, 0 elsewhere, in the shape of the operand (ONNX EyeLike-22)."""
    shape = node.x.shape
    node.attribute("dtype", None)  # shape inference has turned it into the result's type
    diagonal = node.attribute("k", 0)
    if None in shape:
        is_one = tfl.broadcast("equal", _diagonals(tfl, node.x), diagonal)
        node.emit(tfl.convert(is_one, node.output_dtype()))
    else:
        rows, columns = (dim or 0 for dim in shape)
        node.emit(constant(np.eye(rows, columns, k=diagonal, dtype=node.output_dtype())))


@lower("Trilu")
def trilu(node: TflNode, tfl: TflBuilder) -> None:
    """The upper or lower triangle of matrices, from diagonal k on, 0 elsewhere (ONNX Trilu-14)."""
    x, k = node.x, node.optional(1)
    upper = bool(node.attribute("upper", 1))
    numbers = _diagonals(tfl, x)
    if numbers.constant is not None and (k is None or k.constant is not None):
        first = 0 if k is None or k.constant is None else int(k.constant.item())
        mask = constant(numbers.constant >= first if upper else numbers.constant <= first)
    else:
        least = scalar(0, np.int32) if k is None else tfl.value(tfl.reshape(integers(tfl, k).tensor, ()))
        mask = tfl.broadcast("greater_equal" if upper else "less_equal", numbers, least)
    node.emit(tfl.broadcast("select_v2", mask, x, 0))
