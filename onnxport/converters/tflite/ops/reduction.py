"""Reductions over axes, and arg-reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from onnxport.converters.tflite.builder import TflBuilder, TflNode, Value, optional_constant
from onnxport.converters.tflite.layout import normalized, permuted
from onnxport.converters.tflite.registry import REGISTRY, lower

# ONNX reduction -> tfl reduction of the same meaning.
REDUCTIONS = {
    "ReduceMax": "reduce_max",
    "ReduceMean": "mean",
    "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod",
    "ReduceSum": "sum",
}


def reduce_axes(tfl: TflBuilder, name: str, x: Value, axes: Iterable[int], *, keep: bool) -> Value:
    """Emits `tfl.<name>` over logical `axes` in whatever axis order x has."""
    gone = {normalized(axis, x.rank) for axis in axes}
    order = tfl.common_order(x)
    physical_axes = sorted(order.index(axis) for axis in gone)
    shape = permuted(x.shape, order)
    if keep:
        result_shape = [1 if order[i] in gone else dim for i, dim in enumerate(shape)]
        result_order = order
    else:
        result_shape = [dim for i, dim in enumerate(shape) if order[i] not in gone]
        left = [axis for axis in range(x.rank) if axis not in gone]
        result_order = tuple(left.index(axis) for axis in order if axis not in gone)
    result = tfl.op(
        name, [tfl.tensor(x, order), tfl.int32(physical_axes)], result_shape, x.dtype, keep_dims=keep
    )
    return tfl.computed(result, x.dtype, result_order)


def _reduction(name: str) -> Callable[[TflNode, TflBuilder], None]:
    def lowering(node: TflNode, tfl: TflBuilder) -> None:
        x, keep = node.x, bool(node.attribute("keepdims", 1))
        axes = optional_constant(node, 1, "axes")
        nothing_means_nothing = bool(node.attribute("noop_with_empty_axes", 0))
        if axes is None or not axes.size:
            if nothing_means_nothing:
                node.emit(x)
                return
            axes = np.arange(x.rank)
        node.emit(reduce_axes(tfl, name, x, axes.reshape(-1).tolist(), keep=keep))

    return lowering


REGISTRY.table({op: _reduction(name) for op, name in REDUCTIONS.items()})


@lower("ArgMax", "ArgMin")
def arg_reduction(node: TflNode, tfl: TflBuilder) -> None:
    """Index of the extreme element along an axis, the first of equals (ONNX ArgMax-13)."""
    x = node.x
    axis, keep = normalized(node.attribute("axis", 0), x.rank), bool(node.attribute("keepdims", 1))
    if node.attribute("select_last_index", 0):
        node.unsupported("select_last_index; TFLite gives the first of equal elements")
    order = tfl.common_order(x)
    physical = order.index(axis)
    shape = [dim for i, dim in enumerate(permuted(x.shape, order)) if i != physical]
    name = {"ArgMax": "arg_max", "ArgMin": "arg_min"}[node.op]
    result = tfl.op(
        name,
        [tfl.tensor(x, order), tfl.int32(physical)],
        shape,
        np.int64,
        output_type=tfl.type_attribute(np.int64),
    )
    if keep:
        node.emit(tfl.computed(tfl.with_unit_axis(result, physical), np.int64, order))
        return
    left = [a for a in range(x.rank) if a != axis]
    node.emit(tfl.computed(result, np.int64, tuple(left.index(a) for a in order if a != axis)))
