"""Reductions over axes, and running sums."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from onnxport.converters.semantics import reduction_axes
from onnxport.converters.tflite.builder import TflBuilder, TflNode
from onnxport.converters.tflite.layout import identity, normalize_axis, permute, without_axes
from onnxport.converters.tflite.registry import REGISTRY, lower
from onnxport.converters.tflite.values import Value

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
        result_shape = [1 if axis in gone else dim for axis, dim in zip(order, shape, strict=True)]
    else:
        result_shape = [dim for axis, dim in zip(order, shape, strict=True) if axis not in gone]
    result = tfl.op(name, [tfl.tensor(x, order), tfl.int32(physical_axes)], result_shape, keep_dims=keep)
    return tfl.value(result, order if keep else without_axes(order, gone))


def _lower_reduction(name: str, node: TflNode, tfl: TflBuilder) -> None:
    x, keep, axes = node.x, bool(node.attribute("keepdims", 1)), reduction_axes(node, node.optional(1))
    if axes is None:
        result = _reduce_run_time_axes(name, node, tfl, x, keep=keep)
    else:
        result = reduce_axes(tfl, name, x, axes, keep=keep) if axes else x
    if name in _EXTREME_OF_NOTHING and 0 in x.shape and result is not x:
        # TFLite gives the largest finite number. All elements of the result are extremes of an empty set.
        nothing = tfl.constant(_EXTREME_OF_NOTHING[name](x.dtype), x.dtype)
        result = tfl.value(tfl.op("broadcast_to", [nothing, tfl.run_time_shape(result)], result.shape))
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
    operands = [tfl.tensor(x), tfl.tensor(tfl.convert(axes, np.int32))]
    return tfl.value(tfl.op(name, operands, [None] * rank, keep_dims=keep))


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
    peak = tfl.broadcast("maximum", reduce("reduce_max", x, keep=True), -largest)
    peak = tfl.broadcast("minimum", peak, largest)
    total = reduce("sum", tfl.apply("exp", tfl.broadcast("sub", x, peak)), keep=True)
    result = tfl.broadcast("add", tfl.apply("log", total), peak)
    # The sum over axes of size 1 only drops them.
    node.emit(result if keep else reduce("sum", result, keep=False))


@lower("CumSum")
def cumulative_sum(node: TflNode, tfl: TflBuilder) -> None:
    """Running sums along an axis (ONNX CumSum-14)."""
    x, axis = node.x, node.input(1)
    flags = {name: bool(node.attribute(name, 0)) for name in ("exclusive", "reverse")}
    if axis.constant is None:
        order, place = identity(x.rank), tfl.tensor(tfl.convert(axis, np.int32))
    else:
        order = tfl.common_order(x)
        place = tfl.int32(order.index(normalize_axis(int(axis.constant.item()), x.rank)))
    operands = [tfl.tensor(x, order), tfl.reshape(place, ()) if axis.rank else place]
    node.emit(tfl.value(tfl.op("cumsum", operands, permute(x.shape, order), **flags), order))
