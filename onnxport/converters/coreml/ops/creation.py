"""Ops that make tensors from sizes and numbers: Constant, Shape, Size, Range, ConstantOfShape, EyeLike, Trilu."""

from __future__ import annotations

import numpy as np

from onnxport.converters.constants import read_constant
from onnxport.converters.coreml.builder import MilBuilder, MilNode, MilType
from onnxport.converters.coreml.registry import lower
from onnxport.converters.coreml.shapes.integers import Integers, arange, integers, size_of, sizes_of
from onnxport.converters.coreml.values import Value
from onnxport.converters.semantics import shape_bounds


@lower("Constant")
def constant(node: MilNode, mil: MilBuilder) -> None:
    """A constant in a branch (ONNX Constant-21); `prepare` makes others initializers."""
    node.emit(mil.constant(read_constant(node)))


@lower("Shape")
def shape(node: MilNode, mil: MilBuilder) -> None:
    """The dimensions from `start` to `end` (ONNX Shape-21)."""
    x = node.x
    first, last = shape_bounds(node)
    if first >= last:
        node.unsupported("gives no dimension at all, and Core ML has no empty tensors")
    if None not in x.shape[first:last]:
        node.emit(mil.constant(np.array(x.shape[first:last], np.int64)))
        return
    node.emit(_natural(mil, sizes_of(mil, x).part(first, last)))


@lower("Size")
def size(node: MilNode, mil: MilBuilder) -> None:
    """The number of elements (ONNX Size-21)."""
    node.emit(_natural(mil, sizes_of(mil, node.x).product()))


def _natural(mil: MilBuilder, sizes: Integers) -> Value:
    value = sizes.value if sizes.known is None else mil.constant(np.asarray(sizes.known, np.int64))
    value.is_natural = True
    return value


@lower("Range")
def range_(node: MilNode, mil: MilBuilder) -> None:
    """start, start + delta, ... below the limit (ONNX Range-11)."""
    start, end, step = (node.input(i) for i in range(3))
    type_: MilType = "fp32" if start.is_float else "int32"
    bounds = [mil.var(value, type_) for value in (start, end, step)]
    node.emit(mil.range_1d(start=bounds[0], end=bounds[1], step=bounds[2]))


@lower("ConstantOfShape")
def constant_of_shape(node: MilNode, mil: MilBuilder) -> None:
    """One value throughout a shape computed at run time (ONNX ConstantOfShape-21)."""
    value = np.asarray(node.attribute("value", np.zeros(1, np.float32))).reshape(())
    wanted = integers(mil, node.x)
    if wanted.shape == (0,):
        node.emit(mil.constant(value))
    else:
        node.emit(mil.fill(shape=wanted.value, value=mil.var(mil.constant(value))))


def _diagonals(mil: MilBuilder, x: Value) -> Integers:
    """Return the number of the diagonal of each element of x's matrices."""
    rows, columns = (arange(mil, size_of(mil, x, axis)) for axis in (x.rank - 2, x.rank - 1))
    return columns.reshape(1, -1) - rows.reshape(-1, 1)


@lower("EyeLike")
def eye_like(node: MilNode, mil: MilBuilder) -> None:
    """1 on a diagonal, 0 elsewhere, in the shape of the operand (ONNX EyeLike-22)."""
    node.attribute("dtype", None)  # shape inference has turned it into the result's type
    on_it = _diagonals(mil, node.x).equals(node.attribute("k", 0))
    if on_it.known is not None:
        node.emit(mil.constant(on_it.known.astype(node.output_dtype())))
    else:
        node.emit(on_it.value)


@lower("Trilu")
def trilu(node: MilNode, mil: MilBuilder) -> None:
    """The upper or lower triangle of matrices, from diagonal k on, 0 elsewhere (ONNX Trilu-14)."""
    x, k = node.x, node.optional(1)
    first = Integers(mil, 0) if k is None else integers(mil, k).reshape()
    numbers = _diagonals(mil, x)
    is_kept = numbers >= first if node.attribute("upper", 1) else (numbers - first) < 1
    if x.dtype.kind == "b":
        node.emit(mil.logical_and(x=x, y=is_kept.value))
    else:
        node.emit(mil.select(cond=is_kept.value, a=x, b=mil.constant(np.zeros((), x.dtype))))
