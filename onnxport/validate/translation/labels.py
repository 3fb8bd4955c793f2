"""Class labels: the index of the largest score, looked up in a table, in whatever integers hold it.

    Given   ArrayFeatureExtractor(table, index)     Result  Gather(table, index), of one row for a table of one axis
    Given   Cast(Gather(table, ArgMax(x)))          Result  Gather(table, ArgMax(x)), where the type holds every label
    Given   ReduceMin(Where(x == ReduceMax(x), places, last))       Result  ArgMax(x)

An artefact of 32-bit integers holds the same numbers as a source of 64 bits, or of floats (ONNX ArgMax-13, Cast-13;
ai.onnx.ml ArrayFeatureExtractor-1, as ONNX Runtime computes it).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxport.validate.translation.constants import Constants
from onnxport.validate.translation.place import Place, before_casts

DOMAIN = "ai.onnx.ml"
_INDICES = frozenset({"ArgMax", "ArgMin"})
# They give numbers that they read.
_MOVES = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Expand Tile Gather Concat".split()
)
# float type -> the integers that it holds are all up to this one.
_WHOLE = {
    ir.DataType.FLOAT: 2**24,
    ir.DataType.DOUBLE: 2**53,
    ir.DataType.FLOAT16: 2**11,
    ir.DataType.BFLOAT16: 2**8,
}
_LARGEST_SIZE = 2**31 - 1  # of an axis that is not known


def rewrite_extractor(place: Place) -> None:
    """ArrayFeatureExtractor: indices choose along the last axis."""
    data, index = place.input(0), place.input(1)
    if data is None or index is None or data.shape is None:
        return
    rank = len(data.shape)
    flat = place.reshape(index, [-1])
    flat.type = index.type
    result = place.add("Gather", [data, flat], axis=rank - 1)
    place.finish(result if rank > 1 else place.reshape(result, [1, -1]))


def rewrite_index_of_extreme(place: Place) -> None:
    """ReduceMin of the places at which a value equals its largest one, as Core ML's lowering writes ArgMax."""
    chosen = _maker(place.input(0), "Where")
    if chosen is None:
        return
    equal = _maker(chosen.inputs[0], "Equal")
    axes = _reduced_axes(place, place.node)
    if equal is None or axes is None or len(axes) != 1:
        return
    for data, other in (equal.inputs, equal.inputs[::-1]):
        extreme = _maker(before_casts(other), "ReduceMax", "ReduceMin")
        if data is None or data.shape is None or extreme is None or extreme.inputs[0] is not data:
            continue
        rank, size = len(data.shape), data.shape[axes[0]]
        if not isinstance(size, int):
            continue
        if _reduced_axes(place, extreme) not in ([axes[0] % rank], [axes[0] % rank - rank]):
            continue
        is_first = place.node.op_type == "ReduceMin"
        if not extreme.attributes.get_int("keepdims", 1) or not _are_places(
            place, chosen, axes[0] % rank, size
        ):
            continue
        if _offset(place, chosen.inputs[2]) != (size - 1 if is_first else 0):
            continue
        keepdims = place.node.attributes.get_int("keepdims", 1)
        name = "ArgMax" if extreme.op_type == "ReduceMax" else "ArgMin"
        settings = {"axis": axes[0] % rank, "keepdims": keepdims}
        found = place.add(name, [data], **settings, **({} if is_first else {"select_last_index": 1}))
        found.type = ir.TensorType(ir.DataType.INT64)
        dtype = place.node.outputs[0].dtype or ir.DataType.INT32
        place.finish(place.add("Cast", [found], to=int(dtype)))
        return


def _maker(value: ir.Value | None, *ops: str) -> ir.Node | None:
    """Return the node of a value if it is one of these operators."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type in ops and node.domain in ("", "ai.onnx") else None


def _reduced_axes(place: Place, node: ir.Node) -> list[int] | None:
    """Return the axes of a reduction, an attribute or an input; None where they are computed."""
    if (given := node.attributes.get_ints("axes", None)) is not None:
        return list(given)
    found = place.array(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if found is None else [int(each) for each in found.reshape(-1)]


def _are_places(place: Place, chosen: ir.Node, axis: int, size: int) -> bool:
    """Return whether a Where chooses from 0, 1, 2 ... along the axis."""
    found = place.array(chosen.inputs[1])
    if found is None or found.size != size:
        return False
    behind = found.ndim - 1 - next((each for each, length in enumerate(found.shape) if length > 1), 0)
    rank = len(chosen.outputs[0].shape or ())
    return bool(np.array_equal(found.reshape(-1), np.arange(size))) and (
        size == 1 or behind == rank - 1 - axis
    )


def _offset(place: Place, value: ir.Value | None) -> int | None:
    """Return the integer that a value is: a constant, or one more than the product of integers and 0."""
    found = place.constant(value)
    if found is not None:
        return int(found)
    node = _maker(value, "Add", "Mul")
    if node is None or value is None or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    numbers = [place.constant(each) for each in node.inputs]
    if node.op_type == "Mul":
        return 0 if 0 in numbers else None
    parts = [_offset(place, each) for each in node.inputs]
    return None if None in parts else sum(each for each in parts if each is not None)


def is_exact_cast(constants: Constants, source: ir.Value, target: ir.DataType) -> bool:
    """Return whether every number of `source` is a label or an index, and `target` holds it."""
    bounds, types, pending = list[tuple[int, int]](), [target], [source]
    while pending:
        value = pending.pop()
        constant, node = constants.get(value), value.producer()
        if constant is not None:
            numbers = constant.values
            if numbers.dtype.kind not in "iuf" or not numbers.size or (numbers != np.floor(numbers)).any():
                return False
            bounds.append((int(numbers.min()), int(numbers.max())))
        elif node is None or node.domain not in ("", "ai.onnx"):
            return False
        elif node.op_type in _INDICES:
            bounds.append((0, _size(node) - 1))
        elif node.op_type == "Cast" or node.op_type in _MOVES:
            types += [ir.DataType(node.attributes.get_int("to", 1))] if node.op_type == "Cast" else []
            moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
            pending += [each for each in moved if each is not None]
        else:
            return False
    return all(_holds(each, low, high) for each in types for low, high in bounds)


def _holds(dtype: ir.DataType, low: int, high: int) -> bool:
    """Return whether a type has all integers from `low` to `high`."""
    if not dtype.is_integer():
        return max(-low, high) <= _WHOLE.get(dtype, -1)
    is_signed = not dtype.name.startswith("U")
    ends = 2 ** (dtype.bitwidth - is_signed)
    return (-ends if is_signed else 0) <= low and high < ends


def _size(node: ir.Node) -> int:
    """Return the size of the axis along which an extreme is looked for."""
    data = node.inputs[0]
    size = None
    if data is not None and data.shape is not None:
        size = data.shape[node.attributes.get_int("axis", 0)]
    return size if isinstance(size, int) else _LARGEST_SIZE
