"""Ops that find or sort extremes along an axis: ArgMax, ArgMin, Hardmax, TopK."""

from __future__ import annotations

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import Permutation, axis_last, normalize_axis, permute, without_axes
from onnxport.converters.tflite.registry import lower
from onnxport.converters.tflite.tensors import Tensor
from onnxport.converters.tflite.values import Value

# Types that TOPK_V2 compares and ARG_MAX does not.
_ONLY_SORTED = frozenset(("int64", "uint32"))


def _arg_extreme(tfl: TflBuilder, name: str, x: Value, axis: int) -> tuple[Tensor, Permutation]:
    """Return the result of `tfl.arg_max` or `tfl.arg_min` in int64, and the order of x's axes in it."""
    if x.dtype.name in _ONLY_SORTED:
        source, order = x if name == "arg_max" else reverse_order(tfl, x), axis_last(x.rank, axis)
        leading = permute(x.shape, order)[:-1]
        results = [((*leading, 1), x.dtype), ((*leading, 1), np.dtype(np.int32))]
        _, first = tfl.ops("topk_v2", [tfl.tensor(source, order), tfl.int32(1)], results)
        return tfl.cast(tfl.without_unit_axis(first, x.rank - 1), np.int64), order
    order = tfl.common_order(x)
    physical = order.index(axis)
    shape = [dim for i, dim in enumerate(permute(x.shape, order)) if i != physical]
    output_type = tfl.type_attribute(np.int64)
    operands = [tfl.tensor(x, order), tfl.int32(physical)]
    return tfl.op(name, operands, shape, np.int64, output_type=output_type), order


@lower("ArgMax", "ArgMin")
def arg_reduction(node: TflNode, tfl: TflBuilder) -> None:
    """The index of the extreme element along an axis, the first or the last of equals (ONNX ArgMax-13)."""
    x = node.x
    axis, keep = normalize_axis(node.attribute("axis", 0), x.rank), bool(node.attribute("keepdims", 1))
    last = bool(node.attribute("select_last_index", 0))
    size = x.shape[axis]
    if last and size is None:
        node.unsupported(
            "select_last_index along an open dimension; fix the input's size with --shape NAME=..."
        )
    name = {"ArgMax": "arg_max", "ArgMin": "arg_min"}[node.op]
    if last:
        order = tfl.common_order(x)
        operands = [tfl.tensor(x, order), tfl.int32([order.index(axis)])]
        x = tfl.value(tfl.op("reverse_v2", operands, permute(x.shape, order)), order)
    result, order = _arg_extreme(tfl, name, x, axis)
    if last:
        end = tfl.constant((size or 0) - 1, np.int64)
        result = tfl.op("sub", [end, result], tfl.shape_of(result))
    if keep:
        node.emit(tfl.value(tfl.with_unit_axis(result, order.index(axis)), order))
    else:
        node.emit(tfl.value(result, without_axes(order, (axis,))))


@lower("Hardmax")
def hardmax(node: TflNode, tfl: TflBuilder) -> None:
    """1 at the first largest element along an axis, 0 elsewhere (ONNX Hardmax-13)."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    x = tfl.value(tfl.tensor(x, axis_last(x.rank, axis)), axis_last(x.rank, axis))
    largest, order = _arg_extreme(tfl, "arg_max", x, axis)
    index = tfl.cast(largest, np.int32)
    on, off = (tfl.constant(value, x.dtype) for value in (1, 0))
    size = x.shape[axis]
    depth = tfl.reshape(tfl.size(tfl.tensor(x, order), x.rank - 1), ()) if size is None else tfl.int32(size)
    result = tfl.op("one_hot", [index, depth, on, off], permute(x.shape, order), axis=-1)
    node.emit(tfl.value(result, order))


@lower("TopK")
def top_k(node: TflNode, tfl: TflBuilder) -> None:
    """The k largest or smallest elements along an axis, sorted, and their indices (ONNX TopK-11)."""
    x = node.x
    axis = normalize_axis(node.attribute("axis", -1), x.rank)
    node.ignore("sorted")  # an unsorted result may be sorted
    wanted = node.input(1)
    k = None if wanted.constant is None else int(wanted.constant.item())
    count = tfl.int32(k) if k is not None else tfl.reshape(tfl.tensor(tfl.convert(wanted, np.int32)), ())
    source = x if node.attribute("largest", 1) else reverse_order(tfl, x)
    order = axis_last(x.rank, axis)
    shape = (*permute(x.shape, order)[:-1], k)
    results = [(shape, x.dtype), (shape, np.dtype(np.int32))]
    values, indices = tfl.ops("topk_v2", [tfl.tensor(source, order), count], results)
    result = tfl.value(values, order)
    node.emit(result if source is x else reverse_order(tfl, result), 0)
    if node.wants_output(1):
        node.emit(tfl.value(tfl.cast(indices, np.int64), order), 1)


def reverse_order(tfl: TflBuilder, x: Value) -> Value:
    """Map the smallest elements to the largest; applied twice, it gives x again."""
    if x.dtype.kind == "b":
        return tfl.apply("logical_not", x)
    if x.dtype.kind == "u":
        return tfl.broadcast("sub", np.iinfo(x.dtype).max, x)
    # -1 - x, unlike -x, exists for the smallest integer too.
    return tfl.broadcast("sub", -1 if x.dtype.kind == "i" else 0, x)
