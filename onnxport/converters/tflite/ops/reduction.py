"""Reductions over axes, and running sums."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from onnxport.converters.semantics import reduction_axes
from onnxport.converters.tflite.broadcasting import broadcast
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import identity, normalize_axis, permute
from onnxport.converters.tflite.ops.elementwise import unary
from onnxport.converters.tflite.registry import REGISTRY, lower
from onnxport.converters.tflite.values import Value, scalar

# ONNX reduction -> tfl reduction of the same meaning (all of opset 20).
_REDUCTIONS = {
    "ReduceMax": "reduce_max",
    "ReduceMean": "mean",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceSum": "sum",
}


def reduce_axes(tfl: TflBuilder, name: str, x: Value, axes: Iterable[int], *, keep: bool) -> Value:
    """Emit `tfl.<name>` over logical `axes`, in the axis order that x has."""
    gone = {normalize_axis(axis, x.rank) for axis in axes}
    order = tfl.common_order(x)
    physical_axes = sorted(order.index(axis) for axis in gone)
    shape = permute(x.shape, order)
    if keep:
        result_shape = [1 if order[i] in gone else dim for i, dim in enumerate(shape)]
        result_order = order
    else:
        result_shape = [dim for i, dim in enumerate(shape) if order[i] not in gone]
        left = [axis for axis in range(x.rank) if axis not in gone]
        result_order = tuple(left.index(axis) for axis in order if axis not in gone)
    result = tfl.op(name, [tfl.tensor(x, order), tfl.int32(physical_axes)], result_shape, keep_dims=keep)
    return tfl.computed(result, result_order)


def _lower_reduction(name: str, node: TflNode, tfl: TflBuilder) -> None:
    x, keep, axes = node.x, bool(node.attribute("keepdims", 1)), reduction_axes(node, node.optional(1))
    if axes is None:
        result = _reduce_run_time_axes(name, node, tfl, x, keep=keep)
    else:
        result = reduce_axes(tfl, name, x, axes, keep=keep) if axes else x
    if name in _EXTREME_OF_NOTHING and 0 in x.shape and result is not x:
        # TFLite gives the largest finite number. All elements of the result are extremes of an empty set.
        nothing = tfl.constant(_EXTREME_OF_NOTHING[name](x.dtype), x.dtype)
        result = tfl.computed(tfl.op("broadcast_to", [nothing, tfl.run_time_shape(result)], result.shape))
    node.emit(result)


def _limit(sign: int, dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return sign * np.inf
    if dtype.kind == "b":
        return sign > 0
    return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min


# Reduction -> ONNX's result for an empty set: the smallest number is the largest element.
_EXTREME_OF_NOTHING = {"reduce_max": partial(_limit, -1), "reduce_min": partial(_limit, 1)}


def _reduce_run_time_axes(name: str, node: TflNode, tfl: TflBuilder, x: Value, *, keep: bool) -> Value:
    axes = node.input(1)
    if axes.shape[0] is None:
        node.unsupported("the number of its axes (input 1) is known only at run time")
    rank = x.rank if keep else x.rank - axes.shape[0]
    operands = [tfl.tensor(x), tfl.tensor(tfl.converted(axes, np.int32))]
    return tfl.computed(tfl.op(name, operands, [None] * rank, keep_dims=keep))


REGISTRY.table({op: partial(_lower_reduction, name) for op, name in _REDUCTIONS.items()})


@lower("ReduceLogSumExp")
def reduce_log_sum_exp(node: TflNode, tfl: TflBuilder) -> None:
    """log(sum(exp(x))) (ONNX ReduceLogSumExp-18), shifted by the largest element so that exp cannot overflow."""
    x, keep, axes = node.x, bool(node.attribute("keepdims", 1)), reduction_axes(node, node.optional(1))
    if x.dtype.kind != "f":
        node.unsupported(f"elements of {x.dtype}")
    if axes == []:
        node.emit(x)
        return

    def reduce(name: str, value: Value, *, keep: bool) -> Value:
        if axes is None:
            return _reduce_run_time_axes(name, node, tfl, value, keep=keep)
        return reduce_axes(tfl, name, value, axes, keep=keep)

    # Infinite extremes would make the difference NaN.
    largest = float(np.finfo(np.float16 if x.dtype == np.float16 else np.float32).max)
    peak = broadcast(tfl, "maximum", reduce("reduce_max", x, keep=True), scalar(-largest, x.dtype))
    peak = broadcast(tfl, "minimum", peak, scalar(largest, x.dtype))
    total = reduce("sum", unary(tfl, "exp", broadcast(tfl, "sub", x, peak)), keep=True)
    result = broadcast(tfl, "add", unary(tfl, "log", total), peak)
    # The sum over axes of size 1 only drops them.
    node.emit(result if keep else reduce("sum", result, keep=False))


@lower("CumSum")
def cumulative_sum(node: TflNode, tfl: TflBuilder) -> None:
    """Running sums along an axis (ONNX CumSum-14)."""
    x, axis = node.x, node.input(1)
    order = tfl.common_order(x) if axis.constant is not None else identity(x.rank)
    if axis.constant is None:
        place = tfl.tensor(tfl.converted(axis, np.int32))
    else:
        place = tfl.int32(order.index(normalize_axis(int(axis.constant.item()), x.rank)))
    result = tfl.op(
        "cumsum",
        [tfl.tensor(x, order), place if not axis.rank else tfl.reshape(place, ())],
        permute(x.shape, order),
        exclusive=bool(node.attribute("exclusive", 0)),
        reverse=bool(node.attribute("reverse", 0)),
    )
    node.emit(tfl.computed(result, order))
