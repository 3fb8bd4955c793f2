"""Sums of products with 16-bit integers, in two parts that float32 holds.

    Given   Conv(DequantizeLinear(x, step), w, b), x of int16, w = codes * steps
    Result  step * steps * (256 * Conv(x >> 8, codes) + Conv(x & 255, codes)) + b

Sums of 8-bit numbers stay below 2^24 up to a depth of some 500, and near it beyond; sums of 16-bit ones reach 2^27,
where float32 has steps of 16. The two parts are added in float64.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.core.arrays import Array
from onnxport.formats.model import Model
from onnxport.validate.translation.constants import Constants, find_constants
from onnxport.validate.translation.place import Place

# Product -> the axis of its weight's channels.
_CHANNELS = {"Conv": 0, "MatMul": 1}
_VIEWS = frozenset("Transpose Reshape Identity Squeeze Unsqueeze".split())
_ROUND = 11  # the opset that gave Round
_DOUBLE = ir.DataType.DOUBLE


def with_exact_sums(model: Model) -> Model:
    """Return a copy whose products with 16-bit integers are computed in two parts."""
    copy = model.clone()
    if copy.opset < _ROUND:
        return copy
    constants, known = Constants(copy.opset), find_constants(copy.graph)
    for node in list(copy.graph):
        if node.op_type in _CHANNELS and not node.domain:
            _split(Place(copy.graph, node, constants, copy.opset, known), constants)
    return copy


def _split(place: Place, constants: Constants) -> None:
    data, stored, bias = (place.input(each) for each in range(3))
    step, weight = _step(place, data), constants.get(stored)
    given = constants.get(bias) if bias is not None else None
    if step is None or weight is None or weight.is_exact or (bias is not None and given is None):
        return
    axis = _CHANNELS[place.node.op_type]
    others = tuple(each for each in range(weight.values.ndim) if each != axis)
    half = np.broadcast_to(weight.half, weight.values.shape)
    steps: Array = 2 * half.max(axis=others, keepdims=True)
    if weight.values.ndim < 2 or not (steps == 2 * half).all() or not steps.all():
        return
    codes = place.store(np.rint(weight.values / steps).astype(np.float32))
    add, number = place.add, place.number
    whole = add("Round", [add("Div", [data, number(step)])])
    high = add("Floor", [add("Div", [whole, number(256.0)])])
    low = add("Sub", [whole, add("Mul", [high, number(256.0)])])
    attributes = dict(place.node.attributes)
    first, second = (
        _double(add("Cast", [add(place.node.op_type, [each, codes], **attributes)], to=int(_DOUBLE)))
        for each in (high, low)
    )
    shape = (-1,) + (1,) * (weight.values.ndim - 2) if axis == 0 else (-1,)
    total = _double(add("Mul", [first, place.store(np.array(256.0))]))
    total = _double(add("Add", [total, second]))
    total = _double(add("Mul", [total, place.store(steps.reshape(shape) * step)]))
    if given is not None:
        shift = place.store(given.values.reshape(shape).astype(np.float64))
        total = _double(add("Add", [total, shift]))
    place.finish(add("Cast", [total], to=int(ir.DataType.FLOAT)))
    place.graph.remove(place.node, safe=True)


def _double(value: ir.Value) -> ir.Value:
    value.type = ir.TensorType(_DOUBLE)
    return value


def _step(place: Place, value: ir.Value | None) -> float | None:
    """Return the step of the 16-bit integers that a value is made of; None for others."""
    while value is not None and (node := value.producer()) is not None and node.op_type in _VIEWS:
        value = node.inputs[0]
    node = None if value is None else value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    zero = place.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else 0.0
    is_wide = node.inputs[0].dtype == ir.DataType.INT16
    return place.constant(node.inputs[1]) if is_wide and zero == 0 else None
